"""What ``aurorad explain --drops`` prints: a table of the shed plans, the newest first, and the totals of the drops.

The drawing is a pure function of the answer of ``/api/v1/drops``.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from engine.cli.views.fitted_table import FittedTable

if TYPE_CHECKING:
    from rich.console import RenderableType

PLAIN_WIDTH = 140
MS = 1e6


def show_drops(answer: Mapping[str, Any]) -> None:
    from rich.console import Console

    console = Console(width=None if sys.stdout.isatty() else PLAIN_WIDTH, highlight=False)
    for part in draw_drops(answer):
        console.print(part)


def draw_drops(answer: Mapping[str, Any]) -> list[RenderableType]:
    from rich.text import Text

    if not answer["plans"] and not answer["dropped"]:
        return [Text("nothing has been dropped since the start")]
    shown = len(answer["plans"])
    heading = f"shed level {answer['level']:.2f}, {answer['plans_total']} plans since the start, the last {shown}:"
    parts: list[RenderableType] = [Text(heading, "bold"), _plans(answer)]
    parts += [Text("dropped since the start:", "bold"), _totals(answer)]
    if answer["withheld"]:
        held = ", ".join(f"{w['tuples']:,} of {w['box']}" for w in answer["withheld"])
        parts.append(Text(f"results held back because their windows lacked tuples: {held}"))
    return parts


def _plans(answer: Mapping[str, Any]) -> FittedTable:
    """Draw a line for each plan and one for each of its drops."""
    table = FittedTable(
        "plan", "since", "for", "level", "arc", "manner", "share", "tuples", "saves", "utility lost", "lost per ms",
        "why", spare=("level", "plan", "lost per ms", "for", "saves", "manner"),
        left=("since", "for", "arc", "manner", "why"),
    )  # fmt: skip
    for plan in answer["plans"]:
        dropped: dict[str, int] = {}
        for d in plan["dropped"]:
            dropped[d["arc"]] = dropped.get(d["arc"], 0) + d["tuples"]
        lines = [_drop_cells(drop, dropped.pop(drop["arc"], 0)) for drop in plan["drops"]]
        # Drops in the time of a plan that are not its own: windows that an earlier plan began, deadlines, overflow.
        lines += [(arc, "-", "", f"{tuples:,}", "", "", "") for arc, tuples in dropped.items()]
        head = (str(plan["plan"]), _time(plan["since_ns"]), _lasted(plan), f"{plan['level']:.2f}")
        for number, cells in enumerate(lines or [("nothing", "", "", "0", "", "", "")]):
            table.add_row(*(head if number == 0 else ("",) * 4), *cells, _load(plan) if number == 0 else "")
    return table


def _load(plan: Mapping[str, Any]) -> str:
    """Shorten the reason to what no other column says."""
    return str(plan["why"]).partition(":")[0].removesuffix(" of capacity")


def _drop_cells(drop: Mapping[str, Any], tuples: int) -> tuple[str, ...]:
    return (
        drop["arc"], drop["manner"], f"{drop['share']:.1%}", f"{tuples:,}", f"{drop['gain_ns'] / MS:.1f} ms/s",
        f"{drop['loss']:.4f}", f"{drop['slope'] * MS:.6f}",
    )  # fmt: skip


def _totals(answer: Mapping[str, Any]) -> FittedTable:
    table = FittedTable("arc", "reason", "tuples", "intended", left=("reason", "intended"))
    for d in answer["dropped"]:
        table.add_row(d["arc"], d["reason"], f"{d['tuples']:,}", "yes" if d["intended"] else "NO")
    return table


def _time(ns: int) -> str:
    return datetime.fromtimestamp(ns / 1e9, UTC).strftime("%H:%M:%S.%f")[:-3]


def _lasted(plan: Mapping[str, Any]) -> str:
    if plan["until_ns"] is None:
        return "now"
    return f"{(plan['until_ns'] - plan['since_ns']) / 1e9:.1f} s"
