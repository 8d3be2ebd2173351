"""``aurorad query``: add queries to the network of a running daemon, and remove them."""

from __future__ import annotations

import sys
from typing import Annotated, Any
from urllib.parse import quote

import typer

from engine.cli.apply import refuse
from engine.cli.query_run import run
from engine.cli.remote import DEFAULT_URL, Remote, RemoteError, fail

Url = Annotated[str, typer.Option(envvar="AURORAD_URL", metavar="URL", help="The daemon's http.listen.")]
Plan = Annotated[bool, typer.Option("--plan", help="Only say what the change would do.")]

query = typer.Typer(
    no_args_is_help=True,
    help="""Add queries to the network of a running daemon, and remove them.

    A query is an output with the boxes that only it needs. The other queries
    go on: they keep their state and their connections.

    \b
      aurorad query add alerts.yaml
      aurorad query list
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
        typer.echo(f"{each['name']}: from {each['from']}, boxes {', '.join(each['boxes']) or 'none'}{shared}")


def _change(url: str, method: str, path: str, text: str, plan: bool, name: str, **more: str) -> None:
    from engine.run.change.report import change_lines, forecast_lines

    try:
        status, answer = Remote(url).change(method, path, {"dry_run": str(plan).lower(), **more}, text)
        if status != 200:
            refuse(status, answer, name)
    except RemoteError as error:
        fail(error)
    _show(answer, [*change_lines(answer["parts"]), *forecast_lines(answer.get("forecast"))])


def _show(answer: Any, lines: list[str]) -> None:
    for line in lines:
        if not line.startswith("kept"):
            typer.echo(line)
    if answer["applied"]:
        typer.echo(f"applied in {1e3 * answer['seconds']:.0f} ms: version {answer['version']}")
    elif answer["same"]:
        typer.echo(f"nothing to do (version {answer['version']})")
