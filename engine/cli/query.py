"""``aurorad query``: add queries to the network of a running daemon, pause and remove them."""

from __future__ import annotations

import sys
from typing import Annotated
from urllib.parse import quote

import typer

from engine.cli.apply import refuse, show_applied
from engine.cli.query_run import run
from engine.cli.remote import DEFAULT_URL, Remote, RemoteError, fail

Url = Annotated[str, typer.Option(envvar="AURORAD_URL", metavar="URL", help="The daemon's http.listen.")]
Plan = Annotated[bool, typer.Option("--plan", help="Only say what the change would do.")]

query = typer.Typer(
    no_args_is_help=True,
    help="""Add queries to the network of a running daemon, pause and remove them.

    A query is an output with the boxes that only it needs. The other queries
    go on: they keep their state and their connections.

    \b
      aurorad query add alerts.yaml
      aurorad query list
      aurorad query pause alerts
      aurorad query remove alerts
      aurorad query run '{filter: trades, where: "size > 1000"}' --from -1h

    Exit codes: 0 done, 1 refused: nothing has changed, 78 a bad file.
    """,
)


def register(app: typer.Typer) -> None:
    query.command("run")(run)
    app.add_typer(query, name="query")


@query.command()
def add(
    file: Annotated[str, typer.Argument(metavar="FILE", help="Boxes and outputs; - reads standard input.")],
    start: Annotated[
        str, typer.Option("--from", help="Begin in the history of its inputs: -1h, earliest or a time.")
    ] = "",
    plan: Plan = False,
    force: Annotated[
        bool, typer.Option("--force", help="Add it also if other outputs fall below admission.min_utility.")
    ] = False,
    url: Url = DEFAULT_URL,
) -> None:
    """Add the boxes and outputs of a file. They may read what is there already.

    \b
      aurorad query add alerts.yaml
      aurorad query add alerts.yaml --from -1h
      echo 'outputs: {tape: {from: trades}}' | aurorad query add -

    Exit codes: 0 added (or there already), 1 refused: nothing has changed,
    78 a bad file.
    """
    from catalog.config import read_text

    text = sys.stdin.read() + "\n" if file == "-" else read_text(file)[0]
    more = {key: word for key, word in (("from", start), ("force", "true" if force else "")) if word}
    _change(url, "POST", "/api/v1/queries", text, plan, file, **more)


@query.command()
def remove(name: Annotated[str, typer.Argument(help="An output.")], plan: Plan = False, url: Url = DEFAULT_URL) -> None:
    """Remove an output and the boxes that only it needs, with their state.

    \b
      aurorad query remove alerts

    Exit codes: 0 removed, 1 refused: nothing has changed.
    """
    _change(url, "DELETE", f"/api/v1/queries/{quote(name, safe='')}", "", plan, name)


@query.command()
def pause(name: Annotated[str, typer.Argument(help="An output.")], plan: Plan = False, url: Url = DEFAULT_URL) -> None:
    """Let an output rest, with the boxes that feed only paused outputs.

    They keep their state and their connections. Tuples that come meanwhile
    are not for them.

    \b
      aurorad query pause alerts

    Exit codes: 0 paused (or it was), 1 refused: nothing has changed.
    """
    _change(url, "POST", f"/api/v1/queries/{quote(name, safe='')}/pause", "", plan, name)


@query.command()
def resume(name: Annotated[str, typer.Argument(help="An output.")], plan: Plan = False, url: Url = DEFAULT_URL) -> None:
    """Let a paused output go on with the next tuple.

    \b
      aurorad query resume alerts

    Exit codes: 0 it runs (or did), 1 refused: nothing has changed.
    """
    _change(url, "POST", f"/api/v1/queries/{quote(name, safe='')}/resume", "", plan, name)


@query.command("list")
def list_queries(url: Url = DEFAULT_URL) -> None:
    """List the queries: each output with its own boxes, and those that it shares.

    \b
      aurorad query list

    Exit codes: 0 listed, 1 no daemon answers.
    """
    try:
        answer = Remote(url).json("/api/v1/queries", has="queries")
    except RemoteError as error:
        fail(error)
    for each in answer["queries"]:
        shared = f"; shares {', '.join(each['shared'])}" if each["shared"] else ""
        rests = "; paused" if each.get("paused") else ""
        typer.echo(f"{each['name']}: from {each['from']}, boxes {', '.join(each['boxes']) or 'none'}{shared}{rests}")


def _change(url: str, method: str, path: str, text: str, plan: bool, name: str, **more: str) -> None:
    try:
        status, answer = Remote(url).change(method, path, {"dry_run": str(plan).lower(), **more}, text)
        if status != 200:
            refuse(status, answer, name)
    except RemoteError as error:
        fail(error)
    show_applied(answer)
