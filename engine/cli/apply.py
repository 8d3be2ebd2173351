"""``aurorad apply``: let a running daemon run another network file."""

from __future__ import annotations

import json
import sys
from typing import Annotated, Any, NoReturn

import typer

from engine.cli.remote import DEFAULT_URL, CacertOption, Remote, RemoteError, TokenFileOption, UrlOption, fail

EX_CONFIG = 78
EXIT_REFUSED = 1


def register(app: typer.Typer) -> None:
    app.command()(apply)


def apply(
    file: Annotated[str, typer.Argument(metavar="FILE", help="A network file; - reads standard input.")],
    plan: Annotated[bool, typer.Option("--plan", help="Only say what the change would do.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    drop_state: Annotated[
        bool, typer.Option("--drop-state", help="Confirm that boxes which are rebuilt or removed lose their state.")
    ] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Apply it also if other outputs fall below admission.min_utility.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the answer of the daemon as JSON.")] = False,
    url: UrlOption = DEFAULT_URL,
    token_file: TokenFileOption = None,
    cacert: CacertOption = None,
) -> None:
    """Let a running daemon run another network file, without a restart.

    Prints what happens to each stream, box and output, and asks. Everything
    that has not changed goes on: boxes keep their state, senders and readers
    stay connected. A file with errors changes nothing. ${VAR} in the file
    comes from the environment of the daemon. While tuples come, the plan has
    a forecast: load, utility and p99 of each output now and afterwards.

    \b
      aurorad apply network.yaml --plan
      aurorad apply network.yaml --yes
      aurorad apply network.yaml --yes --drop-state

    Exit codes: 0 applied (or nothing to do), 1 refused: nothing has changed,
    78 a bad network file.
    """
    from catalog.config import read_text

    text = sys.stdin.read() + "\n" if file == "-" else read_text(file)[0]
    try:
        remote = Remote(url, token_file, cacert)
        if not (yes and as_json):
            answer = _put(remote, file, text, dry_run=True, drop_state=drop_state, force=force, as_json=as_json)
            _show(answer, as_json and plan)
            if plan or answer["same"]:
                return
            if not yes and not _confirm(answer, drop_state):
                raise typer.Exit(EXIT_REFUSED)
        answer = _put(remote, file, text, dry_run=False, drop_state=drop_state, force=force, as_json=as_json)
    except RemoteError as error:
        fail(error)
    if as_json:
        typer.echo(json.dumps(answer))
    else:
        dropped = sum(answer.get("dropped", {}).values())
        lost = f"; {dropped} tuples that waited on arcs which are gone were dropped" if dropped else ""
        typer.echo(f"applied in {1e3 * answer.get('seconds', 0.0):.0f} ms: version {answer['version']}{lost}")


def _put(remote: Remote, file: str, text: str, *, dry_run: bool, drop_state: bool, force: bool, as_json: bool) -> Any:
    flags = {"dry_run": dry_run, "drop_state": drop_state, "force": force}
    query = {key: str(flag).lower() for key, flag in flags.items()}
    status, answer = remote.change("PUT", "/api/v1/network", query, text)
    if status != 200 and as_json:
        typer.echo(json.dumps(answer))
        raise typer.Exit(EX_CONFIG if status == 422 else EXIT_REFUSED)
    if status != 200:
        refuse(status, answer, file)
    return answer


def refuse(status: int, answer: Any, file: str) -> NoReturn:
    """Say why the daemon has refused a change, and exit."""
    if status == 422:
        for problem in answer.get("problems", ()):
            hint = f" ({problem['hint']})" if problem["hint"] else ""
            typer.echo(f"{file}:{problem['line']}: {problem['place']}: {problem['message']}{hint}", err=True)
        raise typer.Exit(EX_CONFIG)
    raise RemoteError(answer.get("error", f"answered {status}"), answer.get("hint", ""))


def show_applied(answer: Any) -> None:
    """Print what a change has done, or what its plan is: without the parts that are kept."""
    from engine.run.change.report import change_lines, forecast_lines

    for line in [*change_lines(answer["parts"]), *forecast_lines(answer.get("forecast"))]:
        if not line.startswith("kept"):
            typer.echo(line)
    if answer["applied"]:
        typer.echo(f"applied in {1e3 * answer['seconds']:.0f} ms: version {answer['version']}")
    elif answer["same"]:
        typer.echo(f"nothing to do (version {answer['version']})")


def _show(answer: Any, as_json: bool) -> None:
    from engine.run.change.report import change_lines, forecast_lines

    if as_json:
        typer.echo(json.dumps(answer))
    elif answer["same"]:
        typer.echo(f"nothing to do: the daemon runs this network (version {answer['version']})")
    else:
        for line in (*change_lines(answer["parts"]), *forecast_lines(answer.get("forecast"))):
            typer.echo(line)


def _confirm(answer: Any, drop_state: bool) -> bool:
    if answer["drops_state"] and not drop_state:
        typer.echo("aurorad: the change drops state: confirm with --drop-state", err=True)
        return False
    return bool(sys.stdin.isatty()) and typer.confirm("apply?")
