"""``aurorad new``: write a first network file from some rows."""

from __future__ import annotations

import sys
from pathlib import Path
from time import time_ns
from typing import Annotated, Literal

import typer

SAMPLE_BYTES = 1024**2


def register(app: typer.Typer) -> None:
    app.command()(new)


def new(
    file: Annotated[str, typer.Argument(metavar="[FILE]", help="Rows of JSON or CSV; - is standard input.")] = "-",
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="The network file to write. \\[default: standard output]")
    ] = None,
    format: Annotated[
        Literal["ndjson", "csv"] | None, typer.Option(help="The format of the rows. \\[default: by what is in them]")
    ] = None,
    name: Annotated[str | None, typer.Option(help="Name of the stream. \\[default: that of the file]")] = None,
    listen: Annotated[
        str | None, typer.Option(metavar="ADDRESS", help="Clients bring the rows to this address: 127.0.0.1:9401.")
    ] = None,
    serve: Annotated[
        str, typer.Option(metavar="ADDRESS", help="With --listen: clients read the results at this address.")
    ] = "127.0.0.1:9411",
    force: Annotated[bool, typer.Option("--force", help="Replace the network file if it exists.")] = False,
) -> None:
    """Write a first network file from some rows: schema, time, one window, one output.

    Ten rows are enough. The file is commented, validates, and runs as it is
    on the same rows. With --listen it is for a daemon that runs on: deploy
    it with `aurorad apply`.

    \b
      aurorad new trades.ndjson -o net.yaml
      head -20 readings.csv | aurorad new > net.yaml
      aurorad new trades.ndjson --listen 127.0.0.1:9401 -o net.yaml

    Exit codes: 0 written, 1 the rows cannot be used, 2 wrong usage.
    """
    from engine.lab.draft.sample import take_sample
    from engine.lab.draft.write import DraftPorts, write_draft
    from engine.run.network_file import read_network

    if output is not None and output.exists() and not force:
        raise typer.BadParameter(f"{output} exists: --force replaces it", param_hint="-o")
    rows = None if file == "-" else file
    sample = take_sample(_beginning(rows), format)
    draft = write_draft(sample, rows, time_ns(), name, None if listen is None else DraftPorts(listen, serve))
    read_network(draft.text)  # it must validate: a bug here is found here
    if output is None:
        typer.echo(draft.text, nl=False)
        return
    try:
        output.write_text(draft.text, encoding="utf-8")
    except OSError as error:
        raise typer.BadParameter(f"{output}: {error.strerror}", param_hint="-o") from None
    typer.echo(f"{output}: {draft.summary}", err=True)


def _beginning(name: str | None) -> bytes:
    """Read the first rows. A line that the limit cuts is left out."""
    from engine.lab.draft.sample import SampleError

    try:
        if name is None:
            if sys.stdin is None or sys.stdin.isatty():
                raise typer.BadParameter("name a file, or pipe some rows in", param_hint="FILE")
            data = sys.stdin.buffer.read(SAMPLE_BYTES)
        else:
            with Path(name).open("rb") as rows:
                data = rows.read(SAMPLE_BYTES)
    except OSError as error:
        raise SampleError(f"{name}: {error.strerror or error}") from None
    if len(data) == SAMPLE_BYTES and b"\n" in data:
        data = data[: data.rindex(b"\n") + 1]
    return data
