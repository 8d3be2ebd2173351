"""``aurorad bench``: the engine against bare loops without one, in the same run."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from engine.bench.harness import Options
    from engine.bench.report import Result

PLAIN_WIDTH = 120

Json = Annotated[bool, typer.Option("--json", help="One JSON object per line and case.")]
Quick = Annotated[bool, typer.Option("--quick", help="A look, not a figure: fewer and shorter rounds.")]

bench = typer.Typer(
    no_args_is_help=True,
    help="Measure the engine against a bare loop: interleaved rounds, the best of each, as a ratio.",
)


def register(app: typer.Typer) -> None:
    from engine.cli import figures, overload

    figures.add(bench)
    overload.add(bench)
    app.add_typer(bench, name="bench")


def _take(name: str, quick: bool, as_json: bool, run: Callable[[Options], Iterable[Result]]) -> None:
    from rich.console import Console

    from engine.bench.harness import BenchError, Options
    from engine.bench.report import show

    try:
        show(run(Options(quick)), as_json=as_json, console=Console(width=None if sys.stdout.isatty() else PLAIN_WIDTH))
    except BenchError as error:
        typer.echo(f"aurorad: bench {name}: {error}", err=True)
        raise typer.Exit(1) from None


@bench.command()
def chain(
    queries: Annotated[list[int] | None, typer.Option(min=1, help="Only with so many queries.")] = None,
    as_json: Json = False,
    quick: Quick = False,
) -> None:
    """Chains of five filters in memory, against a hand-written numpy loop; and what a second worker adds."""
    from engine.bench.chain import run

    _take("chain", quick, as_json, lambda options: run(options, queries or ()))


@bench.command()
def socket(
    format: Annotated[list[str] | None, typer.Option(help="ndjson, csv or arrow; all three if not said.")] = None,
    as_json: Json = False,
    quick: Quick = False,
) -> None:
    """From one client process through five filters to another, over TCP, against bare loops for the same rows."""
    from engine.bench.sockets import FORMATS, run

    if unknown := set(format or ()) - set(FORMATS):
        raise typer.BadParameter(f"{', '.join(unknown)}: a format is one of {', '.join(FORMATS)}")
    _take("socket", quick, as_json, lambda options: run(options, format or FORMATS))


@bench.command()
def latency(
    rate: Annotated[int, typer.Option(min=1, max=1_000_000, help="Rows a second.")] = 10_000,
    as_json: Json = False,
    quick: Quick = False,
) -> None:
    """From send to receive over sockets at a steady rate, against a blocking loop."""
    from engine.bench.latency import run

    _take("latency", quick, as_json, lambda options: run(options, rate))


@bench.command()
def overhead(as_json: Json = False, quick: Quick = False) -> None:
    """What a scheduling step and a box call cost, by unit, with 10, 100 and 1,000 boxes."""
    from engine.bench.overhead import run

    _take("overhead", quick, as_json, run)


@bench.command()
def auto(
    seed: Annotated[int, typer.Option(min=0, help="Of networks and arrivals.")] = 7,
    only: Annotated[str, typer.Option(help="Workloads whose name has this in it: demo, P0.11, 'load 0.9'.")] = "",
    keep: Annotated[
        Path | None, typer.Option(help="A folder: what it has is not done again, what is done stays.")
    ] = None,
    jobs: Annotated[int, typer.Option(min=1, help="Processes that share the work.")] = 1,
    as_json: Json = False,
    quick: Quick = False,
) -> None:
    """The policy auto against every fixed one, simulated, on workloads of the papers and on the demo."""
    from engine.bench.auto import run
    from engine.bench.auto_pieces import Keep, Piece

    def tell(done: int, of: int, piece: Piece, seconds: float) -> None:
        typer.echo(f"{done:4} of {of}  {seconds:6.1f} s  {piece.case}, {piece.policy}", err=True)

    _take("auto", quick, as_json, lambda options: run(options, seed, Keep(keep, jobs, tell), only))


@bench.command()
def startup(as_json: Json = False, quick: Quick = False) -> None:
    """How long until run is ready, and until version and validate have answered, against Python's imports."""
    from engine.bench.startup import run

    _take("startup", quick, as_json, run)


@bench.command()
def window(
    spark: Annotated[bool, typer.Option("--spark", help="Beside Spark Structured Streaming too.")] = False,
    as_json: Json = False,
    quick: Quick = False,
) -> None:
    """A keyed window in trains, against polars and DuckDB over the whole batch; and what windows leave behind."""
    from engine.bench.window import run

    _take("window", quick, as_json, lambda options: run(options, spark=spark))


@bench.command()
def nexmark(
    query: Annotated[list[str] | None, typer.Option(help="q0, q1 ...; all of them if not said.")] = None,
    as_json: Json = False,
    quick: Quick = False,
) -> None:
    """The published NEXMark queries in trains, against DuckDB over the whole batch."""
    from engine.bench.nexmark_bench import NAMES, run

    if unknown := set(query or ()) - set(NAMES):
        raise typer.BadParameter(f"{', '.join(sorted(unknown))}: a query is one of {', '.join(NAMES)}")
    _take("nexmark", quick, as_json, lambda options: run(options, query or ()))


@bench.command()
def join(
    spark: Annotated[
        bool, typer.Option("--spark", help="Also Spark Structured Streaming; needs pyspark and Java.")
    ] = False,
    as_json: Json = False,
    quick: Quick = False,
) -> None:
    """Band and as-of joins in trains, against polars and DuckDB over the whole batch; and what idle keys cost."""
    from engine.bench.join import run

    _take("join", quick, as_json, lambda options: run(options, spark=spark))


@bench.command()
def durable(as_json: Json = False, quick: Quick = False) -> None:
    """What keeping its word costs: log, acknowledgements, spilling, recovery, checkpoints; against the disk itself."""
    from engine.bench.durable import run

    _take("durable", quick, as_json, run)


@bench.command()
def spark(
    case: Annotated[list[str] | None, typer.Option(help="push, sink, live or memory; all if not said.")] = None,
    as_json: Json = False,
    quick: Quick = False,
) -> None:
    """Files through Spark into the network and back, against plain Spark; and what a bulk job does to live outputs."""
    from engine.bench.spark import CASES, run

    if unknown := set(case or ()) - set(CASES):
        raise typer.BadParameter(f"{', '.join(sorted(unknown))}: a case is one of {', '.join(CASES)}")
    _take("spark", quick, as_json, lambda options: run(options, case or CASES))


@bench.command()
def explain(as_json: Json = False, quick: Quick = False) -> None:
    """What sampling journeys for `aurorad explain` costs: the daemon with it, against the same without."""
    from engine.bench.explain import run

    _take("explain", quick, as_json, run)


@bench.command(name="all")
def every(as_json: Json = False, quick: Quick = False) -> None:
    """All of them, one after another."""
    chain(None, as_json, quick)
    socket(None, as_json, quick)
    latency(10_000, as_json, quick)
    overhead(as_json, quick)
    startup(as_json, quick)
    durable(as_json, quick)
