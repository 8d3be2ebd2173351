"""``format("aurorad")``, the daemon's end: batches written into streams exactly once, outputs read from an offset.

Writing. A task's rows are staged on disk under a name of their own, because Spark may run a task twice, or run it and
throw it away. The commit names what counts. Then:

1. the decision is noted on disk (query, batch, which staged files, a new epoch), and from here on it stands;
2. the files' rows enter the network, numbered in that epoch where there is a log;
3. once all are in (on disk, where there is a log), the batch is noted as the query's last, and the files go.

A batch that comes again is at or below the query's last and is dropped. A daemon that dies between 1 and 3 finishes
what was decided when it starts again, from the same files; the log drops the trains that it has. Commits into one
stream take turns, so epochs only ever rise.

Reading. An offset is the number of tuples that the output had emitted; a reader has a name, and what it has not
released is kept in the log. That takes a data_dir: without one nothing is kept for anybody.
"""

from __future__ import annotations

import json
import logging
import os
import secrets
import struct
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from threading import Event, Lock
from typing import Any

from catalog.errors import AuroraError
from catalog.network import Network, Output, Stream
from router.codecs.arrow import ArrowDecoder, ArrowEncoder
from router.codecs.base import Intake
from router.spark.errors import SparkRefusedError
from router.spark.feeds import History
from router.spark.intake import FRAME_BYTES, StreamIntake, find_stream
from router.spark.jobs import fields_of
from router.spark.loads import Doors, Numbered
from router.spark.pace import Pacer, StoppedError
from router.spark.port import Handler, Peer, PortError
from storage.train import Train

log = logging.getLogger("aurorad.spark")

STAGED_BYTES = 8 * 1024**3
QUERIES = 10_000
READ_BYTES = 4 * 1024**2
SETTLE_SECONDS = 0.005


class Exchange:
    def __init__(
        self,
        network: Network,
        intake: StreamIntake,
        folder: Callable[[], Path],
        may_enter: Callable[[], bool],
        now_ns: Callable[[], int],
        *,
        numbered: Numbered | None,
        history: Callable[[int], History | None],
    ) -> None:
        self._network = network
        self._intake = intake
        self._make_folder = folder
        self._pacer = Pacer(may_enter, now_ns)
        self._now_ns = now_ns
        self._numbered = numbered
        self._history = history
        self._stopped = Event()
        self._lock = Lock()
        self._turns = [Lock() for _ in network.streams]
        self._staged_bytes = 0
        self._book: Book | None = None
        self.handlers: dict[str, Handler] = {
            "describe": self._describe,
            "stage": self._stage,
            "commit": self._commit,
            "abort": self._abort,
            "offsets": self._offsets,
            "read": self._read,
            "release": self._release,
        }

    def recover(self) -> None:
        """Finish what was decided before a crash. Only with a data_dir, once the engine runs."""
        for entry in self._opened().pending():
            try:
                rows = self._finish(entry)
            except (AuroraError, OSError, StoppedError) as error:
                log.error("query %s: batch %d was decided and cannot enter: %s", entry["query"], entry["batch"], error)
            else:
                log.info("query %s: batch %d, decided before, is in: %d rows", entry["query"], entry["batch"], rows)

    def stop(self) -> None:
        self._stopped.set()

    def _opened(self) -> Book:
        with self._lock:
            if self._book is None:
                self._book = Book(self._make_folder())
            return self._book

    def _describe(self, peer: Peer, hello: Mapping[str, Any]) -> None:
        schema = self._stream(hello).schema if "stream" in hello else self._output(hello).schema
        peer.say(ok=True, fields=fields_of(schema))

    def _stream(self, hello: Mapping[str, Any]) -> Stream:
        return find_stream(self._network, str(hello.get("stream")))

    def _output(self, hello: Mapping[str, Any]) -> Output:
        for output in self._network.outputs:
            if output.name == hello.get("output"):
                return output
        names = ", ".join(o.name for o in self._network.outputs)
        raise SparkRefusedError(f"there is no output {hello.get('output')}; there is {names}")

    # -- writing ------------------------------------------------------------------------------------------------------

    def _stage(self, peer: Peer, hello: Mapping[str, Any]) -> None:
        stream, book = self._stream(hello), self._opened()
        name = secrets.token_hex(12)
        checker = ArrowDecoder(Intake(stream.schema, batch_bytes=FRAME_BYTES))
        path = book.staged(name)
        peer.say(ok=True)
        try:
            with path.open("wb") as out:
                for frame in peer.frames(FRAME_BYTES):
                    received = checker.receive(frame, 0)
                    if received.fatal:
                        raise PortError(f"stream {stream.name}: {received.rejects[-1].message}")
                    self._reserve(len(frame) + 4)
                    out.write(struct.pack(">I", len(frame)))
                    out.write(frame)
                out.flush()
                os.fdatasync(out.fileno())
            if (rows := int(peer.hear()["rows"])) != checker.received:
                raise PortError(f"{checker.received} rows came of {rows}")
        except OSError as error:
            self._drop(path)
            raise PortError(f"the rows cannot be staged: {error.strerror}") from error
        except BaseException:
            self._drop(path)
            raise
        peer.say(ok=True, rows=rows, staged=name)

    def _reserve(self, size: int) -> None:
        with self._lock:
            if self._staged_bytes + size > STAGED_BYTES:
                raise PortError(f"more than {STAGED_BYTES:,} bytes are staged already")
            self._staged_bytes += size

    def _drop(self, path: Path) -> None:
        size = path.stat().st_size if path.is_file() else 0
        path.unlink(missing_ok=True)
        with self._lock:
            self._staged_bytes = max(0, self._staged_bytes - size)

    def _abort(self, peer: Peer, hello: Mapping[str, Any]) -> None:
        book = self._opened()
        for name in hello.get("staged", ()):
            if not book.is_decided(str(name)):
                self._drop(book.staged(str(name)))
        peer.say(ok=True)

    def _commit(self, peer: Peer, hello: Mapping[str, Any]) -> None:
        stream, book = self._stream(hello), self._opened()
        query, batch = str(hello.get("query"))[:500], int(hello.get("batch", 0))
        names = [str(name) for name in hello.get("staged", ())]
        with self._turns[stream.number]:
            if book.last(query) >= batch:
                self._forget(book, names)
                peer.say(ok=True, rows=0, repeated=True)
                return
            entry = book.decide(query, batch, stream.name, names, self._now_ns())
            rows = self._finish(entry)
            self._forget(book, names)
        peer.say(ok=True, rows=rows, repeated=False)

    def _forget(self, book: Book, names: list[str]) -> None:
        for name in names:
            self._drop(book.staged(name))

    def _finish(self, entry: Mapping[str, Any]) -> int:
        """Let the rows of a decided batch enter."""
        stream, book = find_stream(self._network, entry["stream"]), self._opened()
        sequence = rows = 0
        source = f"spark/format/{stream.name}"
        for train in self._trains(stream, entry):
            for piece in self._pacer.trains(train, self._stopped):
                sequence += 1
                self._enter(stream.number, piece, source, entry["epoch"], sequence)
                rows += piece.count
        numbered = self._numbered
        while numbered is not None and sequence:
            if numbered.committed(stream.number, source, entry["epoch"]) >= sequence:
                break
            if self._stopped.wait(SETTLE_SECONDS):
                raise PortError("aurorad stops")
        book.done(entry)
        return rows

    def _enter(self, stream: int, train: Train, source: str, epoch: int, sequence: int) -> None:
        doors: Doors = self._intake.doors
        if self._numbered is None:
            doors.tally(stream, train.count, 0)
            doors.admit(stream, train)
            return
        taken = self._numbered.submit(stream, train, source, epoch, sequence)
        if taken is None:
            raise PortError("the log has no room")
        doors.tally(stream, train.count, 0 if taken else train.count)

    def _trains(self, stream: Stream, entry: Mapping[str, Any]) -> Iterator[Train]:
        for name in entry["staged"]:
            decoder = self._intake.decoder(stream)
            for frame in frames_of(self._opened().staged(name)):
                received = decoder.receive(frame, self._now_ns())
                yield from received.trains
                self._intake.refuse(stream, f"query {entry['query']}", received)

    # -- reading ------------------------------------------------------------------------------------------------------

    def _kept(self, output: Output) -> History:
        history = self._history(output.number)
        if history is None:
            raise SparkRefusedError(
                f"output {output.name} is not kept: to read it from an offset takes engine.data_dir"
            )
        return history

    def _offsets(self, peer: Peer, hello: Mapping[str, Any]) -> None:
        """Where a reader stands, and how far it can read. A name that is new begins now."""
        output = self._output(hello)
        history = self._kept(output)
        start = history.subscribe(_reader(hello), None)
        peer.say(ok=True, start=start, oldest=history.oldest - 1, newest=history.readable)

    def _read(self, peer: Peer, hello: Mapping[str, Any]) -> None:
        output = self._output(hello)
        history = self._kept(output)
        at, end = int(hello["start"]), int(hello["end"])
        encoder = ArrowEncoder(output.schema, "us")
        peer.say(ok=True)
        peer.send_frame(encoder.begin())
        rows = 0
        while at < end:
            pieces = history.read(_reader(hello), at, READ_BYTES)
            if not pieces:
                raise PortError(f"output {output.name} has not {end} tuples")
            for piece in pieces:
                if at == end:
                    break
                if piece.first > at + 1:
                    raise PortError(f"tuples {at + 1} to {piece.first - 1} of output {output.name} are no longer kept")
                train = piece.train.slice(0, min(piece.train.count, end - at))
                peer.send_frame(encoder.encode(train))
                rows += train.count
                at += train.count
        peer.send_end(rows)

    def _release(self, peer: Peer, hello: Mapping[str, Any]) -> None:
        self._kept(self._output(hello)).acknowledge(_reader(hello), int(hello["end"]))
        peer.say(ok=True)


def _reader(hello: Mapping[str, Any]) -> str:
    name = str(hello.get("reader", ""))
    if not name or len(name) > 200:
        raise SparkRefusedError("a reader needs a name of at most 200 characters")
    return f"spark:{name}"


def frames_of(path: Path) -> Iterator[bytes]:
    with path.open("rb") as staged:
        while head := staged.read(4):
            yield staged.read(struct.unpack(">I", head)[0])


class Book:
    """What was decided, and the last batch of each query: one file, replaced whole. Any thread."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._path = folder / "book.json"
        self._lock = Lock()
        text = self._path.read_text() if self._path.is_file() else "{}"
        data = {"epoch": 0, "queries": {}, "pending": [], **json.loads(text)}
        self._epoch: int = data["epoch"]
        self._queries: dict[str, int] = data["queries"]
        self._pending: list[dict[str, Any]] = data["pending"]
        for file in folder.glob("*.rows"):
            if not self.is_decided(file.stem):
                file.unlink()  # of a write that was never committed

    def staged(self, name: str) -> Path:
        if not name.isalnum():
            raise SparkRefusedError("that is not the name of staged rows")
        return self._folder / f"{name}.rows"

    def is_decided(self, name: str) -> bool:
        return any(name in entry["staged"] for entry in self._pending)

    def last(self, query: str) -> int:
        return self._queries.get(query, -1)

    def pending(self) -> list[dict[str, Any]]:
        return list(self._pending)

    def decide(self, query: str, batch: int, stream: str, staged: list[str], now_ns: int) -> dict[str, Any]:
        """The batch consists of these, or of what it consisted of when it was decided before."""
        with self._lock:
            for entry in self._pending:
                if (entry["query"], entry["batch"]) == (query, batch):
                    return entry
            missing = [name for name in staged if not self.staged(name).is_file()]
            if missing:
                raise SparkRefusedError(f"{len(missing)} staged parts are gone: write them again")
            self._epoch = max(now_ns, self._epoch + 1)
            entry = {"query": query, "batch": batch, "stream": stream, "staged": staged, "epoch": self._epoch}
            self._pending.append(entry)
            self._write()
            return entry

    def done(self, entry: Mapping[str, Any]) -> None:
        with self._lock:
            self._pending = [e for e in self._pending if e["epoch"] != entry["epoch"]]
            self._queries.pop(entry["query"], None)
            self._queries[entry["query"]] = entry["batch"]
            while len(self._queries) > QUERIES:
                self._queries.pop(next(iter(self._queries)))
            self._write()

    def _write(self) -> None:
        new = self._path.with_name("book.new")
        with new.open("w") as out:
            json.dump({"epoch": self._epoch, "queries": self._queries, "pending": self._pending}, out)
            out.flush()
            os.fsync(out.fileno())
        os.replace(new, self._path)
