"""``aurorad run``: start the daemon on a network file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

if TYPE_CHECKING:
    from catalog.config.overrides import Overrides


FileArgument = Annotated[
    Path | None,
    typer.Argument(help="The network file. \\[default: none; begin on the page]", envvar="AURORAD_FILE", exists=False),
]
FromFileOption = Annotated[
    bool, typer.Option("--from-file", help="Run the file, also if another network was applied last.")
]
StdinOption = Annotated[
    str | None, typer.Option(metavar="STREAM[:FORMAT]", help="Read this stream from standard input; then exit.")
]
StdoutOption = Annotated[
    str | None, typer.Option(metavar="OUTPUT[:FORMAT]", help="Write this output to standard output.")
]
OnOption = Annotated[Literal["daemon", "spark"], typer.Option(help="daemon: one process. spark: Structured Streaming.")]
MasterOption = Annotated[
    str | None, typer.Option(help="With --on spark: the Spark master. \\[default: that of the file]")
]
CheckpointOption = Annotated[
    str | None, typer.Option(help="With --on spark: where state is kept. \\[default: data_dir/on-spark]")
]
ShardsOption = Annotated[
    int | None, typer.Option(min=1, max=10_000, help="With --on spark: parts of the state. \\[default: the cores]")
]
EveryOption = Annotated[str, typer.Option(help="With --on spark: the least time from one batch to the next.")]


def register(app: typer.Typer) -> None:
    app.command()(run)


def run(
    file: FileArgument = None,
    workers: Annotated[
        str | None, typer.Option(envvar="AURORAD_WORKERS", help="Worker threads: a number, or auto.")
    ] = None,
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
        bool, typer.Option("--once", help="Exit when every file and Spark source has been read to its end.")
    ] = False,
    from_file: FromFileOption = False,
    stdin: StdinOption = None,
    stdout: StdoutOption = None,
    on: OnOption = "daemon",
    master: MasterOption = None,
    checkpoint: CheckpointOption = None,
    shards: ShardsOption = None,
    every: EveryOption = "0s",
) -> None:
    """Run a network until SIGTERM or Ctrl-C: then stop reading, drain, flush and exit 0.

    Without a file it runs an empty network. Its page makes one from ten
    rows, and `aurorad apply FILE` deploys one.
    When all sources are files or standard input, the run ends after them,
    with all windows closed. --stdin and --stdout put a stream and an output
    of any network file into a pipe, in place of their own source and sink;
    a format is ndjson, csv or arrow, and for --stdout table too. HTTP is off
    then and only warnings are logged, unless the file or a flag says more.
    A second SIGTERM exits at once. SIGHUP reads the file again; a file with
    errors changes nothing. A flag overrides the environment, which
    overrides the file. --port-base moves all ports by the same distance.

    With a data_dir the network that was applied last goes on, if it did not
    come from the file; the log says so. --on spark runs the network on
    Spark, with the same answers: `validate --on spark` says what runs how.

    \b
      aurorad run configs/demo.yaml
      aurorad run network.yaml --workers 4 --memory 2GiB --http 127.0.0.1:9500
      AURORAD_LOG_FORMAT=json aurorad run network.yaml
      aurorad run configs/batch.yaml --once
      aurorad run configs/batch.yaml --on spark --master spark://host:7077
      cat day.ndjson | aurorad run network.yaml --stdin trades --stdout alerts

    Exit codes: 0 ended, 1 failed (a port in use, a broken data_dir, a file
    that cannot be read or written, a bulk job that failed), 2 wrong usage,
    70 the engine failed, 78 a bad network file.
    """
    from catalog.config.overrides import Overrides, UnknownNameError
    from engine.daemon.process.service import serve

    overrides: dict[str, dict[str, Any]] = {
        "engine": {"workers": int(workers) if workers and workers.isdigit() else workers, "memory": memory},
        "scheduler": {"policy": policy},
        "http": {"listen": http},
        "log": {"format": log_format, "level": log_level},
    }
    given = _given(overrides)
    if stdin is not None or stdout is not None:
        given = _fallbacks({**given, **_pipes(stdin, stdout)})
    if file is None and (once or on == "spark" or stdin is not None or stdout is not None):
        raise typer.BadParameter("--once, --on spark, --stdin and --stdout need a network file", param_hint="FILE")
    if on == "spark" and file is not None:
        raise typer.Exit(_on_spark(file, Overrides(given, port_base), master, checkpoint, shards, every, once))
    try:
        code = serve(file, Overrides(given, port_base), once=once or stdin is not None, from_file=from_file)
    except UnknownNameError as error:
        raise typer.BadParameter(str(error), param_hint="--stdin/--stdout") from None
    raise typer.Exit(code)


def _on_spark(
    file: Path,
    overrides: Overrides,
    master: str | None,
    checkpoint: str | None,
    shards: int | None,
    every: str,
    once: bool,
) -> int:
    from catalog.config.units import parse_duration_ns
    from engine.on_spark.service import serve_on_spark

    try:
        every_s = parse_duration_ns(every) / 1e9
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--every") from None
    return serve_on_spark(
        file, overrides, master=master, checkpoint=checkpoint, shards=shards, every_s=every_s, once=once
    )


def _pipes(stdin: str | None, stdout: str | None) -> dict[str, dict[str, Any]]:
    """Put standard input and output in place of the source and the sink that the file names."""
    sections: dict[str, dict[str, Any]] = {}
    if stdin is not None:
        name, _, format = stdin.partition(":")
        sections["streams"] = {name: {"source": {"stdin": format or None}, "overload": "block"}}
    if stdout is not None:
        name, _, format = stdout.partition(":")
        sections["outputs"] = {name: {"sink": {"stdout": format or None}}}
    return sections


def _fallbacks(sections: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Make a filter of the daemon: two of them in one pipe must not fight for a port, and logs are for trouble."""
    from catalog.config.overrides import Fallback

    quiet = {
        "http": {"listen": Fallback("off")},
        "spark": {"listen": Fallback("off")},
        "log": {"level": Fallback("warning")},
    }
    return {**sections, **{name: {**keys, **sections.get(name, {})} for name, keys in quiet.items()}}


def _given(sections: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Leave out the settings that were not given."""
    kept = {name: {k: v for k, v in section.items() if v is not None} for name, section in sections.items()}
    return {name: section for name, section in kept.items() if section}
