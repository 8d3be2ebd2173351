"""``aurorad validate``: check network files and list every error."""

from __future__ import annotations

import json
import sys
from typing import Annotated

import typer


def register(app: typer.Typer) -> None:
    app.command()(validate)


def validate(
    files: Annotated[list[str], typer.Argument(metavar="FILE", help="Network files; - reads standard input.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object a file, for tools.")] = False,
    strict: Annotated[bool, typer.Option("--strict", help="Treat warnings as errors.")] = False,
) -> None:
    """Check network files: list every error at once, each with its line and a hint.

    The check covers the YAML, keys and values, names, ports and loops, and
    every expression with its types against the schema that reaches its box.
    It starts nothing and opens no port.

    \b
      aurorad validate network.yaml
      aurorad validate configs/*.yaml && systemctl reload aurorad
      aurorad validate --json network.yaml | jq .problems

    Exit codes: 0 all files are fine, 78 at least one is not.
    """
    fine = [_validate_one(name, as_json, strict) for name in files]
    if not all(fine):
        raise typer.Exit(78)


def _validate_one(name: str, as_json: bool, strict: bool) -> bool:
    from catalog.config import read_text
    from catalog.errors import NetworkError
    from catalog.printable import counted
    from engine.cli.views.problems import problem_json, write_problems
    from engine.run.network_file import read_network

    source = sys.stdin.read() + "\n" if name == "-" else name
    try:
        network = read_network(source)
    except NetworkError as error:
        if as_json:
            report = {"file": name, "ok": False, "problems": [problem_json(p) for p in error.problems]}
            typer.echo(json.dumps(report))
        else:
            write_problems(error.problems, error.source, error.text)
        return False
    sizes = {"streams": len(network.streams), "boxes": len(network.boxes), "outputs": len(network.outputs)}
    fine = not (strict and network.warnings)
    if as_json:
        warnings = [problem_json(p) for p in network.warnings]
        typer.echo(json.dumps({"file": name, "ok": fine, **sizes, "problems": warnings}))
        return fine
    if network.warnings:
        text, shown = read_text(source)
        write_problems(network.warnings, shown, text)
    words = ", ".join(counted(n, w) for n, w in zip(sizes.values(), ("stream", "box", "output"), strict=True))
    odd = f", {counted(len(network.warnings), 'warning')}" if network.warnings else ""
    typer.echo(f"{name}: {'fine' if fine else 'not fine'} ({words}{odd})")
    return fine
