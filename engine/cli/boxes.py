"""``aurorad boxes``: which boxes there are, and how each is written."""

from __future__ import annotations

import inspect
import sys
from typing import Annotated

import typer


def register(app: typer.Typer) -> None:
    app.command()(boxes)


def boxes(
    kind: Annotated[str | None, typer.Argument(help="One kind of box: everything about it.")] = None,
) -> None:
    """List the kinds of boxes; with a kind, how it is written and what it does.

    \b
      aurorad boxes
      aurorad boxes aggregate
    """
    from engine.boxes import box_kinds

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
    fields = kinds[kind].parameters_model.model_fields
    if fields:
        names = [f"{field.alias or name}{'' if field.is_required() else '?'}" for name, field in fields.items()]
        typer.echo(f"\nParameters (? = may be left out): {', '.join(names)}")
