"""``aurorad tap``: watch the tuples that pass a stream, a box, an arc or an output of a running daemon."""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

from engine.cli.remote import DEFAULT_URL, Remote, RemoteError, fail


def register(app: typer.Typer) -> None:
    app.command(help="Watch tuples as they pass a stream, a box, an arc (quote its ->) or an output.")(tap)


def tap(
    place: Annotated[str, typer.Argument(help="a stream, a box, box.port, an output, or an arc as in 'trades->big'")],
    url: Annotated[str, typer.Option(envvar="AURORAD_URL", help="the daemon's http.listen")] = DEFAULT_URL,
    limit: Annotated[int, typer.Option("--limit", "-n", min=0, help="stop after so many tuples; 0: never")] = 0,
    every: Annotated[int, typer.Option(min=1, help="only each n-th tuple")] = 1,
) -> None:
    try:
        _copy(Remote(url), place, limit, every)
    except RemoteError as error:
        fail(error)
    except KeyboardInterrupt:
        return


def _copy(remote: Remote, place: str, limit: int, every: int) -> None:
    query = {"name": place, "limit": limit, "every": every}
    with remote.get("/api/v1/tap", query, forever=True) as response:
        while chunk := response.read1(65536):
            try:
                sys.stdout.buffer.write(chunk)
                sys.stdout.buffer.flush()
            except BrokenPipeError:
                # Whoever read us has enough (| head). Python would complain once more when it closes stdout.
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
                return
