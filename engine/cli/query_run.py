"""``aurorad query run``: ask the history of a daemon, or of a data_dir, and leave nothing behind.

The boxes run in the process of the command, not in the daemon. It gets the tuples over HTTP, or reads the files itself
(``--data-dir``).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from enum import StrEnum
from pathlib import Path
from threading import Lock, Thread
from typing import TYPE_CHECKING, Annotated, Any, NoReturn
from urllib.parse import quote

import typer

from engine.cli.remote import DEFAULT_URL, CacertOption, Remote, RemoteError, TokenFileOption, UrlOption, fail

if TYPE_CHECKING:
    from catalog.network import KeptPlace, Network
    from catalog.schema import Schema
    from storage.history.segment import KeptTrain
    from storage.train import Train


class ResultFormat(StrEnum):
    TABLE = "table"
    NDJSON = "ndjson"
    PARQUET = "parquet"


def run(
    query: Annotated[
        str, typer.Argument(metavar="QUERY", help="A file of boxes and outputs, or one box; - reads standard input.")
    ],
    start: Annotated[
        str, typer.Option("--from", help="earliest, -1h, now, or a time such as 2026-01-01T12:00Z.")
    ] = "earliest",
    follow: Annotated[bool, typer.Option("--follow", help="Go on with live tuples, until Ctrl-C or --limit.")] = False,
    format: Annotated[ResultFormat, typer.Option(help="How to print the rows.")] = ResultFormat.TABLE,
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write to a file instead of standard output.")
    ] = None,
    output: Annotated[str, typer.Option(help="Which output, if the file has several.")] = "",
    limit: Annotated[int, typer.Option(min=0, help="Stop after so many rows; 0: never.")] = 0,
    data_dir: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Read this data_dir; no daemon is asked.")
    ] = None,
    url: UrlOption = DEFAULT_URL,
    token_file: TokenFileOption = None,
    cacert: CacertOption = None,
) -> None:
    """Run a query over the history of a daemon, print its rows, and leave nothing behind.

    A query reads places that keep history (aurorad history list). It runs in
    this process, not in the daemon. At the end of the history open windows
    close, unless --follow goes on.

    \b
      aurorad query run '{filter: trades, where: "size > 1000"}' --from -1h
      aurorad query run vwap.yaml --format parquet --out vwap.parquet
      aurorad query run vwap.yaml --from -5m --follow --format ndjson

    Exit codes: 0 done, 1 no daemon answers or the query failed, 2 a wrong
    argument, 78 a bad query.
    """
    from catalog.config.history import parse_start
    from catalog.errors import NetworkError
    from engine.run.adhoc import AdHocError, adhoc_network, inputs_of, parse_query

    try:
        parse_start(start)
        source = (
            HistoryFolder(data_dir, start)
            if data_dir is not None
            else DaemonHistory(Remote(url, token_file, cacert), start, follow)
        )
        if data_dir is not None and follow:
            raise AdHocError("--follow needs a daemon", "leave --data-dir out")
        parsed = parse_query(_text(query))
        if output:
            parsed["outputs"] = {n: entry for n, entry in parsed["outputs"].items() if n == output}
        known = source.places()
        places = [known[name] for name in inputs_of(parsed, known)]
        network = adhoc_network(parsed, places)
        if len(network.outputs) != 1:
            raise AdHocError("the query has several outputs", "name one with --output")
        _run(network, places, source, _printer(network.outputs[0].schema, format, out), limit, follow)
    except ValueError as error:
        _refuse(str(error), "", 2)
    except NetworkError as error:
        _refuse(f"the query has errors: {error}", "", 78)
    except AdHocError as error:
        _refuse(str(error), error.hint, 1)
    except RemoteError as error:
        fail(error)
    except KeyboardInterrupt:
        return


def _refuse(message: str, hint: str, code: int) -> NoReturn:
    typer.echo(f"aurorad: {message}", err=True)
    if hint:
        typer.echo(f"  {hint}", err=True)
    raise typer.Exit(code) from None


def _text(query: str) -> str:
    if query == "-":
        return sys.stdin.read()
    if query.lstrip().startswith("{") or "\n" in query:
        return query
    return Path(query).read_text(encoding="utf-8")


# -- where tuples come from -------------------------------------------------------------------------------------------


class DaemonHistory:
    """The history of a daemon, over HTTP."""

    def __init__(self, remote: Remote, start: str, follow: bool) -> None:
        self._remote = remote
        self._start = start
        self._follow = follow
        self._open = ExitStack()

    def places(self) -> dict[str, KeptPlace]:
        listed = self._remote.json("/api/v1/history", has="history")["history"]
        return {each["name"]: _place(each) for each in listed}

    def trains(self, place: KeptPlace) -> Iterable[KeptTrain]:
        from storage.history.wire import read_frames

        asked = {"from": self._start, "follow": str(self._follow).lower()}
        path = f"/api/v1/history/{quote(place.name, safe='')}"
        response = self._open.enter_context(self._remote.get(path, asked, forever=True))
        return read_frames(response.read, place.schema)

    def close(self) -> None:
        self._open.close()


class HistoryFolder:
    """The history in a data_dir, read from its files."""

    def __init__(self, root: Path, start: str) -> None:
        from storage.files import RealFiles

        if not (root / "history").is_dir():
            raise ValueError(f"{root} has no history")
        self._files = RealFiles(str(root))
        self._start = start

    def places(self) -> dict[str, KeptPlace]:
        from storage.history.look import kept_places

        return kept_places(self._files)

    def trains(self, place: KeptPlace) -> Iterable[KeptTrain]:
        from time import time_ns

        from catalog.config.history import parse_start
        from storage.history.place import PlaceHistory
        from storage.history.segment import ROW_GROUP_TUPLES

        history = PlaceHistory(place, self._files)
        history.look()
        first = history.first_at(parse_start(self._start).from_ns(time_ns()))
        return history.trains(first - 1, ROW_GROUP_TUPLES)

    def close(self) -> None:
        return


def _place(listed: Mapping[str, Any]) -> KeptPlace:
    from catalog.network import KeptPlace, PortRef
    from catalog.schema import Field, Schema

    fields = (Field.parse(f["name"], f["type"] + "?" * f["nullable"]) for f in listed["schema"])
    return KeptPlace(
        listed["name"], PortRef(stream=0), Schema(tuple(fields)), listed["time"], listed["slack_ns"], None, 0
    )


# -- running ----------------------------------------------------------------------------------------------------------


def _run(
    network: Network,
    places: Sequence[KeptPlace],
    source: DaemonHistory | HistoryFolder,
    printer: Printer,
    limit: int,
    follow: bool,
) -> None:
    from engine.run.adhoc import AdHocRun
    from engine.run.tuning import tune_process

    tune_process()
    lock = Lock()
    printed = 0

    def deliver(_: str, train: Train) -> None:
        nonlocal printed
        with lock:
            if limit:
                train = train.slice(0, max(0, min(train.count, limit - printed)))
            printed += train.count
            if train.count:
                printer.put(train)

    def is_enough() -> bool:
        return bool(limit) and printed >= limit

    asked = AdHocRun(network, places, deliver)
    try:
        histories = [source.trains(place) for place in places]
        if follow and len(places) > 1:  # nobody knows which place will have the next train
            _follow_all(asked, histories, is_enough)
        else:
            asked.read(histories, is_enough)
    except KeyboardInterrupt:
        pass
    finally:
        asked.end(closes=not follow and not is_enough())
        source.close()
        printer.end()


def _follow_all(asked: Any, histories: Sequence[Iterable[KeptTrain]], is_enough: Callable[[], bool]) -> None:
    def feed(stream: int, history: Iterable[KeptTrain]) -> None:
        for kept in history:
            if is_enough():
                return
            asked.feed(stream, kept.train)

    threads = [Thread(target=feed, args=pair, daemon=True) for pair in enumerate(histories)]
    for thread in threads:
        thread.start()
    for thread in threads:
        while thread.is_alive() and not is_enough():
            thread.join(0.1)


# -- printing ---------------------------------------------------------------------------------------------------------


class Printer:
    """Writes rows as text."""

    def __init__(self, encoder: Any, write: Callable[[bytes], Any]) -> None:
        self._encoder = encoder
        self._write = write
        self._write(encoder.begin())

    def put(self, train: Train) -> None:
        self._write(self._encoder.encode(train))

    def end(self) -> None:
        self._write(self._encoder.end())


class ParquetPrinter(Printer):
    """Writes rows as a Parquet file."""

    def __init__(self, schema: Schema, path: Path | None) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        from router.codecs.arrow import ArrowEncoder

        self._arrow = ArrowEncoder(schema, "us")
        self._schema = pa.ipc.read_schema(pa.py_buffer(self._arrow.begin()))
        self._sink: Any = sys.stdout.buffer if path is None else path.open("wb")
        self._writer = pq.ParquetWriter(self._sink, self._schema)

    def put(self, train: Train) -> None:
        import pyarrow as pa

        self._writer.write_batch(pa.ipc.read_record_batch(pa.py_buffer(self._arrow.encode(train)), self._schema))

    def end(self) -> None:
        self._writer.close()
        self._sink.flush()


def _printer(schema: Schema, format: ResultFormat, out: Path | None) -> Printer:
    from router.codecs.ndjson import NdjsonEncoder
    from router.files.table import TableEncoder

    if format is ResultFormat.PARQUET:
        if out is None and sys.stdout.isatty():
            raise ValueError("Parquet is no text: name a file with --out")
        return ParquetPrinter(schema, out)
    stream = sys.stdout.buffer if out is None else out.open("wb")

    def write(data: bytes) -> None:
        stream.write(data)
        stream.flush()

    return Printer(TableEncoder(schema) if format is ResultFormat.TABLE else NdjsonEncoder(schema), write)
