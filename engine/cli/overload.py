"""``aurorad bench overload FILE``: the daemon driven beyond what it can take."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from engine.cli.bench import PLAIN_WIDTH, Json, Quick

if TYPE_CHECKING:
    from engine.bench.overload.measure import Outcome
    from engine.bench.report import Result


LOADS = "0.5,1,1.5,2,3,4"
SOAK_LOAD = 3.0


@cache
def add(bench: typer.Typer) -> None:
    """Once, however often a command line is made."""
    bench.command()(overload)


def _numbers(text: str) -> list[float]:
    try:
        loads = [float(part) for part in text.split(",")]
    except ValueError:
        raise typer.BadParameter(f"'{text}': write multiples of the knee, as in {LOADS}") from None
    if not all(0 < load <= 20 for load in loads):
        raise typer.BadParameter("a load is above 0 and at most 20 times the knee")
    return loads


def _words(text: str, known: Sequence[str], what: str) -> list[str]:
    words = text.split(",")
    if unknown := [w for w in words if w not in known]:
        raise typer.BadParameter(f"{', '.join(unknown)}: {what} are {', '.join(known)}")
    return words


def overload(
    file: Annotated[Path, typer.Argument(help="a network file with a stream that says overload: shed")],
    loads: Annotated[str, typer.Option(help="multiples of the measured knee")] = LOADS,
    arrivals: Annotated[str, typer.Option(help="uniform, bursty, ramp")] = "uniform,bursty,ramp",
    against: Annotated[str, typer.Option(help="which others: block, oldest, newest, random; none: only ours")] = (
        "block,oldest,newest,random"
    ),
    seconds: Annotated[float, typer.Option(min=2, max=3600, help="of each run")] = 15.0,
    step: Annotated[float, typer.Option(min=0, max=20, help="a step from 0.5 to this load and back; 0: none")] = 3.0,
    soak: Annotated[float, typer.Option(min=0, max=86_400, help="only this: three times the knee for so long")] = 0.0,
    as_json: Json = False,
    quick: Quick = False,
) -> None:
    """Too much for the machine: what each output is still worth, beside block, drop oldest, drop newest and random.

    The knee is measured first; loads are multiples of it. Before each load the simulator says what it will bring
    (the contract), and afterwards how near the daemon came. Takes loads x arrivals x strategies x seconds.
    """
    from rich.console import Console

    from engine.bench.harness import BenchError
    from engine.bench.overload.arrivals import SHAPES, Shape
    from engine.bench.overload.promise import Kept, Promises, promise_results, promise_text
    from engine.bench.overload.report import draw, results, soak_results, step_results
    from engine.bench.overload.run import STRATEGIES, overloaded
    from engine.bench.overload.soak import soak as soaked
    from engine.bench.report import show
    from engine.simulate.contract import contract_text

    console = Console(width=None if sys.stdout.isatty() else PLAIN_WIDTH, highlight=False)
    multiples = [2.0] if quick else _numbers(loads)
    shapes = ["uniform"] if quick else _words(arrivals, SHAPES[:3], "arrivals")
    strategies = ["shed", *(_words(against, STRATEGIES[1:], "strategies") if against != "none" else [])]
    try:
        with overloaded(file, 5.0 if quick else seconds, lambda text: typer.echo(text, err=True)) as experiment:
            experiment.find_knee()
            if soak:
                lasted = soaked(experiment, SOAK_LOAD, soak)
                show(list(soak_results(lasted, SOAK_LOAD)), as_json=as_json, console=console)
                return
            promises = Promises(experiment.network, experiment.learned, experiment.mix)
            typer.echo(f"the simulator puts the knee at {promises.knee_per_s:,.0f} tuples a second", err=True)
            outcomes: list[Outcome] = []
            kept: list[Kept] = []
            for arrival in [Shape(shape, load, experiment.seconds) for shape in shapes for load in multiples]:
                promised = promises.contract(arrival)
                typer.echo(f"{arrival.name} arrivals: the contract\n{contract_text([promised])}", err=True)
                runs = [experiment.outcome(strategy, arrival) for strategy in strategies]
                outcomes += runs
                kept.append(Kept(promised, runs[0]))
            found: Iterable[Result] = [*results(outcomes, experiment.network), *promise_results(kept)]
            if step and not quick:
                found = [*found, *step_results(experiment.step(step)[0], step)]
            if not as_json:
                draw(outcomes, experiment.network, console)
                typer.echo(promise_text(kept) + "\n")
            show(found, as_json=as_json, console=console)
    except BenchError as error:
        typer.echo(f"aurorad: bench overload: {error}", err=True)
        raise typer.Exit(1) from None
