"""``aurorad explain``: say why tuples were late, or why they were dropped."""

from __future__ import annotations

from typing import Annotated

import orjson
import typer

from catalog.printable import printable_answer
from engine.cli.remote import (
    DEFAULT_URL,
    TIMEOUT_S,
    CacertOption,
    Remote,
    RemoteError,
    TokenFileOption,
    UrlOption,
    fail,
)

FOLLOW_SECONDS = 60


def register(app: typer.Typer) -> None:
    app.command()(explain)


def explain(
    output: Annotated[str, typer.Argument(help="An output of the running network.")] = "",
    where: Annotated[str, typer.Option(help="Only tuples for which this holds: \"symbol = 'AAPL'\".")] = "",
    limit: Annotated[
        int | None,
        typer.Option(
            "--limit",
            "-n",
            min=1,
            max=100,
            help="How many tuples (the slowest first), or how many plans. \\[default: 3, 20]",
        ),
    ] = None,
    follow: Annotated[
        bool,
        typer.Option("--follow", help="Wait up to a minute for the next tuple, instead of looking at past ones."),
    ] = False,
    drops: Annotated[
        bool, typer.Option("--drops", help="Show the shed plans that were in force, and what they dropped.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print the answer as JSON.")] = False,
    url: UrlOption = DEFAULT_URL,
    token_file: TokenFileOption = None,
    cacert: CacertOption = None,
) -> None:
    """Say why tuples of an output were late, or with --drops why tuples were dropped.

    For the slowest sampled tuples of the last minute: the wait and the
    service time at each box, the lengths of their trains, and the
    scheduler's decisions in favour of other boxes, with their priorities
    (the smallest goes first).

    The daemon samples only some tuples. With --follow it samples the next
    tuple that comes out and meets --where: start it, then send the tuple.

    With --drops: in words what is dropped now and why; the shed plans that
    were in force, the newest first; what each dropped on which arc, the
    work saved as a share of capacity, and the utility lost.

    \b
      aurorad explain tape
      aurorad explain alerts --where "symbol = 'HELLO'" --follow
      aurorad explain --drops

    Exit codes: 0 answered, 1 no daemon answers, 2 there is no such output,
    or the condition is wrong.
    """
    if not drops and not output:
        raise typer.BadParameter("name an output, or give --drops")
    try:
        if drops:
            answer = Remote(url, token_file, cacert).json("/api/v1/drops", {"limit": limit or 20}, has="plans")
        else:
            query: dict[str, object] = {"output": output, "where": where, "limit": limit or 3}
            if follow:
                query["follow"] = FOLLOW_SECONDS
                typer.echo(f"waiting up to {FOLLOW_SECONDS} s for the next tuple of {output}", err=True)
            answer = Remote(url, token_file, cacert).json(
                "/api/v1/explain", query, has="sampled", timeout_s=FOLLOW_SECONDS + TIMEOUT_S
            )
    except RemoteError as error:
        fail(error)
    except KeyboardInterrupt:
        return
    if json:
        typer.echo(orjson.dumps(answer))
        return
    answer = printable_answer(answer)
    if drops:
        from engine.cli.views.drops import show_drops

        show_drops(answer)
        return
    from engine.cli.views.journeys import show_journeys

    show_journeys(answer)
