"""``aurorad names``: list the names of readers and sources of a running daemon, and drop one."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import orjson
import typer

from catalog.printable import printable_answer
from engine.cli.remote import DEFAULT_URL, CacertOption, Remote, RemoteError, TokenFileOption, UrlOption, fail

DROP_SECONDS = 60.0
HELP = """List and drop the names of readers and sources of a running daemon.

\b
  aurorad names list
  aurorad names drop reader alerts billing

Exit codes: 0 done, 1 no daemon answers, 2 a wrong address or login.
"""


def register(app: typer.Typer) -> None:
    names = typer.Typer(name="names", help=HELP, no_args_is_help=True)
    names.command("list")(list_names)
    names.command("drop")(drop)
    app.add_typer(names)


def list_names(
    json: Annotated[bool, typer.Option("--json", help="Print the answer as JSON.")] = False,
    url: UrlOption = DEFAULT_URL,
    token_file: TokenFileOption = None,
    cacert: CacertOption = None,
) -> None:
    """List every name, with its owner, where it stands, and whether it is connected.

    A named reader keeps the log until it has acknowledged everything. A
    source keeps the numbers of its batches.

    \b
      aurorad names list
      aurorad names list --json | jq '.names[] | select(.unread > 0)'

    Exit codes: 0 listed, 1 no daemon answers, 2 a wrong address or login.
    """
    try:
        answer = Remote(url, token_file, cacert).json("/api/v1/names", has="names")
    except RemoteError as error:
        fail(error)
    if json:
        typer.echo(orjson.dumps(answer, option=orjson.OPT_INDENT_2).decode())
        return
    for entry in printable_answer(answer)["names"]:
        typer.echo(_line(entry))


def _line(entry: dict[str, Any]) -> str:
    if entry["kind"] == "reader":
        stands = f"has {entry['acknowledged']:,}, {entry['unread']:,} unread"
    else:
        stands = f"epoch {entry['epoch']}, batch {entry['sequence']:,}, last used {entry['used'] or 'long ago'}"
    more = [f"owner {entry['owner']}"] if entry["owner"] else []
    more += ["connected"] if entry["connected"] else []
    return f"{entry['kind']} {entry['name']} at {entry['at']}: {', '.join([stands, *more])}"


def drop(
    kind: Annotated[Literal["reader", "source"], typer.Argument(help="reader or source")],
    at: Annotated[str, typer.Argument(metavar="PLACE", help="The output of a reader, or the stream of a source.")],
    name: Annotated[str, typer.Argument(help="The name.")],
    url: UrlOption = DEFAULT_URL,
    token_file: TokenFileOption = None,
    cacert: CacertOption = None,
) -> None:
    """Drop a name that nobody needs any more, and nobody is connected under.

    A reader that comes back under it begins at the newest tuple. A source
    that comes back may send a batch a second time. The name belongs to
    whoever uses it next.

    \b
      aurorad names drop reader alerts billing
      aurorad names drop source trades till-7

    Exit codes: 0 dropped, 1 no daemon answers, 2 there is no such name, or
    it is connected.
    """
    try:
        query = {"kind": kind, "at": at, "name": name}
        Remote(url, token_file, cacert).do("DELETE", "/api/v1/names", query, DROP_SECONDS)
    except RemoteError as error:
        fail(error)
    typer.echo(f"dropped {kind} {name} at {at}")
