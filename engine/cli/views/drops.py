"""What ``aurorad explain --drops`` prints: why tuples are dropped, in words; the shed plans; and the totals.

Work is shown as a share of capacity, which is the work that this machine can do: at a load of 150 % a plan must save
50 %. The drawing is a pure function of the answer of ``/api/v1/drops``.
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
MANNERS = {
    "random": "at random",
    "semantic": "those of least value first",
    "windows": "by whole windows",
}
REASONS = {
    "shed": "by a plan, at random",
    "semantic": "by a plan, the least valuable first",
    "window": "by a plan, with its whole window",
    "expired": "too late to be of use for any output",
    "overflow": "memory was full before a plan came",
    "damaged": "a file on disk could not be read back",
}
INTRODUCTION = (
    "A plan drops tuples while more work arrives than this machine can do. It drops them where the least utility is "
    "lost for the work saved, by the loss graphs of the outputs. Loads and savings are shares of capacity, the work "
    "that can be done: at load 150% a plan saves 50%. Utility is 0 to 1 for each output; the loss is their sum."
)


def show_drops(answer: Mapping[str, Any]) -> None:
    from rich.console import Console

    console = Console(width=None if sys.stdout.isatty() else PLAIN_WIDTH, highlight=False)
    for part in draw_drops(answer):
        console.print(part)


def draw_drops(answer: Mapping[str, Any]) -> list[RenderableType]:
    from rich.text import Text

    if not answer["plans"] and not answer["dropped"]:
        return [Text("nothing has been dropped since the start")]
    parts: list[RenderableType] = [Text(INTRODUCTION, "dim"), Text(in_words(answer))]
    if shown := len(answer["plans"]):
        parts += [Text(f"the last {shown} of {answer['plans_total']} plans:", "bold"), _plans(answer)]
    parts += [Text("dropped since the start:", "bold"), _totals(answer)]
    if answer["withheld"]:
        held = ", ".join(f"{w['tuples']:,} of {w['box']}" for w in answer["withheld"])
        parts.append(Text(f"results held back because their windows lacked tuples: {held}"))
    return parts


def in_words(answer: Mapping[str, Any]) -> str:
    """Say what the newest plan does and why."""
    newest = answer["plans"][0] if answer["plans"] else None
    if newest is None or not newest["drops"]:
        return "Now nothing is dropped by a plan: the load is within capacity."
    most = sorted(newest["drops"], key=lambda d: -d["share"])[:3]
    said = "; ".join(
        f"{d['share']:.0%} of the tuples on {d['arc']} ({MANNERS[d['manner']]}), before {', '.join(d['outputs'])}"
        for d in most
    )
    more = f"; and on {len(newest['drops']) - 3} more arcs" if len(newest["drops"]) > 3 else ""
    return (
        f"Now the load is {_load(newest)} of capacity. The plan drops {said}{more}. That saves {_saved(newest)} of "
        f"capacity and costs {newest['loss']:.3f} of utility."
    )


def _plans(answer: Mapping[str, Any]) -> FittedTable:
    """Draw a line for each plan and one for each of its drops."""
    table = FittedTable(
        "plan", "since (UTC)", "for", "load", "saves", "utility lost", "arc", "how", "share", "tuples", "outputs",
        spare=("plan", "outputs", "how", "for", "saves"), left=("since (UTC)", "for", "arc", "how", "outputs"),
    )  # fmt: skip
    for plan in answer["plans"]:
        dropped: dict[str, int] = {}
        for d in plan["dropped"]:
            dropped[d["arc"]] = dropped.get(d["arc"], 0) + d["tuples"]
        lines = [_drop_cells(drop, dropped.pop(drop["arc"], 0)) for drop in plan["drops"]]
        # Drops in the time of a plan that are not its own: windows that an earlier plan began, deadlines, overflow.
        lines += [(arc, "not by this plan", "", f"{tuples:,}", "") for arc, tuples in dropped.items()]
        head = (
            str(plan["plan"]), _time(plan["since_ns"]), _lasted(plan), _load(plan), _saved(plan), f"{plan['loss']:.3f}",
        )  # fmt: skip
        for number, cells in enumerate(lines or [("nothing", "", "", "0", "")]):
            table.add_row(*(head if number == 0 else ("",) * 6), *cells)
    return table


def _drop_cells(drop: Mapping[str, Any], tuples: int) -> tuple[str, ...]:
    return drop["arc"], MANNERS[drop["manner"]], f"{drop['share']:.1%}", f"{tuples:,}", ", ".join(drop["outputs"])


def _saved(plan: Mapping[str, Any]) -> str:
    """Write the work that a plan saves as a share of capacity."""
    return f"{plan['saved_ns'] / plan['capacity_ns']:.0%}" if plan["capacity_ns"] else "-"


def _load(plan: Mapping[str, Any]) -> str:
    return f"{plan['load_ns'] / plan['capacity_ns']:.0%}" if plan["capacity_ns"] else "-"


def _totals(answer: Mapping[str, Any]) -> FittedTable:
    table = FittedTable("arc", "tuples", "why", left=("why",))
    for d in answer["dropped"]:
        why = f"{d['reason']}: {REASONS[d['reason']]}"
        table.add_row(d["arc"], f"{d['tuples']:,}", why if d["intended"] else f"{why} (no plan chose this)")
    return table


def _time(ns: int) -> str:
    return datetime.fromtimestamp(ns / 1e9, UTC).strftime("%H:%M:%S.%f")[:-3]


def _lasted(plan: Mapping[str, Any]) -> str:
    if plan["until_ns"] is None:
        return "now"
    return f"{(plan['until_ns'] - plan['since_ns']) / 1e9:.1f} s"
