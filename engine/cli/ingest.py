"""``aurorad ingest``: read files with Spark into a stream of a running daemon, once, with a progress bar."""

from __future__ import annotations

import secrets
import sys
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from engine.cli.remote import DEFAULT_URL, CacertOption, Remote, RemoteError, TokenFileOption, fail

if TYPE_CHECKING:
    from catalog.network import Network, Stream
    from router.spark.daemon.asked_jobs import DaemonJob
    from router.spark.daemon.jobs import BulkJob
    from router.spark.daemon.remote import RemoteTarget

PROGRESS_SECONDS = 0.25
SUFFIXES = {".parquet": "parquet", ".csv": "csv", ".json": "json", ".ndjson": "json", ".jsonl": "json", ".orc": "orc",
            ".txt": "text"}  # fmt: skip


def register(app: typer.Typer) -> None:
    app.command()(ingest)


def ingest(
    file: Annotated[Path, typer.Argument(help="The network file that the daemon runs.", exists=False)],
    stream: Annotated[str, typer.Option(help="The stream to fill.")],
    path: Annotated[list[str] | None, typer.Option(help="A file, a folder or a glob; repeatable.")] = None,
    format: Annotated[
        str | None, typer.Option(help="parquet, csv, json, orc, text or jdbc. \\[default: by the file name]")
    ] = None,
    option: Annotated[list[str] | None, typer.Option(help="An option of the format: header=true; repeatable.")] = None,
    sql: Annotated[str | None, typer.Option(help="A query over the input, which is the table source.")] = None,
    order_by: Annotated[list[str] | None, typer.Option(help="A field to sort by; repeatable.")] = None,
    pace: Annotated[str, typer.Option(help="as_fast, realtime, or a multiple of event time: 10x.")] = "as_fast",
    job: Annotated[str | None, typer.Option(help="A name; a second run with it resumes the first.")] = None,
    url: Annotated[str | None, typer.Option(envvar="AURORAD_URL", help="The daemon's HTTP address.")] = None,
    token_file: TokenFileOption = None,
    cacert: CacertOption = None,
    master: Annotated[str | None, typer.Option(help="The Spark master. \\[default: that of the file]")] = None,
    jvm: Annotated[
        Literal["auto", "daemon", "own"],
        typer.Option(help="Whose JVM reads. auto: the daemon's if it has one and is on this machine."),
    ] = "auto",
) -> None:
    """Read files with Spark into a stream of the daemon that runs FILE.

    Spark checks the schema before it reads. The daemon serves its live
    outputs first; bulk rows wait. After an error the rows before it are in
    the stream; run again with --job to resume.

    \b
      aurorad ingest network.yaml --stream trades --path ./history
      aurorad ingest network.yaml --stream trades --path day.csv --pace 60x
      aurorad ingest network.yaml --stream trades --path ./history --job monday

    Exit codes: 0 all rows are in, 1 Spark or the daemon failed, 2 wrong
    usage, 78 a bad network file, 130 interrupted.
    """
    from engine.run.network_file import read_network
    from router.spark.daemon.asked_jobs import DaemonJob
    from router.spark.daemon.host import SparkHost
    from router.spark.daemon.jobs import BulkJob, order_for
    from router.spark.daemon.pace import parse_pace
    from router.spark.wire.errors import SparkRefusedError

    network = read_network(file)
    target_stream = _find(network, stream)
    try:
        parse_pace(pace)
    except ValueError as error:
        raise SparkRefusedError(f"--pace: {error}") from None
    spark = network.config.spark
    remote = _remote(network, url, token_file, cacert)
    name = job or f"ingest-{secrets.token_hex(4)}"
    target = _target(network, remote, name, stream, pace)
    source = {
        "spark": format or _guess(path, sql),
        "path": _absolute(path),
        "options": dict(as_option(text) for text in option or ()),
        "sql": sql,
        "order_by": order_for(network, target_stream, order_by, pace),
    }
    asked = DaemonJob(target.address, target.token, target.trust, name, stream=stream, pace=pace, source=source)
    if _may_ask(jvm, master, remote, path) and asked.begin(start=jvm == "daemon"):
        rows, was_done = _run(asked, asked, name), asked.was_done
    else:
        host = SparkHost(master or spark.master, spark.config, nice=0)
        bulk = BulkJob(host, name, source, target_stream.schema, target, staging=spark.staging)
        try:
            rows, was_done = _run(bulk, target, name), bulk.was_done
        finally:
            host.stop()
    typer.echo(f"{rows:,} rows are in stream {stream}" if not was_done else "this input was read before")


def _may_ask(jvm: str, master: str | None, remote: Remote, path: list[str] | None) -> bool:
    """Tell whether the daemon may read for this command: it must see the same files."""
    if jvm != "auto":
        return jvm == "daemon"
    return master is None and (remote.is_here or all("://" in one for one in path or ()))


def _absolute(path: list[str] | None) -> list[str] | None:
    """Return the paths as the daemon can read them, whose working folder is another one."""
    return None if path is None else [one if ":" in one else str(Path(one).absolute()) for one in path]


def _find(network: Network, name: str) -> Stream:
    from router.spark.daemon.intake import find_stream

    return find_stream(network, name)


def _guess(path: list[str] | None, sql: str | None) -> str:
    if not path:
        return "sql" if sql else "parquet"
    ending = Path(path[0]).suffix
    if not ending and Path(path[0]).is_dir():
        endings = {p.suffix for p in Path(path[0]).iterdir() if p.suffix in SUFFIXES}
        ending = endings.pop() if len(endings) == 1 else ""
    return SUFFIXES.get(ending, "parquet")


def as_option(text: str) -> tuple[str, str]:
    """Divide ``key=value``."""
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise typer.BadParameter(f"an option is key=value, not '{text}'")
    return key, value


def _remote(network: Network, url: str | None, token_file: Path | None, cacert: Path | None) -> Remote:
    """Return the daemon that runs a network."""
    listen = network.config.http.listen
    has_tls = network.config.access.tls is not None or network.config.http.config_file is not None
    scheme = "https" if has_tls else "http"
    try:
        return Remote(url or (f"{scheme}://{listen}" if listen is not None else DEFAULT_URL), token_file, cacert)
    except RemoteError as error:
        fail(error)


def _target(network: Network, remote: Remote, job: str, stream: str, pace: str) -> RemoteTarget:
    """Return the Spark port of a running daemon, with the token of the file or of the user, and its certificate."""
    from router.spark.daemon.remote import RemoteTarget

    config, address = network.config, _port_of(remote)
    token = remote.token or ("" if config.spark.token is None else config.spark.token.get_secret_value())
    if config.access.tls is None:
        return RemoteTarget(address, token, job, stream, pace)
    trust = f"pin:{Path(config.access.tls.cert_file).read_text()}"
    return RemoteTarget(f"tls://{address}", token, job, stream, pace, trust)


def _port_of(remote: Remote) -> str:
    """Ask the running daemon for the address of its Spark port."""
    try:
        port = remote.json("/api/v1/stats")
        address = str(port.get("spark", {}).get("port", ""))
        if not address:
            raise RemoteError(
                "the daemon has no Spark port", "its network file needs spark: {listen: 127.0.0.1:0}", status=400
            )
    except RemoteError as error:
        fail(error)
    return address


def _run(bulk: BulkJob | DaemonJob, target: RemoteTarget | DaemonJob, name: str) -> int:
    """Run the job on a thread, and show its progress on this one."""
    try:
        return _run_on_thread(bulk, target, name)
    except KeyboardInterrupt:
        typer.echo(f"aurorad: interrupted; resume with --job {name}", err=True)
        raise typer.Exit(130) from None


def _run_on_thread(bulk: BulkJob | DaemonJob, target: RemoteTarget | DaemonJob, name: str) -> int:
    outcome: list[Any] = []

    def work() -> None:
        from catalog.errors import AuroraError

        try:
            outcome.append(bulk.run())
        except AuroraError as error:
            outcome.append(error)

    thread = Thread(target=work, name="ingest", daemon=True)
    thread.start()
    try:
        _watch(thread, target, name)
    except BaseException:
        bulk.stop()
        raise
    if isinstance(outcome[0], Exception):
        raise outcome[0]
    return int(outcome[0])


def _watch(thread: Thread, target: RemoteTarget | DaemonJob, name: str) -> None:
    if not sys.stderr.isatty():
        thread.join()
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        Progress,
        TaskProgressColumn,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    from catalog.errors import AuroraError

    columns = (
        TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(),
        TextColumn("{task.completed:,} rows  {task.fields[rate]:,.0f}/s"), TimeElapsedColumn(), TimeRemainingColumn(),
    )  # fmt: skip
    with Progress(*columns, console=Console(stderr=True)) as progress:
        task = progress.add_task("Spark starts", total=None, rate=0.0)
        while thread.is_alive():
            thread.join(PROGRESS_SECONDS)
            if not target.begun:
                continue
            try:
                seen = target.progress()
            except AuroraError:
                continue  # the job raises the same error, with its reason
            total = seen["rows_expected"] or None
            progress.update(task, description=name, completed=seen["rows"], total=total, rate=seen["rate_per_s"])
