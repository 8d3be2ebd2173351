"""``aurorad savepoint``: have a running daemon keep its state of this moment."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

import typer

from engine.cli.remote import DEFAULT_URL, CacertOption, Remote, RemoteError, TokenFileOption, UrlOption, fail

SAVE_SECONDS = 600.0


def register(app: typer.Typer) -> None:
    app.command()(savepoint)


def savepoint(
    name: Annotated[str, typer.Argument(help="Its name. \\[default: the time]")] = "",
    url: UrlOption = DEFAULT_URL,
    token_file: TokenFileOption = None,
    cacert: CacertOption = None,
) -> None:
    """Have a running daemon save its state in a folder of its data_dir, and print the folder.

    A savepoint is a checkpoint and the log behind it, of one moment. The
    daemon goes on meanwhile. Complete files are hard links, so it takes
    little room at first. Remove the folder when you do not need it.

    \b
      aurorad savepoint before-upgrade

    Exit codes: 0 saved, 1 no daemon answers, 2 it cannot be saved.
    """
    try:
        typer.echo(ask_for_savepoint(Remote(url, token_file, cacert), name))
    except RemoteError as error:
        fail(error)


def ask_for_savepoint(remote: Remote, name: str = "") -> str:
    """Have a daemon make a savepoint, by default with the time as its name, and return the folder on its machine."""
    name = name or datetime.now(UTC).strftime("%Y-%m-%dT%H%M%S")
    return str(remote.do("POST", "/api/v1/savepoint", {"name": name}, SAVE_SECONDS)["savepoint"])
