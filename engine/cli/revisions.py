"""``aurorad revisions``: the networks that a running daemon has run."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer

from engine.cli.remote import DEFAULT_URL, CacertOption, Remote, RemoteError, TokenFileOption, UrlOption, fail

PARTS_SHOWN = 4


def register(app: typer.Typer) -> None:
    app.command()(revisions)


def revisions(
    number: Annotated[int | None, typer.Argument(metavar="N", help="Print the network file of this one.")] = None,
    limit: Annotated[int, typer.Option(min=1, help="List at most so many, the newest.")] = 20,
    as_json: Annotated[bool, typer.Option("--json", help="Print the answer of the daemon as JSON.")] = False,
    url: UrlOption = DEFAULT_URL,
    token_file: TokenFileOption = None,
    cacert: CacertOption = None,
) -> None:
    """List the networks that the daemon has run, the newest first: it runs now.

    Each has a number, the time and the door by which it came, the user who
    applied it (where there are users), and what it changed. With a number
    the network file of that revision is printed.

    \b
      aurorad revisions
      aurorad revisions 3 > before.yaml

    Exit codes: 0 listed, 1 no daemon answers, 2 there is no such revision.
    """
    try:
        remote = Remote(url, token_file, cacert)
        if number is not None:
            typer.echo(remote.json(f"/api/v1/revisions/{number}", has="text")["text"], nl=False)
            return
        answer = remote.json("/api/v1/revisions", has="revisions")
    except RemoteError as error:
        fail(error)
    if as_json:
        typer.echo(json.dumps(answer))
        return
    for n, revision in enumerate(answer["revisions"][:limit]):
        typer.echo(_line(revision, is_running=not n))


def _line(revision: Any, *, is_running: bool) -> str:
    parts = [f"{part['fate']} {part['name']}" for part in revision["parts"]]
    more = f" and {len(parts) - PARTS_SHOWN} more" if len(parts) > PARTS_SHOWN else ""
    what = ", ".join(parts[:PARTS_SHOWN]) + more or "the whole network"
    who = f" by {revision['author']}" if revision["author"] else ""
    mark = "  (runs now)" if is_running else ""
    return f"{revision['number']:>5}  {revision['time'][:19]}  {revision['door']}{who}: {what}{mark}"
