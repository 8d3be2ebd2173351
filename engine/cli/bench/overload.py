"""``aurorad bench overload FILE``: drive the daemon beyond its capacity."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from engine.cli.bench.group import PLAIN_WIDTH, Json, Quick, bench

if TYPE_CHECKING:
    from engine.lab.bench.overload.utility import LoadRun
    from engine.lab.bench.report import Result


LOADS = "0.5,1,1.5,2,3,4"
SOAK_LOAD = 3.0


def parse_loads(text: str) -> list[float]:
    """Read multiples of the knee."""
    try:
        loads = [float(part) for part in text.split(",")]
    except ValueError:
        raise typer.BadParameter(f"'{text}': write multiples of the knee, as in {LOADS}") from None
    if not all(0 < load <= 20 for load in loads):
        raise typer.BadParameter("a load is above 0 and at most 20 times the knee")
    return loads


def parse_words(text: str, known: Sequence[str], what: str) -> list[str]:
    """Read words that must be known, with commas between them."""
    words = text.split(",")
    if unknown := [w for w in words if w not in known]:
        raise typer.BadParameter(f"{', '.join(unknown)}: {what} are {', '.join(known)}")
    return words


@bench.command()
def overload(
    file: Annotated[Path, typer.Argument(help="A network file with a stream that says overload: shed.")],
    loads: Annotated[str, typer.Option(help="Multiples of the measured knee.")] = LOADS,
    arrivals: Annotated[str, typer.Option(help="Shapes of arrivals.")] = "uniform,bursty,ramp",
    against: Annotated[str, typer.Option(help="Strategies to compare with; none: only the shedder.")] = (
        "block,oldest,newest,random"
    ),
    seconds: Annotated[float, typer.Option(min=2, max=3600, help="Seconds of each run.")] = 15.0,
    step: Annotated[
        float, typer.Option(min=0, max=20, help="Also a step from load 0.5 to this one and back; 0: no step.")
    ] = 3.0,
    soak: Annotated[
        float, typer.Option(min=0, max=86_400, help="Run only a soak: three times the knee for this many seconds.")
    ] = 0.0,
    as_json: Json = False,
    quick: Quick = False,
) -> None:
    """Measure the utility of each output under overload, against block, drop oldest, drop newest and random drops.

    The command measures the knee first; loads are multiples of it. Before
    each load it prints the simulator's prediction (the contract), and
    afterwards how near the daemon came. A full run takes loads x arrivals x
    strategies x seconds.

    \b
      aurorad bench overload configs/demo.yaml --quick
      aurorad bench overload configs/demo.yaml --loads 2 --arrivals uniform
      aurorad bench overload configs/demo.yaml --soak 180

    Exit codes: 0 measured, 1 failed, 2 wrong usage, 78 a bad network file.
    """
    from rich.console import Console

    from engine.lab.bench.harness import BenchError
    from engine.lab.bench.overload.arrivals import SHAPES, ArrivalShape
    from engine.lab.bench.overload.contract import ContractMaker, ContractOutcome, contract_comparison, contract_results
    from engine.lab.bench.overload.experiment import STRATEGIES, overloaded
    from engine.lab.bench.overload.report import draw, results, soak_results, step_results
    from engine.lab.bench.overload.soak import soak as soaked
    from engine.lab.bench.report import show
    from engine.simulate.contract import contract_text

    console = Console(width=None if sys.stdout.isatty() else PLAIN_WIDTH, highlight=False)
    multiples = [2.0] if quick else parse_loads(loads)
    shapes = ["uniform"] if quick else parse_words(arrivals, SHAPES[:3], "arrivals")
    strategies = ["shed", *(parse_words(against, STRATEGIES[1:], "strategies") if against != "none" else [])]
    try:
        with overloaded(file, 5.0 if quick else seconds, lambda text: typer.echo(text, err=True)) as experiment:
            experiment.find_knee()
            if soak:
                lasted = soaked(experiment, SOAK_LOAD, soak)
                show(list(soak_results(lasted, SOAK_LOAD)), as_json=as_json, console=console)
                return
            contracts = ContractMaker(experiment.network, experiment.learned, experiment.mix)
            typer.echo(f"the simulator puts the knee at {contracts.knee_per_s:,.0f} tuples a second", err=True)
            outcomes: list[LoadRun] = []
            compared: list[ContractOutcome] = []
            for arrival in [ArrivalShape(shape, load, experiment.seconds) for shape in shapes for load in multiples]:
                contract = contracts.contract(arrival)
                typer.echo(f"{arrival.name} arrivals: the contract\n{contract_text([contract])}", err=True)
                runs = [experiment.outcome(strategy, arrival) for strategy in strategies]
                outcomes += runs
                compared.append(ContractOutcome(contract, runs[0]))
            found: Iterable[Result] = [*results(outcomes, experiment.network), *contract_results(compared)]
            if step and not quick:
                found = [*found, *step_results(experiment.step(step)[0], step)]
            if not as_json:
                draw(outcomes, experiment.network, console)
                typer.echo(contract_comparison(compared) + "\n")
            show(found, as_json=as_json, console=console)
    except BenchError as error:
        typer.echo(f"aurorad: bench overload: {error}", err=True)
        raise typer.Exit(1) from None
