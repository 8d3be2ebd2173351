"""``aurorad functions``: the SQL functions and aggregates, each with its types and an example."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from engine.operators.expressions.function_docs import FunctionDoc


def register(app: typer.Typer) -> None:
    app.command()(functions)


def functions(
    name: Annotated[str | None, typer.Argument(help="One function: its types, what it does, and an example.")] = None,
) -> None:
    """List the SQL functions and aggregates of expressions; with a name, explain that one.

    \b
      aurorad functions
      aurorad functions date_trunc

    Exit codes: 0 printed, 2 there is no such function.
    """
    from engine.operators.expressions.function_docs import catalogue, find

    if name is None:
        _list(catalogue())
        return
    found = find(name)
    if not found:
        from catalog.config.words import did_you_mean

        hint = did_you_mean(name.lower(), [known for doc in catalogue() for known in (doc.name, *doc.aliases)])
        typer.echo(f"aurorad: there is no function {name}{f'; {hint}' if hint else ''}", err=True)
        raise typer.Exit(2)
    typer.echo("\n\n".join(map(_explained, found)))


def _list(docs: list[FunctionDoc]) -> None:
    width = max(len(doc.name) for doc in docs)
    family = ""
    for doc in docs:
        if doc.family != family:
            family = doc.family
            typer.echo(f"{family}:")
        typer.echo(f"  {doc.name:{width}}  {doc.description}")


def _explained(doc: FunctionDoc) -> str:
    values = f"  where x is {', '.join(doc.values)}" if doc.values else ""
    lines = [doc.signature, f"  {doc.description}", f"  {doc.example} = {doc.result}{values}"]
    if doc.aliases:
        lines.insert(1, f"  also {', '.join(doc.aliases)}")
    return "\n".join(lines)
