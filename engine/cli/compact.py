"""``aurorad compact``: join the many small files of an output's Spark sink into a few large ones."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

COMPACT_SECONDS = 24 * 3600.0


def register(app: typer.Typer) -> None:
    app.command()(compact)


def compact(
    file: Annotated[Path, typer.Argument(help="The network file that has the sink.", exists=False)],
    output: Annotated[str, typer.Option(help="The output of the sink.")],
    below: Annotated[str, typer.Option(help="Join files that are smaller than this.")] = "32MiB",
) -> None:
    """Join the small files of a Spark sink. The daemon may run meanwhile.

    Readers that read the sink by its manifests see the same rows before,
    during and after.

    \b
      aurorad compact network.yaml --output archive
      aurorad compact network.yaml --output archive --below 128MiB

    Exit codes: 0 done, 1 Spark failed or the output has no such sink, 2
    wrong usage, 78 a bad network file.
    """
    from catalog.config.models import SparkSink
    from catalog.config.units import parse_size_bytes
    from engine.run.network_file import read_network
    from router.spark.daemon.host import SparkHost
    from router.spark.wire.errors import SparkRefusedError
    from router.spark.wire.pipe import fields_of

    network = read_network(file)
    entry = next((o for o in network.outputs if o.name == output), None)
    if entry is None or not isinstance(entry.sink, SparkSink) or entry.sink.path is None:
        having = [o.name for o in network.outputs if isinstance(o.sink, SparkSink) and o.sink.path is not None]
        raise SparkRefusedError(
            f"output {output} has no Spark sink with a path; outputs that have one: {', '.join(having) or 'none'}"
        )
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
        typer.echo(f"joined {done['before']} files into {done['after']}, {done['bytes']:,} bytes")
