"""``aurorad validate``: check network files and list every error."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Literal

import typer

if TYPE_CHECKING:
    from catalog.network import Network


def register(app: typer.Typer) -> None:
    app.command()(validate)


def validate(
    files: Annotated[list[str], typer.Argument(metavar="FILE", help="Network files; - reads standard input.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object a file, for tools.")] = False,
    strict: Annotated[bool, typer.Option("--strict", help="Treat warnings as errors.")] = False,
    on: Annotated[
        Literal["daemon", "spark"], typer.Option(help="spark: say box by box how it runs there, and what cannot.")
    ] = "daemon",
) -> None:
    """Check network files: list every error at once, each with its line and a hint.

    The check covers the YAML, keys and values, names, ports and loops, and
    every expression with its types against the schema that reaches its box.
    It starts nothing and opens no port.

    \b
      aurorad validate network.yaml
      aurorad validate configs/*.yaml && systemctl reload aurorad
      aurorad validate --json network.yaml | jq .problems
      aurorad validate --on spark network.yaml

    Exit codes: 0 all files are fine, 78 at least one is not.
    """
    fine = [_validate_one(name, as_json, strict, on) for name in files]
    if not all(fine):
        raise typer.Exit(78)


def _validate_one(name: str, as_json: bool, strict: bool, on: str) -> bool:
    from catalog.config import read_text
    from catalog.errors import NetworkError
    from catalog.printable import counted
    from engine.cli.views.problems import problem_json, write_problems
    from engine.run.network_file import read_network

    source = sys.stdin.read() + "\n" if name == "-" else name
    boxes: dict[str, str] = {}
    try:
        network = read_network(source)
        if on == "spark":
            network, boxes = _for_spark(source, network)
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
        how = {"on_spark": boxes} if on == "spark" else {}
        typer.echo(json.dumps({"file": name, "ok": fine, **sizes, "problems": warnings, **how}))
        return fine
    if network.warnings:
        text, shown = read_text(source)
        write_problems(network.warnings, shown, text)
    for box, text in boxes.items():
        typer.echo(f"{box}: {text}")
    words = ", ".join(counted(n, w) for n, w in zip(sizes.values(), ("stream", "box", "output"), strict=True))
    odd = f", {counted(len(network.warnings), 'warning')}" if network.warnings else ""
    typer.echo(f"{name}: {'fine' if fine else 'not fine'} ({words}{odd})")
    return fine


def _for_spark(source: str, network: Network) -> tuple[Network, dict[str, str]]:
    """Return the network with the warnings of Spark, and how each box runs there. Raises NetworkError."""
    from engine.on_spark.service import read_for_spark

    plan, warnings = read_for_spark(source)
    found = tuple(sorted((*network.warnings, *warnings), key=lambda p: (p.line, p.column)))
    return replace(network, warnings=found), {placed.node.name: placed.describe() for placed in plan.placed}
