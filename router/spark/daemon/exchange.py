"""The daemon's end of ``format("aurorad")``: take batches into streams exactly once, serve outputs from an offset.

Writing. Spark may run a task twice, or run it and discard its result. So a task's rows are staged on disk under a name
of their own, and the commit of the batch lists the names that count. Then:

1. The ledger records the decision on disk: query, batch, staged files, a new epoch. From here on it stands.
2. The rows of the files enter the network; with a log they are numbered in that epoch.
3. When all rows are in (on disk, if there is a log), the ledger records the batch as the query's last, and the files
   are deleted.

A repeated batch is at or below the query's last one, and is dropped. A daemon that dies between 1 and 3 finishes the
batch at its next start, from the same files; the log drops the trains that it has. Commits to one stream take turns, so
its epochs only rise.

Reading. An offset is the number of tuples that the output has emitted. A reader has a name, and the log keeps what the
reader has not released. That needs a data_dir.
"""

from __future__ import annotations

import logging
import os
import secrets
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from threading import Event, Lock
from typing import Any

from catalog.errors import AuroraError
from catalog.network import Network, Output, Stream
from router.boundary import OutputHistory, StreamEntrance
from router.codecs.arrow import ArrowDecoder, ArrowEncoder
from router.codecs.base import Intake
from router.spark.daemon.batches import BatchLedger
from router.spark.daemon.intake import FRAME_BYTES, StreamIntake, find_stream
from router.spark.daemon.pace import JobStoppedError, Pacer
from router.spark.daemon.port import Handler
from router.spark.daemon.request import PortRequest
from router.spark.wire.errors import SparkRefusedError
from router.spark.wire.peer import Peer, PortError
from router.spark.wire.pipe import fields_of
from storage.train import Train

log = logging.getLogger("aurorad.spark")

STAGED_BYTES = 8 * 1024**3
READ_BYTES = 4 * 1024**2
DISK_POLL_SECONDS = 0.005


class Exchange:
    """``folder`` makes the folder for staged rows and the ledger; it is called on first use. Any thread."""

    def __init__(
        self,
        network: Network,
        intake: StreamIntake,
        folder: Callable[[], Path],
        entrance: StreamEntrance,
        now_ns: Callable[[], int],
        *,
        histories: Sequence[OutputHistory] | None,
    ) -> None:
        self._network = network
        self._intake = intake
        self._make_folder = folder
        self._pacer = Pacer(entrance.has_bulk_room, now_ns)
        self._now_ns = now_ns
        self._histories = histories
        self._stopped = Event()
        self._lock = Lock()
        self._commit_locks = [Lock() for _ in network.streams]
        self._staged_bytes = 0
        self._ledger: BatchLedger | None = None
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
        """Finish the batches that were decided before a crash. Only with a data_dir, when the engine runs."""
        try:
            pending = self._opened().pending()
        except AuroraError as error:  # every request for it is answered with the same words
            log.error("batches that Spark committed before: %s", error)
            return
        for entry in pending:
            batch = f"query {entry['query']}: batch {entry['batch']}"
            try:
                rows = self._finish(entry)
            except (AuroraError, OSError, JobStoppedError) as error:
                log.error("%s, decided before the crash, cannot enter: %s", batch, error)
            else:
                log.info("%s, decided before the crash, has entered: %d rows", batch, rows)

    def stop(self) -> None:
        self._stopped.set()

    def _opened(self) -> BatchLedger:
        with self._lock:
            if self._ledger is None:
                try:
                    self._ledger = BatchLedger(self._make_folder())
                except OSError as error:
                    raise PortError(f"the folder of staged rows cannot be used: {error.strerror}") from error
            return self._ledger

    def _describe(self, peer: Peer, request: PortRequest) -> None:
        """Answer the fields of a stream or of an output."""
        schema = self._stream(request).schema if "stream" in request else self._output(request).schema
        peer.say(ok=True, fields=fields_of(schema))

    def _stream(self, request: PortRequest) -> Stream:
        return find_stream(self._network, request.text("stream"))

    def _output(self, request: PortRequest) -> Output:
        name = request.text("output")
        for output in self._network.outputs:
            if output.name == name:
                return output
        names = ", ".join(o.name for o in self._network.outputs)
        raise SparkRefusedError(f"there is no output {name}; the outputs are {names}")

    # -- writing ------------------------------------------------------------------------------------------------------

    def _stage(self, peer: Peer, request: PortRequest) -> None:
        """Write a task's rows to disk, synced, after a check against the stream's schema. Answer their name."""
        stream, ledger = self._stream(request), self._opened()
        name = secrets.token_hex(12)
        checker = ArrowDecoder(Intake(stream.schema, batch_bytes=FRAME_BYTES))
        path = ledger.staged(name)
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
            if (rows := PortRequest(peer.hear()).number("rows")) != checker.received:
                raise PortError(f"{checker.received} rows came of the {rows} that were sent")
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

    def _abort(self, peer: Peer, request: PortRequest) -> None:
        """Delete the staged rows of a write that Spark gave up, except those of a decided batch."""
        ledger = self._opened()
        for name in request.texts("staged"):
            if not ledger.is_decided(name):
                self._drop(ledger.staged(name))
        peer.say(ok=True)

    def _commit(self, peer: Peer, request: PortRequest) -> None:
        """Take a batch into its stream, or drop it as a repeat."""
        stream, ledger = self._stream(request), self._opened()
        query, batch = request.text("query", characters=4_096), request.number("batch", 0)
        names = request.texts("staged")
        with self._commit_locks[stream.number]:
            if ledger.last(query) >= batch:
                self._drop_staged(ledger, names)
                peer.say(ok=True, rows=0, repeated=True)
                return
            entry = ledger.decide(query, batch, stream.name, names, self._now_ns())
            rows = self._finish(entry)
            self._drop_staged(ledger, names)
        peer.say(ok=True, rows=rows, repeated=False)

    def _drop_staged(self, ledger: BatchLedger, names: list[str]) -> None:
        for name in names:
            self._drop(ledger.staged(name))

    def _finish(self, entry: Mapping[str, Any]) -> int:
        """Let the rows of a decided batch in, and record the batch as finished. Return how many rows there were."""
        stream, ledger = find_stream(self._network, entry["stream"]), self._opened()
        sequence = rows = 0
        source = f"spark/format/{stream.name}"
        for train in self._trains(stream, entry):
            for piece in self._pacer.trains(train, self._stopped):
                sequence += 1
                if not self._intake.entrance.enter(stream.number, piece, source, entry["epoch"], sequence):
                    raise PortError("the log has no room")
                rows += piece.count
        while sequence and not self._intake.entrance.is_on_disk(stream.number, source, entry["epoch"], sequence):
            if self._stopped.wait(DISK_POLL_SECONDS):
                raise PortError("aurorad is stopping")
        ledger.done(entry)
        return rows

    def _trains(self, stream: Stream, entry: Mapping[str, Any]) -> Iterator[Train]:
        for name in entry["staged"]:
            decoder = self._intake.decoder(stream)
            for frame in frames_of(self._opened().staged(name)):
                received = decoder.receive(frame, self._now_ns())
                yield from received.trains
                self._intake.refuse(stream, f"query {entry['query']}", received)

    # -- reading ------------------------------------------------------------------------------------------------------

    def _kept(self, output: Output) -> OutputHistory:
        if self._histories is None:
            raise SparkRefusedError(
                f"output {output.name} has no history: reading from an offset takes engine.data_dir"
            )
        return self._histories[output.number]

    def _offsets(self, peer: Peer, request: PortRequest) -> None:
        """Answer where a reader stands and how far it can read. A new name begins at the newest tuple."""
        output = self._output(request)
        history = self._kept(output)
        start = history.subscribe(_reader(request), None)
        peer.say(ok=True, start=start, oldest=history.oldest - 1, newest=history.readable)

    def _read(self, peer: Peer, request: PortRequest) -> None:
        """Send the tuples behind ``start``, up to and with ``end``."""
        output = self._output(request)
        history = self._kept(output)
        at, end = request.number("start"), request.number("end")
        encoder = ArrowEncoder(output.schema, "us")
        peer.say(ok=True)
        peer.send_frame(encoder.begin())
        rows = 0
        while at < end:
            pieces = history.read(_reader(request), at, READ_BYTES)
            if not pieces:
                raise PortError(f"output {output.name} does not have {end} tuples")
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

    def _release(self, peer: Peer, request: PortRequest) -> None:
        """Let the log forget what this reader has read, up to ``end``."""
        self._kept(self._output(request)).acknowledge(_reader(request), request.number("end"))
        peer.say(ok=True)


def _reader(request: PortRequest) -> str:
    name = request.text("reader", "", characters=200)
    if not name:
        raise SparkRefusedError("a reader needs a name, of at most 200 characters")
    return f"spark:{name}"


def frames_of(path: Path) -> Iterator[bytes]:
    with path.open("rb") as staged:
        while head := staged.read(4):
            yield staged.read(struct.unpack(">I", head)[0])
