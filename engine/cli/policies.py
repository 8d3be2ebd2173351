"""``aurorad policies``: list the scheduling policies, and explain one."""

from __future__ import annotations

import inspect
import sys
from typing import Annotated

import typer

from engine.cli.views.plain_text import plain_text


def register(app: typer.Typer) -> None:
    app.command()(policies)


def policies(
    name: Annotated[str | None, typer.Argument(help="A policy: print all about it.")] = None,
) -> None:
    """List the scheduling policies and when to use each; with a name, explain its rule.

    The network file sets the policy: scheduler: {policy: qos}. aurorad
    simulate compares policies on a network before it is deployed.

    \b
      aurorad policies
      aurorad policies bsd

    Exit codes: 0 printed, 2 there is no such policy.
    """
    from scheduler.choice import AUTO, Choice
    from scheduler.papers import source_text
    from scheduler.policies import policy_infos

    known = policy_infos()
    if name == AUTO or name is None:
        if name is not None:
            typer.echo(plain_text(inspect.getdoc(sys.modules[Choice.__module__]) or ""))
            return
        width = max(map(len, known))
        typer.echo(
            f"{AUTO:{width}}  chooses one of the others by QoS graphs and statistics, and again while the network runs"
        )
        for info in known.values():
            needs = f" (needs {' and '.join(info.needs)})" if info.needs else ""
            typer.echo(f"{info.name:{width}}  {info.when}{needs}")
        return
    if name not in known:
        from catalog.config.words import did_you_mean

        hint = did_you_mean(name, [AUTO, *known])
        typer.echo(f"aurorad: there is no policy {name}{f'; {hint}' if hint else ''}", err=True)
        raise typer.Exit(2)
    info = known[name]
    typer.echo(plain_text(inspect.getdoc(sys.modules[info.decide.__module__]) or ""))
    typer.echo(f"\nUse it for: {info.when}.")
    if info.needs:
        typer.echo(f"It needs {' and '.join(info.needs)} in the network. Without them, {info.instead} is the nearest.")
    typer.echo(f"Source: {source_text(info)} (docs/papers.md).")
