"""``aurorad bench auto``: the policy auto against every fixed policy, in the simulator or on the engine."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from engine.cli.bench.benchmarks import take
from engine.cli.bench.group import PLAIN_WIDTH, Json, Quick, bench
from engine.cli.bench.overload import parse_words

SECONDS = 6.0


@bench.command()
def auto(
    seed: Annotated[int, typer.Option(min=0, help="Seed of networks and arrivals.")] = 7,
    only: Annotated[str, typer.Option(help="Only workloads whose name contains this: demo, P0.11, 'load 0.9'.")] = "",
    keep: Annotated[Path | None, typer.Option(help="A folder that keeps results; a later run reuses them.")] = None,
    jobs: Annotated[int, typer.Option(min=1, help="Number of processes, in the simulator.")] = 1,
    real: Annotated[bool, typer.Option("--real", help="On the engine itself, with threads and shedding.")] = False,
    policies: Annotated[str, typer.Option(help="With --real: these policies only, auto among them.")] = "",
    rounds: Annotated[int, typer.Option(min=1, max=20, help="With --real: runs of auto, qos and round_robin.")] = 3,
    seconds: Annotated[float, typer.Option(min=4, max=600, help="With --real: seconds of a run.")] = SECONDS,
    as_json: Json = False,
    quick: Quick = False,
) -> None:
    """Compare the policy auto with every fixed policy, in the simulator or on the engine.

    In the simulator: workloads of the papers, and the demo. With --real:
    three networks of bench promise at four multiples of the knee, with
    utility, p99 and memory of every policy. All of it takes half an hour;
    with --keep it can be done in parts.

    \b
      aurorad bench auto --quick
      aurorad bench auto --keep runs --jobs 2
      aurorad bench auto --real --only "values at 3" --policies auto,qos

    Exit codes: 0 measured, 1 no workload has that name, or a kept result
    cannot be read, 2 no such policy.
    """
    if real:
        _on_the_engine(only, keep, policies, 1 if quick else rounds, 4.0 if quick else seconds, as_json)
        return
    from engine.lab.bench.auto.bench import run
    from engine.lab.bench.auto.pieces import AutoPiece, PieceStore

    def print_progress(done: int, of: int, piece: AutoPiece, seconds: float) -> None:
        typer.echo(f"{done:4} of {of}  {seconds:6.1f} s  {piece.case}, {piece.policy}", err=True)

    take("auto", quick, as_json, lambda options: run(options, seed, PieceStore(keep, jobs, print_progress), only))


def _on_the_engine(only: str, keep: Path | None, names: str, rounds: int, seconds: float, as_json: bool) -> None:
    from rich.console import Console

    from engine.lab.bench.auto.real import RealPlan, tables
    from engine.lab.bench.auto.real_report import draw_table, results
    from engine.lab.bench.harness import BenchError
    from engine.lab.bench.report import show
    from scheduler.choice import AUTO
    from scheduler.policies import policies

    def print_progress(done: int, of: int, name: str, utility: float) -> None:
        typer.echo(f"{done:4} of {of}  {name}: utility {utility:.2f}", err=True)

    chosen = tuple(dict.fromkeys((AUTO, *parse_words(names, (AUTO, *policies()), "policies")))) if names else ()
    console = Console(width=None if sys.stdout.isatty() else PLAIN_WIDTH, highlight=False)
    try:
        found = []
        for table in tables(RealPlan(keep, only, rounds, seconds, chosen, print_progress)):
            found += results(table)
            if not as_json:
                draw_table(table, console)
        show(found, as_json=as_json, console=console)
    except BenchError as error:
        typer.echo(f"aurorad: bench auto: {error}", err=True)
        raise typer.Exit(1) from None
