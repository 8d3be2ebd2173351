"""The command ``aurorad``. Every module of this folder that has ``register(app)`` adds its commands.

Commands start fast. A module here imports only what its options need, and what it works with inside the command, so
that ``aurorad version`` does not pay for Arrow, polars or Spark. Of the modules only the one is loaded that the first
word names (fifteen of them take 45 ms). And the collector of cycles looks rarely: while a command loads what it needs,
it would go through some hundred thousand new objects again and again, 15 % of the start of ``run``, and find nothing.

Exit codes, as the daemons that people know have them: 0 fine, 1 failed, 2 wrong usage, 78 a bad network file (EX_CONFIG
of sysexits.h, which systemd shows as such), 130 interrupted.
"""

from __future__ import annotations

import gc
import importlib
import pkgutil
import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from catalog.errors import AuroraError, NetworkError

EX_CONFIG = 78
RARELY = 100_000  # objects made between two looks of the collector of cycles; Python's own is 700

_ORDER = ("run", "validate", "graph", "top", "tap", "demo", "bench", "version")  # as people meet them; the rest follows


def _show_version(wanted: bool) -> None:
    if wanted:
        from engine.cli.version import own_version

        typer.echo(f"aurorad {own_version()}")
        raise typer.Exit


def _aurorad(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """A stream engine daemon: networks of boxes and arrows that keep every output as useful as the machine allows.

    [bold]A first look[/bold]

    \b
      aurorad validate network.yaml     every error at once, each with its line
      aurorad graph network.yaml        the network as a drawing
      aurorad run network.yaml          until SIGTERM, which drains it

    A network file is YAML; configs/default.yaml explains every key.
    """


def make_app(words: Sequence[str] = ()) -> typer.Typer:
    """The command line for these words: with the command that the first one names, or with all of them."""
    app = typer.Typer(
        name="aurorad",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode="rich",
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_aurorad)
    names = {info.name for info in pkgutil.iter_modules(__path__)}
    if words and words[0] in names:
        names = {words[0]}
    for name in sorted(names, key=lambda name: (_ORDER.index(name) if name in _ORDER else len(_ORDER), name)):
        module = importlib.import_module(f"{__name__}.{name}")
        if hasattr(module, "register"):
            module.register(app)
    return app


def main() -> None:
    """The console script. An error of the world is told without a traceback; a bug keeps its own."""
    gc.set_threshold(RARELY)
    try:
        make_app(sys.argv[1:])(prog_name="aurorad")
    except NetworkError as error:
        from engine.cli.report import write_problems

        write_problems(error.problems, error.source, error.text)
        sys.exit(EX_CONFIG)
    except AuroraError as error:
        typer.echo(f"aurorad: {error}", err=True)
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)
