"""The results of ``bench overload``: each output under each strategy, and the sum against the best other strategy."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.console import Console
from rich.table import Table

from catalog.network import Network
from engine.lab.bench.overload.experiment import best_of_others, in_good_zone
from engine.lab.bench.overload.soak import SoakReport
from engine.lab.bench.overload.utility import LoadRun, StepAnswer
from engine.lab.bench.report import Result

FLAT = 1.05  # the last third of a soak over the one before
GAIN = 1.5  # goal over the best other strategy, at twice the knee
SETTLED_S, RESTORED_S, OVERSHOOTS = 2.0, 5.0, 1


def results(outcomes: Sequence[LoadRun], network: Network) -> Iterable[Result]:
    """Yield the sum of utilities against the best other strategy, and the p99 of each output."""
    for outcome in outcomes:
        case = f"{outcome.shape},load={outcome.load:g},{outcome.strategy}"
        baseline = kinder = None
        if outcome.strategy == "shed" and any(o.strategy != "shed" for o in outcomes):
            baseline, kinder = best_of_others(outcomes, outcome.shape, outcome.load)
        target = GAIN if baseline is not None and outcome.load == 2 and outcome.shape == "uniform" else None
        more = {"rate": outcome.rate} if outcome.rate is not None else {}
        yield Result("overload", case, "utility", outcome.utility, baseline, at_least=target, extra=more)
        yield Result("overload", case, "utility_in_proportion", outcome.in_proportion, kinder)
        if outcome.ideal is not None:
            yield Result("overload", case, "of_ideal_utility", outcome.utility, outcome.ideal)
        for output in outcome.outputs:
            deadline_ns = network.output(output.name).qos.deadline_ns
            extra = {
                "share": round(output.share, 4), "value_share": round(output.value, 4),
                "utility": round(output.utility, 4), "in_good_zone": in_good_zone(output, deadline_ns),
            }  # fmt: skip
            limit_s = None if deadline_ns is None else deadline_ns / 1e9
            yield Result("overload", f"{case},{output.name}", "p99_s", output.p99_ns / 1e9, limit_s, extra=extra)


def step_results(answer: StepAnswer, load: float) -> Iterable[Result]:
    case = f"step 0.5 to {load:g}"
    yield Result("overload", case, "settled_s", answer.settled_s, SETTLED_S, at_most=1.0)
    yield Result("overload", case, "restored_s", answer.restored_s, RESTORED_S, at_most=1.0)
    yield Result("overload", case, "overshoots", answer.overshoots, OVERSHOOTS, at_most=1.0)


def soak_results(soak: SoakReport, load: float) -> Iterable[Result]:
    case = f"soak,load={load:g},{soak.seconds:g}s"
    said = {"dropped": soak.dropped, "looks": soak.looks, "resident_mib": round(soak.resident[-1] / 2**20, 1)}
    yield Result("overload", case, "offered_tuples", soak.offered, extra=said)
    yield Result("overload", case, "resident_growth_ratio", soak.growth, 1.0, at_most=FLAT)
    for metric in ("worst_residual", "not_received", "astray", "not_read"):
        yield Result("overload", case, f"{metric}_tuples", getattr(soak, metric))
    yield Result("overload", case, "missing_tuples", soak.missing, soak.counted, at_least=1.0, at_most=1.0)
    yield Result("overload", case, "missing_and_not_dropped_tuples", soak.missing - soak.counted)


def draw(outcomes: Sequence[LoadRun], network: Network, console: Console) -> None:
    """Print a table for each load and shape: strategies down, outputs across."""
    for shape, load in dict.fromkeys((o.shape, o.load) for o in outcomes):
        table = Table(title=f"{shape} arrivals at {load:g} times the knee", title_justify="left")
        table.add_column("strategy")
        for output in network.outputs:
            table.add_column(output.name, justify="right")
        table.add_column("all", justify="right", style="bold")
        for outcome in [o for o in outcomes if (o.shape, o.load) == (shape, load)]:
            cells = [f"{o.utility:.2f}  {o.value:.0%}  {o.p99_ns / 1e6:,.0f} ms" for o in outcome.outputs]
            table.add_row(outcome.strategy, *cells, f"{outcome.utility:.2f}")
        console.print(table)
    console.print("each cell: utility, share of the value delivered, p99 of the latency at the reader", style="dim")
