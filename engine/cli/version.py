"""``aurorad version``: what is running, in one line."""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as version_of

import typer


def register(app: typer.Typer) -> None:
    app.command()(version)


def own_version() -> str:
    """Of the installed distribution; a bare checkout has none."""
    try:
        return version_of("aurorad")
    except PackageNotFoundError:
        return "0+unknown"


def version() -> None:
    """The version, and those of Python and of the libraries that matter for a bug report.

    \b
      aurorad version
    """
    libraries = " ".join(f"{name} {version_of(name)}" for name in ("numpy", "pyarrow", "polars", "pydantic", "sqlglot"))
    typer.echo(f"aurorad {own_version()} (Python {platform.python_version()}, {libraries})")
