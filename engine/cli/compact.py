"""``aurorad compact``: the small files that an output's Spark sink has made over time, as few large ones."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

COMPACT_SECONDS = 24 * 3600.0


def register(app: typer.Typer) -> None:
    app.command()(compact)


def compact(
    file: Annotated[Path, typer.Argument(help="The network file with the sink.", exists=False)],
    output: Annotated[str, typer.Option(help="The output whose sink is meant.")],
    below: Annotated[str, typer.Option(help="Files smaller than this are joined.")] = "32MiB",
) -> None:
    """Join the small files of a Spark sink, whether or not the daemon runs.

    Readers that go by the sink's manifests notice nothing.

    \b
      aurorad compact network.yaml --output archive
    """
    from catalog.config.models import SparkSink
    from catalog.config.units import parse_size_bytes
    from engine.load import load_network
    from router.spark.errors import SparkRefusedError
    from router.spark.host import SparkHost
    from router.spark.jobs import fields_of

    network = load_network(file)
    entry = next((o for o in network.outputs if o.name == output), None)
    if entry is None or not isinstance(entry.sink, SparkSink) or entry.sink.path is None:
        having = [o.name for o in network.outputs if isinstance(o.sink, SparkSink) and o.sink.path is not None]
        raise SparkRefusedError(f"output {output} has no Spark sink with a path; {', '.join(having) or 'none'} has")
    try:
        small_bytes = parse_size_bytes(below)
    except ValueError as error:
        raise typer.BadParameter(f"--below: {error}") from None
    sink = entry.sink
    host = SparkHost(network.config.spark.master, network.config.spark.config)
    try:
        done = host.call(
            "compact",
            COMPACT_SECONDS,
            sink={"spark": sink.spark, "path": sink.path, "options": sink.options, "partition_by": sink.partition_by},
            fields=fields_of(entry.schema),
            small_bytes=small_bytes,
        )
    finally:
        host.stop()
    if not done["before"]:
        typer.echo(f"output {output} has no files to join")
    else:
        typer.echo(f"{done['before']} files are {done['after']} now, {done['bytes']:,} bytes")
