"""``aurorad rollback``: let a running daemon run the network of an earlier revision."""

from __future__ import annotations

from typing import Annotated

import typer

from engine.cli.apply import refuse, show_applied
from engine.cli.remote import DEFAULT_URL, CacertOption, Remote, RemoteError, TokenFileOption, UrlOption, fail


def register(app: typer.Typer) -> None:
    app.command()(rollback)


def rollback(
    number: Annotated[int, typer.Argument(metavar="N", help="A revision, as `aurorad revisions` lists them.")],
    plan: Annotated[bool, typer.Option("--plan", help="Only say what the change would do.")] = False,
    drop_state: Annotated[
        bool, typer.Option("--drop-state", help="Confirm that boxes which are rebuilt or removed lose their state.")
    ] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Do it also if other outputs fall below admission.min_utility.")
    ] = False,
    url: UrlOption = DEFAULT_URL,
    token_file: TokenFileOption = None,
    cacert: CacertOption = None,
) -> None:
    """Let the daemon run the network of an earlier revision: that is a new revision.

    State that is gone does not come back: a box that was removed begins anew.

    \b
      aurorad rollback 3 --plan
      aurorad rollback 3 --drop-state

    Exit codes: 0 done (or nothing to do), 1 refused: nothing has changed,
    78 the network file of that revision has errors now.
    """
    flags = {"dry_run": plan, "drop_state": drop_state, "force": force}
    try:
        remote = Remote(url, token_file, cacert)
        query = {key: str(flag).lower() for key, flag in flags.items()}
        status, answer = remote.change("POST", f"/api/v1/revisions/{number}/rollback", query, "")
        if status != 200:
            refuse(status, answer, f"revision {number}")
    except RemoteError as error:
        fail(error)
    show_applied(answer)
