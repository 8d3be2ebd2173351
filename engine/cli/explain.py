"""``aurorad explain``: why tuples were late, or dropped."""

from __future__ import annotations

from typing import Annotated

import orjson
import typer

from engine.cli.remote import DEFAULT_URL, Remote, RemoteError, fail


def register(app: typer.Typer) -> None:
    app.command(help="Say why tuples of an output were late, or with --drops why tuples were dropped.")(explain)


def explain(
    output: Annotated[str, typer.Argument(help="an output of the running network")] = "",
    where: Annotated[str, typer.Option(help="only tuples for which this holds, as in \"symbol = 'AAPL'\"")] = "",
    limit: Annotated[
        int | None, typer.Option("--limit", "-n", min=1, max=100, help="so many: the slowest first, 3; plans, 20")
    ] = None,
    drops: Annotated[
        bool, typer.Option("--drops", help="which shed plans were in force, and what they dropped")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="the answer as JSON")] = False,
    url: Annotated[str, typer.Option(envvar="AURORAD_URL", help="the daemon's http.listen")] = DEFAULT_URL,
) -> None:
    """The slowest sampled tuples of the last minute: wait and service by box, how long the trains were that they
    travelled in, which decisions of the scheduler passed them over and at which priority (the smallest goes first).

    With --drops: the shed plans that were in force, the newest first, with what each dropped where, and the utility
    given up for a millisecond of work saved that made it the cheapest.
    """
    if not drops and not output:
        raise typer.BadParameter("name an output, or ask for --drops")
    try:
        if drops:
            answer = Remote(url).json("/api/v1/drops", {"limit": limit or 20}, has="plans")
        else:
            query = {"output": output, "where": where, "limit": limit or 3}
            answer = Remote(url).json("/api/v1/explain", query, has="sampled")
    except RemoteError as error:
        fail(error)
    if json:
        typer.echo(orjson.dumps(answer))
        return
    if drops:
        from engine.cli.drops import show_drops

        show_drops(answer)
        return
    from engine.cli.journeys import show_journeys

    show_journeys(answer)
