"""The results of ``bench promise``: a table for each network, load and shape, and figures with their goals."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

from engine.lab.bench.promise.bench import PromiseCell
from engine.lab.bench.promise.goals import (
    CLAIM_OFF,
    CONTRACT_OFF,
    OF_IDEAL,
    OF_NAIVE,
    GoalVerdict,
    starved,
    verdicts,
)  # fmt: skip
from engine.lab.bench.promise.measured import PromiseRun
from engine.lab.bench.report import Result

OUTPUTS_SHOWN, DROPS_SHOWN = 5, 3


def promise_results(cell: PromiseCell) -> Iterator[Result]:
    for contender in cell.contenders:
        case = f"{cell.network},{cell.shape},load={cell.load:g},{contender}"
        run = cell.typical(contender)
        yield Result("promise", case, "utility", cell.utility(contender), cell.ideal.utility,
                     at_least=OF_IDEAL if contender in cell.ours else None, extra=_extra(cell, run))  # fmt: skip
        if contender not in cell.ours:
            continue
        if cell.best_naive is not None:
            yield Result("promise", case, "of_best_naive_utility", cell.utility(contender), cell.best_naive,
                         at_least=OF_NAIVE)  # fmt: skip
        off = max(r.worst_claim for r in cell.of(contender))
        yield Result("promise", case, "claimed_less_measured_utility", off, CLAIM_OFF, at_most=1.0)
        yield from _contract_result(cell, contender, case)
        for metric, value in (("wrong_windows", run.wrong_windows), ("residual_tuples", run.residual)):
            if value:
                yield Result("promise", case, metric, value)


def goal_results(goals: Sequence[GoalVerdict]) -> Iterator[Result]:
    """Return the verdicts as results, for tools: the share of the cases that reached each goal."""
    for goal in goals:
        cases = goal.reached + len(goal.missed)
        if cases:
            yield Result("promise", "goal", goal.goal, goal.reached, cases, at_least=1.0,
                         extra={"missed": list(goal.missed)})  # fmt: skip


def draw_verdicts(cells: Sequence[PromiseCell], console: Console) -> None:
    """Print a line for each goal."""
    for goal in verdicts(cells):
        console.print(goal.text, style="red" if goal.missed else "", markup=False, soft_wrap=True)


def _contract_result(cell: PromiseCell, contender: str, case: str) -> Iterator[Result]:
    if cell.contract is not None and contender == cell.contract.policy:
        yield Result("promise", case, "contract_utility", cell.contract.utility, cell.utility(contender),
                     at_least=1 - CONTRACT_OFF, at_most=1 + CONTRACT_OFF,
                     extra={"knee_rows_per_s": round(cell.contract_knee_per_s)})  # fmt: skip


def _extra(cell: PromiseCell, run: PromiseRun) -> dict[str, Any]:
    utilities = [r.utility for r in cell.of(run.contender)]
    return {
        "knee_rows_per_s": round(cell.knee_per_s), "runs": [round(u, 3) for u in utilities],
        "outputs": {o.name: round(o.utility, 3) for o in run.outputs},
        "ideal": {name: round(u, 3) for name, u in cell.ideal.outputs.items()},
        "claimed": {name: round(c.utility, 3) for name, c in run.claims.items()},
        "p50_ms": {o.name: round(o.p50_ns / 1e6, 1) for o in run.outputs},
        "dropped": [f"{d.share:.0%} of {d.arc} ({d.reason})" for d in run.drops],
        "lost_after_1_s": run.lost_later, "intervals": list(run.covered), "memory_growth": round(run.memory_growth, 3),
        "settled_s": None if run.step is None else run.step.settled_s,
        "restored_s": None if run.step is None else run.step.restored_s,
        "starved": starved(cell, run), "says_load": round(run.load_ratio, 2), "sender_behind_s": round(run.behind_s, 2),
    }  # fmt: skip


def draw_cell(cell: PromiseCell, console: Console) -> None:
    """Print the table of one network, load and shape: contenders down, outputs across."""
    title = f"{cell.network}: {cell.shape} arrivals at {cell.load:g} times the knee of {cell.knee_per_s:,.0f} rows/s"
    table = Table(title=title, title_justify="left")
    table.add_column("")
    names = list(cell.ideal.outputs)[:OUTPUTS_SHOWN]
    for name in names:
        table.add_column(name, justify="right")
    table.add_column("all", justify="right", style="bold")
    table.add_column("claimed - felt", justify="right")
    table.add_column("dropped")
    ideal = [f"{cell.ideal.outputs[name]:.2f}" for name in names]
    table.add_row("ideal", *ideal, f"{cell.ideal.utility:.2f}", "", "", style="dim")
    for contender in cell.contenders:
        run = cell.typical(contender)
        by_name = {o.name: o for o in run.outputs}
        cells = [f"{by_name[n].utility:.2f}  {by_name[n].p50_ns / 1e6:,.0f} ms" for n in names]
        table.add_row(contender, *cells, f"{cell.utility(contender):.2f}", _claims(run), _drops(run))
    console.print(table)
    more = len(cell.ideal.outputs) - len(names)
    also = f"; {more} more outputs are in the sum" if more > 0 else ""
    console.print(f"each cell: utility and p50 at the reader{also}", style="dim")


def _claims(run: PromiseRun) -> str:
    if not run.claims:
        return ""
    total = sum(c.utility for c in run.claims.values()) - run.utility
    return f"{total:+.2f}, worst {run.worst_claim:.2f}"


def _drops(run: PromiseRun) -> str:
    shown = [f"{d.share:.0%} of {d.arc}{' (expired)' * (d.reason == 'expired')}" for d in run.drops[:DROPS_SHOWN]]
    more = f" and {len(run.drops) - DROPS_SHOWN} more" if len(run.drops) > DROPS_SHOWN else ""
    return ", ".join(shown) + more
