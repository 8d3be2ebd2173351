"""The command ``aurorad``. One file here is one command, or one group of them (``bench``).

- Write a network: ``new`` (from some rows), ``validate``, ``test`` (its cases), ``graph``.
- Run a network: ``run`` (the daemon), ``simulate`` (predict a load), ``demo``.
- Change a running daemon: ``apply``, ``query`` (add and remove one), ``revisions``, ``rollback`` (back to one).
- Look at a running daemon: ``top``, ``tap`` (its tuples), ``explain`` (late and dropped tuples).
- Keep a daemon's state: ``savepoint``, ``backup``, ``restore``, ``names`` (of readers and sources).
- Files and Spark: ``schema`` (a network file for them), ``ingest``, ``compact``, ``history`` (sample files).
- Look things up: ``boxes``, ``functions``, ``policies``, ``version``. Measure: ``bench``.

``views/`` has the drawings of what the commands print, ``remote.py`` the HTTP client that asks a running daemon.

To add a command, write ``NAME.py`` with a function NAME and ``register(app)``; nothing else is edited. The function's
docstring is its ``--help``: what the command does, examples that run, exit codes.

Commands start fast. A module imports at its top only what its options need, and the rest inside the command, so that
``aurorad version`` does not load Arrow, polars or Spark. ``make_app`` imports only the module that the first word names
(all of them take 45 ms). The garbage collector runs rarely: while a command imports its packages, it would scan some
hundred thousand new objects again and again and free none, which is 15 % of the start of ``run``.

Exit codes, as of other daemons: 0 success, 1 failure, 2 wrong usage, 70 a failure of the engine itself (EX_SOFTWARE of
sysexits.h), 78 a bad network file (EX_CONFIG), 130 interrupted by Ctrl-C. systemd shows 70 and 78 by name.
"""

from __future__ import annotations

import gc
import importlib
import pkgutil
import signal
import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from catalog.errors import AuroraError, NetworkError

EX_CONFIG = 78
LEAVE_NOTHING = {"new", "run", "validate", "test", "graph", "boxes", "functions", "policies", "version"}
"""Commands that Ctrl-C may end at any moment. ``run`` takes its signals over when it has something to drain."""
GC_THRESHOLD = 100_000  # new objects between two garbage collections; Python's own is 700

_ORDER = (  # of --help: as people meet them; the rest follows
    "new", "run", "validate", "test", "graph", "simulate", "demo", "apply", "query", "revisions",
    "rollback", "top", "tap", "explain", "boxes",
    "functions", "policies", "names", "savepoint", "backup", "restore", "schema", "ingest", "compact", "history",
    "bench", "version",
)  # fmt: skip


def _show_version(wanted: bool) -> None:
    if wanted:
        from engine.daemon.process.version import own_version

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
      aurorad new trades.ndjson         write a first network file from some rows
      aurorad validate network.yaml     list every error, each with its line
      aurorad graph network.yaml        draw the network
      aurorad run network.yaml          run it until SIGTERM, which drains it

    A network file is YAML; configs/default.yaml explains every key.

    Exit codes: 0 success, 1 failure, 2 wrong usage, 78 a bad network file,
    130 interrupted.
    """


def make_app(words: Sequence[str] = ()) -> typer.Typer:
    """Build the command line: with the one command that the first word names, or else with all of them."""
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
    """Run the console script. An expected error prints its message alone; a bug keeps its traceback."""
    gc.set_threshold(GC_THRESHOLD)
    if callable(signal.getsignal(signal.SIGINT)) and not LEAVE_NOTHING & set(sys.argv[1:2]):
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if sys.stdout is not None and sys.stdout.encoding.lower() not in ("utf-8", "utf8"):
        sys.stdout.reconfigure(errors="replace")  # type: ignore[union-attr]  # a drawing with ? beats none
    try:
        make_app(sys.argv[1:])(prog_name="aurorad")
    except NetworkError as error:
        from engine.cli.views.problems import write_problems

        write_problems(error.problems, error.source, error.text)
        sys.exit(EX_CONFIG)
    except AuroraError as error:
        typer.echo(f"aurorad: {error}", err=True)
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)
