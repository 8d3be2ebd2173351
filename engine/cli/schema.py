"""``aurorad schema``: what Spark finds in files or a table, as the text of a network file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

LOOK_SECONDS = 3_600.0


def register(app: typer.Typer) -> None:
    app.command()(schema)


def schema(
    spark: Annotated[str, typer.Option(help="A format of spark.read: parquet, csv, json, orc, jdbc, ...")],
    path: Annotated[list[str] | None, typer.Option(help="A file, a folder or a glob; repeatable.")] = None,
    option: Annotated[list[str] | None, typer.Option(help="An option of the format: header=true; repeatable.")] = None,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="The network file to write. \\[default: standard output]")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace the network file if it exists.")] = False,
    master: Annotated[str, typer.Option(help="The Spark master.")] = "local[*]",
) -> None:
    """Write a network file whose stream has the columns that Spark finds.

    Fields that had a NULL are nullable. A timestamp without NULLs is the event
    time. A column of a type that no field has gets a cast, with a comment.

    \b
      aurorad schema --spark parquet --path ./trades -o net.yaml
      aurorad schema --spark csv --path day.csv --option sep=';'

    Exit codes: 0 written, 1 Spark failed, 2 wrong usage.
    """
    from engine.cli.ingest import as_option
    from engine.lab.draft.from_spark import draft_from_spark
    from engine.run.network_file import read_network
    from router.spark.daemon.host import SparkHost

    if not path and not option:
        raise typer.BadParameter("name what to look at: --path, or --option url=... for jdbc", param_hint="--path")
    if output is not None and output.exists() and not force:
        raise typer.BadParameter(f"{output} exists: --force replaces it", param_hint="-o")
    paths = path[0] if path is not None and len(path) == 1 else path
    source = {"spark": spark, "path": paths, "options": dict(as_option(text) for text in option or ())}
    host = SparkHost(master, nice=0)
    try:
        typer.echo("Spark starts, which takes half a minute", err=True)
        text = draft_from_spark(source, host.call("infer", LOOK_SECONDS, **source))
    finally:
        host.stop()
    read_network(text)  # it must validate: a bug here is found here
    if output is None:
        typer.echo(text, nl=False)
        return
    try:
        output.write_text(text, encoding="utf-8")
    except OSError as error:
        raise typer.BadParameter(f"{output}: {error.strerror}", param_hint="-o") from None
    typer.echo(f"{output}: look it over, then aurorad run {output} --once", err=True)
