"""The results of ``bench promise``: a table for each network, load and shape, and figures with their goals."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rich.console import Console
from rich.table import Table

from engine.lab.bench.promise.bench import PromiseCell
from engine.lab.bench.promise.measured import PromiseRun
from engine.lab.bench.report import Result

OF_IDEAL, OF_NAIVE, CLAIM_OFF = 0.9, 1.0, 0.1
OUTPUTS_SHOWN, DROPS_SHOWN = 5, 3
STARVED, WORTH_IT = 0.05, 0.2  # an output below the first, where the ideal gives it the second or more


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
        for metric, value in (("wrong_windows", run.wrong_windows), ("residual_tuples", run.residual)):
            if value:
                yield Result("promise", case, metric, value)


def _extra(cell: PromiseCell, run: PromiseRun) -> dict[str, Any]:
    utilities = [r.utility for r in cell.of(run.contender)]
    return {
        "knee_rows_per_s": round(cell.knee_per_s), "runs": [round(u, 3) for u in utilities],
        "outputs": {o.name: round(o.utility, 3) for o in run.outputs},
        "ideal": {name: round(u, 3) for name, u in cell.ideal.outputs.items()},
        "claimed": {name: round(c.utility, 3) for name, c in run.claims.items()},
        "p50_ms": {o.name: round(o.p50_ns / 1e6, 1) for o in run.outputs},
        "dropped": [f"{d.share:.0%} of {d.arc} ({d.reason})" for d in run.drops],
        "starved": starved(cell, run), "says_load": round(run.load_ratio, 2), "sender_behind_s": round(run.behind_s, 2),
    }  # fmt: skip


def starved(cell: PromiseCell, run: PromiseRun) -> list[str]:
    """Return the outputs that have next to nothing, where the ideal gives them something."""
    return [o.name for o in run.outputs if o.utility < STARVED and cell.ideal.outputs[o.name] >= WORTH_IT]


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
