"""``aurorad run``: start the daemon on a network file."""

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
    http: Annotated[str | None, typer.Option(envvar="AURORAD_HTTP", help="Address of HTTP: host:port, or off.")] = None,
    log_format: Annotated[
        Literal["text", "json"] | None, typer.Option(envvar="AURORAD_LOG_FORMAT", help="Format of the log lines.")
    ] = None,
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"] | None,
        typer.Option(envvar="AURORAD_LOG_LEVEL", help="Least severe lines to log."),
    ] = None,
    port_base: Annotated[
        int | None, typer.Option(min=1, max=65535, envvar="AURORAD_PORT_BASE", help="Move the lowest port here.")
    ] = None,
    once: Annotated[
        bool, typer.Option("--once", help="Exit when every Spark source has been read to its end.")
    ] = False,
) -> None:
    """Run a network until SIGTERM or Ctrl-C: then stop reading, drain, flush and exit 0.

    A second SIGTERM exits at once. SIGHUP reads the file again; a file with
    errors changes nothing. A flag overrides the environment, which
    overrides the file. --port-base moves all ports by the same distance.

    \b
      aurorad run configs/demo.yaml
      aurorad run network.yaml --workers 4 --memory 2GiB --http 127.0.0.1:9500
      AURORAD_LOG_FORMAT=json aurorad run network.yaml
      aurorad run configs/batch.yaml --once

    Exit codes: 0 ended, 1 failed (a port in use, a broken data_dir, a bulk
    job that failed), 70 the engine failed, 78 a bad network file.
    """
    from catalog.config.read import Overrides
    from engine.daemon.service import serve

    overrides: dict[str, dict[str, Any]] = {
        "engine": {"workers": workers, "memory": memory},
        "scheduler": {"policy": policy},
        "http": {"listen": http},
        "log": {"format": log_format, "level": log_level},
    }
    code = serve(file, Overrides(_given(overrides), port_base), once=once)
    raise typer.Exit(code)


def _given(sections: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Leave out the settings that were not given."""
    kept = {name: {k: v for k, v in section.items() if v is not None} for name, section in sections.items()}
    return {name: section for name, section in kept.items() if section}
