"""``aurorad tap``: print the tuples that pass a stream, a box, an arc or an output of a running daemon."""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

from engine.cli.remote import DEFAULT_URL, Remote, RemoteError, fail


def register(app: typer.Typer) -> None:
    app.command()(tap)


def tap(
    place: Annotated[str, typer.Argument(help="A stream, a box, box.port, an output, or an arc as in 'trades->big'.")],
    url: Annotated[str, typer.Option(envvar="AURORAD_URL", help="The daemon's http.listen.")] = DEFAULT_URL,
    limit: Annotated[int, typer.Option("--limit", "-n", min=0, help="Stop after this many tuples; 0: never.")] = 0,
    every: Annotated[int, typer.Option(min=1, help="Print only each n-th tuple.")] = 1,
) -> None:
    """Print tuples as they pass a place in the network, one JSON object a line.

    The network does not wait for this reader: if it is too slow, it misses
    tuples.

    \b
      aurorad tap trades --limit 5
      aurorad tap 'trades->big' --every 100
      aurorad tap alerts | jq .price

    Exit codes: 0 ended, 1 no daemon answers, 2 there is no such place.
    """
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
                # The reader of our pipe has ended (| head). Python would report it once more when it closes stdout.
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
                return
