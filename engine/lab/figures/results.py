"""The verdicts in short: one JSON file with a line for each figure and engine.

The runs of all figures are megabytes and stay where they were made. What they came to is kept in
``docs/figures/results.json``, from which ``make docs`` makes a page, so no number there is written by hand. A row
without ``paper`` is of a run whose numbers were not kept.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import orjson

from engine.lab.bench.harness import read_kept
from engine.lab.figures import figure_names
from engine.lab.figures.record import FigureRecord

Row = Mapping[str, Any]
KEPT = ("figure", "engine", "verdict", "held", "variations", "seeds_held", "seeds", "paper")


def row_of(record: FigureRecord) -> Row:
    """Return what is kept of a record."""
    told = record.result().extra or {}
    statements = [
        {"what": s.what, "reading": s.reading, "held": s.held, "of": s.of, "seen": s.seen}
        for s in record.outcome.statements
    ]
    return {
        **{key: told[key] for key in KEPT},
        "statements": statements,
        "when": record.when[:10],
        "machine": record.machine,
    }


def read_results(path: Path) -> list[Row]:
    """Read the rows of a file; none if there is no such file."""
    if not path.exists():
        return []
    rows: list[Row] = read_kept(path, _rows, "`bench figures --results` writes")
    return rows


def _rows(data: Any) -> list[Row]:
    known = figure_names()
    return [dict(row) for row in data if row["figure"] in known and row["engine"]]


def merge_results(path: Path, records: Iterable[FigureRecord]) -> None:
    """Put the rows of these records into the file, in place of older ones. The others stay."""
    rows = {(row["figure"], row["engine"]): row for row in read_results(path)}
    rows |= {(record.name, record.engine): row_of(record) for record in records}
    order = list(figure_names())
    ordered = sorted(rows.values(), key=lambda row: (order.index(row["figure"]), row["engine"]))
    part = path.with_suffix(".part")
    part.write_bytes(b"[\n" + b",\n".join(orjson.dumps(row) for row in ordered) + b"\n]\n")
    part.replace(path)
