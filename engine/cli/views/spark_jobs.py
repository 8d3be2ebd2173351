"""Bulk jobs and Spark sinks in ``top``: one line each, from the answer of ``/api/v1/stats``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def spark_lines(stats: Mapping[str, Any]) -> list[str]:
    """Write a line for each bulk job and each sink; none for a network without Spark."""
    return [*map(bulk_line, stats.get("bulk", ())), *map(sink_line, stats.get("sinks", ()))]


def bulk_line(job: Mapping[str, Any]) -> str:
    """Write ``bulk trades: 1,200,000 of 5,000,000 rows (24%), 800,000/s, 5 s left``."""
    rows, expected, rate = job["rows"], job["rows_expected"], job["rate_per_s"]
    parts = [f"{rows:,} of {expected:,} rows ({rows / expected:.0%})" if expected else f"{rows:,} rows"]
    if job["state"] == "reading":
        parts.append(f"{rate:,.0f}/s")
        if expected and rate > 0:
            parts.append(f"{max(0, expected - rows) / rate:,.0f} s left")
    else:
        parts.append(job["state"])
    if job["error"]:
        parts.append(job["error"][:200])
    return f"bulk {job['stream']}: {', '.join(parts)}"


def sink_line(sink: Mapping[str, Any]) -> str:
    parts = [
        f"{sink['committed']:,} tuples in {sink['commits']:,} commits",
        f"{sink['buffered']:,} waiting",
        sink["state"],
    ]
    if sink["error"]:
        parts.append(sink["error"][:200])
    return f"sink {sink['output']}: {', '.join(parts)}"
