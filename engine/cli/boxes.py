"""``aurorad boxes``: list the kinds of boxes, and explain one."""

from __future__ import annotations

import inspect
import sys
from typing import Annotated

import typer

from engine.cli.views.plain_text import plain_text


def register(app: typer.Typer) -> None:
    app.command()(boxes)


def boxes(
    kind: Annotated[str | None, typer.Argument(help="A kind of box: print all about it.")] = None,
) -> None:
    """List the kinds of boxes; with a kind, explain how to write it and what it does.

    \b
      aurorad boxes
      aurorad boxes aggregate

    Exit codes: 0 printed, 2 there is no such box.
    """
    from engine.operators.boxes import box_kinds
    from engine.operators.parameter_docs import parameters

    kinds = box_kinds()
    if kind is None:
        width = max(map(len, kinds))
        for name, box in kinds.items():
            typer.echo(f"{name:{width}}  {box.summary}")
        return
    if kind not in kinds:
        from catalog.config.words import did_you_mean

        hint = did_you_mean(kind, list(kinds))
        typer.echo(f"aurorad: there is no box {kind}{f'; {hint}' if hint else ''}", err=True)
        raise typer.Exit(2)
    module = sys.modules[kinds[kind].__module__]
    typer.echo(plain_text(inspect.getdoc(module) or ""))
    rows = [[cell.replace("`", "") for cell in row] for row in parameters(kinds[kind].parameters_model)]
    if rows:
        typer.echo("\nParameters (key, type, default, meaning):\n")
    widths = [max(len(row[i]) for row in rows) for i in range(3)] if rows else []
    for row in rows:
        typer.echo("    " + "  ".join([*map(str.ljust, row[:3], widths), row[3]]).rstrip())
    typer.echo(f"\ndocs/boxes.md has the same with an example of tuples in and out, under {kind}.")
