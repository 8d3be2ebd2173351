"""The benchmarks that print one table: the engine against a bare loop, in the same run."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Annotated

import typer

from engine.cli.bench.group import PLAIN_WIDTH, Json, Quick, bench

if TYPE_CHECKING:
    from engine.lab.bench.harness import Options
    from engine.lab.bench.report import Result


def take(name: str, quick: bool, as_json: bool, run: Callable[[Options], Iterable[Result]]) -> None:
    """Run a benchmark and print its results; a BenchError ends the command with exit code 1."""
    from rich.console import Console

    from engine.lab.bench.harness import BenchError, Options
    from engine.lab.bench.report import show

    try:
        show(run(Options(quick)), as_json=as_json, console=Console(width=None if sys.stdout.isatty() else PLAIN_WIDTH))
    except BenchError as error:
        typer.echo(f"aurorad: bench {name}: {error}", err=True)
        raise typer.Exit(1) from None


@bench.command()
def chain(
    queries: Annotated[
        list[int] | None, typer.Option(min=1, help="Only this number of queries; repeatable. \\[default: 1, 40, 200]")
    ] = None,
    as_json: Json = False,
    quick: Quick = False,
) -> None:
    """Measure chains of five filters in memory against a hand-written numpy loop, and the gain of a second worker.

    \b
      aurorad bench chain
      aurorad bench chain --queries 40 --quick

    Exit codes: 0 measured, 1 tuples are missing or a box failed.
    """
    from engine.lab.bench.chain import run

    take("chain", quick, as_json, lambda options: run(options, queries or ()))


@bench.command()
def rules(as_json: Json = False, quick: Quick = False) -> None:
    """Measure 1,000 filters on one stream, each for one value of a column, against a comparison for each by hand.

    \b
      aurorad bench rules --quick

    Exit codes: 0 measured, 1 tuples are missing.
    """
    from engine.lab.bench.rules import run

    take("rules", quick, as_json, run)


@bench.command()
def socket(
    format: Annotated[list[str] | None, typer.Option(help="ndjson, csv or arrow; repeatable. \\[default: all]")] = None,
    as_json: Json = False,
    quick: Quick = False,
) -> None:
    """Measure rows a second over TCP from client to client through five filters, against bare loops for the same rows.

    \b
      aurorad bench socket --format arrow
      aurorad bench socket --json > socket.jsonl

    Exit codes: 0 measured, 1 rows are missing or a process died, 2 wrong
    usage.
    """
    from engine.lab.bench.sockets.throughput import FORMATS, run

    if unknown := set(format or ()) - set(FORMATS):
        raise typer.BadParameter(f"{', '.join(unknown)}: a format is one of {', '.join(FORMATS)}")
    take("socket", quick, as_json, lambda options: run(options, format or FORMATS))


@bench.command()
def latency(
    rate: Annotated[int, typer.Option(min=1, max=1_000_000, help="Rows a second.")] = 10_000,
    as_json: Json = False,
    quick: Quick = False,
) -> None:
    """Measure latency from send to receive over sockets at a steady rate, against a blocking loop.

    \b
      aurorad bench latency
      aurorad bench latency --rate 1000

    Exit codes: 0 measured, 1 rows are missing or a process died.
    """
    from engine.lab.bench.sockets.latency import run

    take("latency", quick, as_json, lambda options: run(options, rate))


@bench.command()
def overhead(as_json: Json = False, quick: Quick = False) -> None:
    """Measure the cost of a scheduling step and of a box call, by unit and policy, with 10 to 10,000 boxes.

    \b
      aurorad bench overhead --quick

    Exit codes: 0 measured, 1 a box failed.
    """
    from engine.lab.bench.overhead import run

    take("overhead", quick, as_json, run)


@bench.command()
def spanner(as_json: Json = False, quick: Quick = False) -> None:
    """Compare top-k spanners with static superboxes, on the engine and in the simulator: mean latency and utility.

    \b
      aurorad bench spanner --quick

    Exit codes: 0 measured, 1 a box failed.
    """
    from engine.lab.bench.spanner import run

    take("spanner", quick, as_json, run)


@bench.command()
def vpipe(as_json: Json = False, quick: Quick = False) -> None:
    """Compare Chain with VPipe on the engine at an ordered union of 2 to 16 inputs: response, memory, blocked tuples.

    \b
      aurorad bench vpipe --quick

    Exit codes: 0 measured, 1 a box failed.
    """
    from engine.lab.bench.vpipe import run

    take("vpipe", quick, as_json, run)


@bench.command()
def startup(as_json: Json = False, quick: Quick = False) -> None:
    """Measure the start of run, version and validate, against Python importing the libraries that they need.

    \b
      aurorad bench startup

    Exit codes: 0 measured, 1 a command failed or was not ready in time.
    """
    from engine.lab.bench.startup import run

    take("startup", quick, as_json, run)


@bench.command()
def window(
    spark: Annotated[
        bool, typer.Option("--spark", help="Compare with Spark Structured Streaming too; needs pyspark and Java.")
    ] = False,
    as_json: Json = False,
    quick: Quick = False,
) -> None:
    """Measure a keyed window in trains against polars and DuckDB over the whole batch, and the state that windows keep.

    \b
      aurorad bench window --quick
      aurorad bench window --spark

    Exit codes: 0 measured, 1 the number of groups is wrong, or it took too
    long.
    """
    from engine.lab.bench.window import run

    take("window", quick, as_json, lambda options: run(options, spark=spark))


@bench.command()
def nexmark(
    query: Annotated[list[str] | None, typer.Option(help="q0, q1 ...; repeatable. \\[default: all]")] = None,
    source: Annotated[
        str | None,
        typer.Option("--from", help="csv, ndjson or arrow: from the bytes of a client, through the daemon, to bytes."),
    ] = None,
    as_json: Json = False,
    quick: Quick = False,
) -> None:
    """Measure the published NEXMark queries in trains against DuckDB over the whole batch.

    With --from the daemon decodes and encodes, and DuckDB works from file to
    file. Only q0, q1, q2 and q14 can be measured so.

    \b
      aurorad bench nexmark --query q5 --query q7
      aurorad bench nexmark --from csv --query q0

    Exit codes: 0 measured, 1 the number of rows is wrong, 2 there is no
    such query.
    """
    from engine.lab.bench.nexmark import bench as in_memory
    from engine.lab.bench.nexmark import from_bytes

    names = in_memory.NAMES if source is None else from_bytes.AT_ONCE
    if unknown := set(query or ()) - set(names):
        raise typer.BadParameter(f"{', '.join(sorted(unknown))}: a query is one of {', '.join(names)}")
    if source is None:
        take("nexmark", quick, as_json, lambda options: in_memory.run(options, query or ()))
    elif source in from_bytes.FORMATS:
        take("nexmark", quick, as_json, lambda options: from_bytes.run(options, source, query or ()))
    else:
        raise typer.BadParameter(f"{source}: a format is one of {', '.join(from_bytes.FORMATS)}")


@bench.command()
def join(
    spark: Annotated[
        bool, typer.Option("--spark", help="Compare with Spark Structured Streaming too; needs pyspark and Java.")
    ] = False,
    as_json: Json = False,
    quick: Quick = False,
) -> None:
    """Measure band and as-of joins in trains against polars and DuckDB over the whole batch, and the cost of idle keys.

    \b
      aurorad bench join --quick

    Exit codes: 0 measured, 1 the number of pairs is wrong, or it took too
    long.
    """
    from engine.lab.bench.join import run

    take("join", quick, as_json, lambda options: run(options, spark=spark))


@bench.command()
def durable(as_json: Json = False, quick: Quick = False) -> None:
    """Measure the cost of durability: log, acknowledgements, spilling, recovery, checkpoints; against the disk alone.

    \b
      aurorad bench durable --quick

    Exit codes: 0 measured, 1 tuples are missing or a checkpoint failed.
    """
    from engine.lab.bench.durable.bench import run

    take("durable", quick, as_json, run)


@bench.command()
def history(
    rows: Annotated[int | None, typer.Option(min=10_000, help="Tuples of history. \\[default: 10 million]")] = None,
    folder: Annotated[
        str | None, typer.Option(help="Where the files are made. \\[default: a temporary folder]")
    ] = None,
    as_json: Json = False,
    quick: Quick = False,
) -> None:
    """Measure queries over the history of a connection point, against polars and DuckDB on the same Parquet files.

    \b
      aurorad bench history --quick
      aurorad bench history --rows 100000000 --folder /data/tmp

    Exit codes: 0 measured, 1 the answers differ, or the disk is full.
    """
    from engine.lab.bench.history import run

    take("history", quick, as_json, lambda options: run(options, rows, folder))


@bench.command()
def state(
    case: Annotated[
        list[str] | None,
        typer.Option(help="aggregate, session, distinct, dedup, latest, join or top; repeatable. \\[default: all]"),
    ] = None,
    keys: Annotated[int | None, typer.Option(min=1_000, help="How many keys. \\[default: 10 million]")] = None,
    memory: Annotated[str | None, typer.Option(help="The memory budget. \\[default: 64MiB]")] = None,
    as_json: Json = False,
    quick: Quick = False,
) -> None:
    """Measure boxes with more keys than memory: resident size, answers, and speed against the same box in memory.

    \b
      aurorad bench state --case dedup --keys 1000000
      aurorad bench state --quick

    Every key comes twice, and every result is checked. All cases take some
    minutes with ten million keys, and 3 GB of memory for the box in memory.

    Exit codes: 0 measured, 1 an answer is wrong, 2 there is no such case.
    """
    from catalog.config.units import parse_size_bytes
    from engine.lab.bench.state.bench import run
    from engine.lab.bench.state.cases import CASES

    if unknown := set(case or ()) - set(CASES):
        raise typer.BadParameter(f"{', '.join(sorted(unknown))}: a case is one of {', '.join(CASES)}")
    try:
        budget = None if memory is None else parse_size_bytes(memory)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    chosen = case or list(CASES)
    take("state", quick, as_json, lambda o: run(o, keys, chosen, budget, lambda line: typer.echo(line, err=True)))


@bench.command()
def spark(
    case: Annotated[
        list[str] | None, typer.Option(help="push, sink, live or memory; repeatable. \\[default: all]")
    ] = None,
    as_json: Json = False,
    quick: Quick = False,
) -> None:
    """Measure files through Spark into the network and back, against plain Spark, and live outputs beside a bulk job.

    \b
      aurorad bench spark --case push --quick

    Exit codes: 0 measured, 1 rows are missing or Spark failed, 2 there is
    no such case.
    """
    from engine.lab.bench.spark.bench import CASES, run

    if unknown := set(case or ()) - set(CASES):
        raise typer.BadParameter(f"{', '.join(sorted(unknown))}: a case is one of {', '.join(CASES)}")
    take("spark", quick, as_json, lambda options: run(options, case or CASES))


@bench.command()
def explain(as_json: Json = False, quick: Quick = False) -> None:
    """Measure the cost of sampling tuples for `aurorad explain`: the daemon with it, against the same without.

    \b
      aurorad bench explain

    Exit codes: 0 measured, 1 tuples are missing.
    """
    from engine.lab.bench.explain import run

    take("explain", quick, as_json, run)


@bench.command(name="all")
def every(as_json: Json = False, quick: Quick = False) -> None:
    """Run chain, socket, latency, overhead, startup and durable, one after another.

    \b
      aurorad bench all --quick

    Exit codes: 0 measured, 1 a benchmark failed.
    """
    chain(None, as_json, quick)
    socket(None, as_json, quick)
    latency(10_000, as_json, quick)
    overhead(as_json, quick)
    startup(as_json, quick)
    durable(as_json, quick)
