"""``aurorad boxes``: list the kinds of boxes, and explain one."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator
from typing import Annotated

import typer
from pydantic import BaseModel


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
    typer.echo(inspect.getdoc(module) or "")
    rows = list(_parameters(kinds[kind].parameters_model))
    if rows:
        typer.echo("\nParameters:\n")
    width = max([len(name) for name, _, _ in rows], default=0)
    for name, required, meaning in rows:
        typer.echo(f"    {name:{width}}  {'(required) ' if required else ''}{meaning}")


def _parameters(model: type[BaseModel], prefix: str = "") -> Iterator[tuple[str, bool, str]]:
    """Yield name, whether it is required, and meaning; the keys of a parameter that has keys follow it."""
    for name, field in model.model_fields.items():
        key = f"{prefix}{field.alias or name}"
        yield key, field.is_required(), field.description or ""
        if inspect.isclass(field.annotation) and issubclass(field.annotation, BaseModel):
            yield from _parameters(field.annotation, f"{key}.")
