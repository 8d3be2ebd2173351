"""``aurorad bench promise``: overload on generated networks, beside an ideal and naive strategies."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from engine.cli.bench.group import PLAIN_WIDTH, Json, Quick, bench
from engine.cli.bench.overload import parse_loads, parse_words

LOADS = "0.7,1.5,3"


@bench.command()
def promise(
    seeds: Annotated[int, typer.Option(min=1, max=100, help="Networks of each kind, with seeds from 1 on.")] = 1,
    networks: Annotated[str, typer.Option("--networks", "--kind", help="Kinds of networks; all: every kind.")] = "all",
    loads: Annotated[str, typer.Option(help="Multiples of the measured knee.")] = LOADS,
    shapes: Annotated[
        str, typer.Option(help="Arrivals: steady, step, bursts; own: those of each kind, steady or bursts.")
    ] = "own",
    policies: Annotated[str, typer.Option(help="Policies of the daemon that sheds.")] = "round_robin,qos,auto",
    against: Annotated[str, typer.Option(help="Naive strategies to compare with, or none.")] = (
        "block,oldest,newest,random"
    ),
    seconds: Annotated[
        float, typer.Option(min=4, max=3600, help="Seconds of each run; two are for warming up.")
    ] = 20.0,
    rounds: Annotated[int, typer.Option(min=1, max=20, help="Runs of each contender; the median counts.")] = 3,
    as_json: Json = False,
    quick: Quick = False,
) -> None:
    """Measure the promise on generated networks: utility at the readers under overload, beside an ideal.

    Networks of eleven kinds get random parameters by seed. The command
    measures the knee of each, then runs every policy and every naive strategy
    in turn. At the end it says of every goal on which networks it was missed.
    A full run takes seeds x networks x loads x shapes x rounds x contenders
    x seconds: hours. The first line says how long; --quick takes minutes.

    \b
      aurorad bench promise --quick
      aurorad bench promise --networks incurable,edge --loads 3 --rounds 1
      aurorad bench promise --seeds 5 --json > promise.jsonl

    Exit codes: 0 measured, 1 failed, 2 wrong usage.
    """
    from rich.console import Console

    from engine.lab.bench.harness import BenchError
    from engine.lab.bench.promise.bench import NAIVE, POLICIES, SHAPES, PromisePlan, run_promise
    from engine.lab.bench.promise.goals import verdicts
    from engine.lab.bench.promise.kinds import KINDS
    from engine.lab.bench.promise.report import draw_cell, draw_verdicts, goal_results, promise_results
    from engine.lab.bench.report import show

    naive = () if against == "none" else tuple(parse_words(against, NAIVE, "strategies"))
    plan = PromisePlan(
        kinds=tuple(KINDS) if networks == "all" else tuple(parse_words(networks, tuple(KINDS), "networks")),
        seeds=seeds,
        loads=(0.7, 3.0) if quick and loads == LOADS else tuple(parse_loads(loads)),
        shapes=() if shapes == "own" else tuple(parse_words(shapes, tuple(SHAPES), "shapes")),
        policies=("qos",) if quick else tuple(parse_words(policies, POLICIES, "policies")),
        naive=naive and ("random",) if quick else naive,
        seconds=5.0 if quick else seconds,
        rounds=1 if quick else rounds,
    )  # fmt: skip
    console = Console(width=None if sys.stdout.isatty() else PLAIN_WIDTH, highlight=False)
    cells = []
    try:
        for cell in run_promise(plan, lambda text: typer.echo(text, err=True)):
            cells.append(cell)
            if as_json:
                show(promise_results(cell), as_json=True, console=console)
            else:
                draw_cell(cell, console)
        if as_json:
            show(goal_results(verdicts(cells)), as_json=True, console=console)
        else:
            draw_verdicts(cells, console)
    except BenchError as error:
        typer.echo(f"aurorad: bench promise: {error}", err=True)
        raise typer.Exit(1) from None
