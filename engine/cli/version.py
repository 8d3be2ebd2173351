"""``aurorad version``: print the versions for a bug report."""

from __future__ import annotations

import platform
from importlib.metadata import version as version_of

import typer

from engine.daemon.process.version import own_version


def register(app: typer.Typer) -> None:
    app.command()(version)


def version() -> None:
    """Print the version, and those of Python and of the libraries that matter for a bug report.

    \b
      aurorad version

    Exit code: 0.
    """
    libraries = " ".join(f"{name} {version_of(name)}" for name in ("numpy", "pyarrow", "polars", "pydantic", "sqlglot"))
    typer.echo(f"aurorad {own_version()} (Python {platform.python_version()}, {libraries})")
