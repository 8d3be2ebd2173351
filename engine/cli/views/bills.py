"""What ``aurorad top --by query`` shows: the bill of each query, as a table or as one line for a log.

A drawing is a pure function of the answer of ``/api/v1/bills``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from engine.cli.views.fitted_table import FittedTable
from engine.cli.views.numbers import count, duration, size

if TYPE_CHECKING:
    from rich.console import RenderableType

FIXED_LINES = 6  # of the screen beside the rows
QUERIES_IN_LINE = 5


def draw_bills(answer: Mapping[str, Any], most: int) -> RenderableType:
    """Draw the dearest queries, at most this many, and what all of them add up to."""
    from rich.console import Group
    from rich.text import Text

    table = FittedTable(
        "query", "busy", "of all", "time", "boxes", "delivery", "overhead", "tuples/s", "tuples", "results", "queues",
        "state", "dropped", "shares",
        spare=("shares", "overhead", "delivery", "boxes", "tuples", "results", "queues", "tuples/s"), left=("shares",),
    )  # fmt: skip
    bills = answer["bills"]
    for bill in bills[:most]:
        table.add_row(
            Text(bill["query"], "bold"), f"{bill['busy_ratio']:.1%}", f"{_share(bill, answer):.1%}",
            *(duration(bill[key]) for key in ("cpu_ns", "boxes_ns", "delivery_ns", "overhead_ns")),
            *(count(bill[key]) for key in ("tuples_per_s", "tuples", "results")),
            size(bill["queue_bytes"]), size(bill["state_bytes"]), count(bill["dropped"]), _shared(bill["shared"]),
        )  # fmt: skip
    lines = [_totals(answer)]
    if len(bills) > most:
        lines.append(f"and {len(bills) - most} queries that cost less")
    return Group(table, *(Text(line, "dim") for line in lines))


def bills_line(answer: Mapping[str, Any]) -> str:
    """Write what fits in a log line: the dearest queries."""
    dearest = [
        f"{bill['query']} {bill['busy_ratio']:.1%} ({_share(bill, answer):.1%} of all)"
        for bill in answer["bills"][:QUERIES_IN_LINE]
    ]
    return " | ".join([_totals(answer), *dearest])


def _totals(answer: Mapping[str, Any]) -> str:
    parts = [f"busy {duration(answer['busy_ns'])}", f"billed {duration(answer['billed_ns'])}"]
    parts += [
        f"{word} {duration(answer[key])}"
        for key, word in (("gone_ns", "queries that were removed"), ("no_output_ns", "boxes without an output"))
        if answer[key]
    ]
    return ", ".join([*parts, f"in no bill {abs(answer['residual_ns']) / max(1, answer['busy_ns']):.2%}"])


def _share(bill: Mapping[str, Any], answer: Mapping[str, Any]) -> float:
    return float(bill["cpu_ns"] / max(1, answer["busy_ns"]))


def _shared(names: list[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
