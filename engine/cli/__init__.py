"""The command ``aurorad``. Every module of this folder that has ``register(app)`` adds its commands.

Commands start fast: a module here imports only what its options need, and what it works with inside the command, so
that ``aurorad version`` does not pay for Arrow, polars or Spark.

Exit codes, as the daemons that people know have them: 0 fine, 1 failed, 2 wrong usage, 78 a bad network file (EX_CONFIG
of sysexits.h, which systemd shows as such), 130 interrupted.
"""

from __future__ import annotations

import importlib
import pkgutil
import sys
from typing import Annotated

import typer

from catalog.errors import AuroraError, NetworkError

EX_CONFIG = 78

_ORDER = ("run", "validate", "graph", "top", "tap", "demo", "bench", "version")  # as people meet them; the rest follows

app = typer.Typer(
    name="aurorad",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _show_version(wanted: bool) -> None:
    if wanted:
        from engine.cli.version import own_version

        typer.echo(f"aurorad {own_version()}")
        raise typer.Exit


@app.callback()
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


def _register_all() -> None:
    modules = sorted(
        (info.name for info in pkgutil.iter_modules(__path__)),
        key=lambda name: (_ORDER.index(name) if name in _ORDER else len(_ORDER), name),
    )
    for name in modules:
        module = importlib.import_module(f"{__name__}.{name}")
        if hasattr(module, "register"):
            module.register(app)


_register_all()


def main() -> None:
    """The console script. An error of the world is told without a traceback; a bug keeps its own."""
    try:
        app(prog_name="aurorad")
    except NetworkError as error:
        from engine.cli.report import write_problems

        write_problems(error.problems, error.source, error.text)
        sys.exit(EX_CONFIG)
    except AuroraError as error:
        typer.echo(f"aurorad: {error}", err=True)
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)
