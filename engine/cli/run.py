"""``aurorad run``: the daemon, until a signal ends it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import typer


def register(app: typer.Typer) -> None:
    app.command()(run)


def run(
    file: Annotated[Path, typer.Argument(help="The network file.", envvar="AURORAD_FILE", exists=False)],
    workers: Annotated[int | None, typer.Option(min=1, envvar="AURORAD_WORKERS", help="Worker threads.")] = None,
    memory: Annotated[str | None, typer.Option(envvar="AURORAD_MEMORY", help="Budget of the queues: 512MiB.")] = None,
    policy: Annotated[str | None, typer.Option(envvar="AURORAD_POLICY", help="The scheduler's policy.")] = None,
    http: Annotated[str | None, typer.Option(envvar="AURORAD_HTTP", help="Where HTTP listens: host:port, off.")] = None,
    log_format: Annotated[
        Literal["text", "json"] | None, typer.Option(envvar="AURORAD_LOG_FORMAT", help="How log lines look.")
    ] = None,
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"] | None, typer.Option(envvar="AURORAD_LOG_LEVEL")
    ] = None,
    once: Annotated[bool, typer.Option("--once", help="End when every Spark source is at its end.")] = False,
) -> None:
    """Run a network until SIGTERM or Ctrl-C, which stops reading, drains, flushes and exits 0.

    A second SIGTERM exits at once. SIGHUP reads the file again: a wrong one changes
    nothing. A flag counts more than the environment, and that more than the file.

    \b
      aurorad run configs/demo.yaml
      aurorad run network.yaml --workers 4 --memory 2GiB --http 127.0.0.1:9500
      AURORAD_LOG_FORMAT=json aurorad run network.yaml
    """
    from engine.service import serve

    overrides: dict[str, dict[str, Any]] = {
        "engine": {"workers": workers, "memory": memory},
        "scheduler": {"policy": policy},
        "http": {"listen": http},
        "log": {"format": log_format, "level": log_level},
    }
    code = serve(file, _given(overrides), once=once)
    raise typer.Exit(code)


def _given(sections: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Without what nobody said."""
    kept = {name: {k: v for k, v in section.items() if v is not None} for name, section in sections.items()}
    return {name: section for name, section in kept.items() if section}
