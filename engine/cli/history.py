"""``aurorad history``: the history that a daemon keeps, and a made-up day of trades for ``configs/batch.yaml``."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from engine.cli.remote import DEFAULT_URL, CacertOption, Remote, RemoteError, TokenFileOption, UrlOption, fail

history = typer.Typer(
    no_args_is_help=True,
    help="""Show the history that a daemon keeps, or make up a day of trades.

    \b
      aurorad history list
      aurorad history make data/history

    Exit codes: 0 done, 1 no daemon answers, or the folder cannot be written.
    """,
)


def register(app: typer.Typer) -> None:
    app.add_typer(history, name="history")


@history.command("list")
def list_places(
    url: UrlOption = DEFAULT_URL,
    token_file: TokenFileOption = None,
    cacert: CacertOption = None,
    files: Annotated[bool, typer.Option("--files", help="List the files of each place too.")] = False,
) -> None:
    """List the connection points: what each keeps, from when to when, and where its files are.

    \b
      aurorad history list
      aurorad history list --files

    Exit codes: 0 listed, 1 no daemon answers.
    """
    try:
        answer = Remote(url, token_file, cacert).json("/api/v1/history", has="history")
    except RemoteError as error:
        fail(error)
    from engine.cli.views.kept import history_lines

    for line in history_lines(answer["history"], files):
        typer.echo(line)


@history.command("make")
def make_day(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The folder of the files; made if it does not exist.")],
    day: Annotated[
        datetime,
        typer.Option(formats=["%Y-%m-%d"], help="The day of the trades. \\[default: 2026-01-05]", show_default=False),
    ] = datetime(2026, 1, 5),
    rows: Annotated[int, typer.Option(min=1, max=10**9, help="Trades in all files together.")] = 1_000_000,
    files: Annotated[int, typer.Option(min=1, max=10_000, help="Number of files.")] = 4,
    seed: Annotated[int, typer.Option(min=0, help="Another seed makes another market.")] = 1,
) -> None:
    """Write a made-up day of trades as Parquet files.

    They are the input of configs/batch.yaml, a pipeline from files to files
    through Spark. Files and rows are in the order of their times. The same
    arguments make the same rows.

    \b
      aurorad history make data/history
      aurorad history make data/tuesday --day 2026-01-06
      AURORAD_IN=data/tuesday aurorad run configs/batch.yaml --once

    Exit codes: 0 written, 1 the folder cannot be written.
    """
    from engine.lab.demo.history import write_day

    try:
        write_day(folder, day.replace(tzinfo=UTC), rows, files, seed)
    except OSError as error:
        typer.echo(f"aurorad: {folder} cannot be written: {error.strerror or error}", err=True)
        raise typer.Exit(1) from None
    typer.echo(f"{rows:,} trades in {files} files in {folder}")
