"""``aurorad tap``: print the tuples that pass a stream, a box, an arc or an output of a running daemon."""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

from engine.cli.remote import DEFAULT_URL, CacertOption, Remote, RemoteError, TokenFileOption, UrlOption, fail


def register(app: typer.Typer) -> None:
    app.command()(tap)


def tap(
    place: Annotated[
        str | None,
        typer.Argument(
            help="A stream, a box, box.port, an output, or an arc as in 'trades->big'. Without it: list the places."
        ),
    ] = None,
    url: UrlOption = DEFAULT_URL,
    token_file: TokenFileOption = None,
    cacert: CacertOption = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=0, help="Stop after this many tuples; 0: never.")] = 0,
    every: Annotated[int, typer.Option(min=1, help="Print only each n-th tuple.")] = 1,
) -> None:
    """Print tuples as they pass a place in the network, one JSON object a line.

    Without a place it lists all places: streams, boxes, outputs, arcs.
    The network does not wait for this reader: if it is too slow, it misses
    tuples.

    \b
      aurorad tap
      aurorad tap trades --limit 5
      aurorad tap 'trades->big' --every 100
      aurorad tap alerts | jq .price

    Exit codes: 0 ended, 1 no daemon answers, 2 there is no such place.
    """
    try:
        if place is None:
            _list(Remote(url, token_file, cacert))
        else:
            _copy(Remote(url, token_file, cacert), place, limit, every)
    except RemoteError as error:
        fail(error)
    except KeyboardInterrupt:
        return


def _list(remote: Remote) -> None:
    network = remote.json("/api/v1/network", has="streams")
    boxes = [f"{b['name']}.{p['name']}" if p["name"] else b["name"] for b in network["boxes"] for p in b["ports"]]
    names = {kind: [place["name"] for place in network[kind]] for kind in ("streams", "outputs", "arcs")}
    for kind, places in (("streams", names["streams"]), ("boxes", boxes), ("outputs", names["outputs"])):
        typer.echo(f"{kind}: {', '.join(places) or 'none'}")
    typer.echo(f"arcs: {', '.join(repr(name) for name in names['arcs'])}")


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
