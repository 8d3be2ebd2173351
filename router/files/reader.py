"""A file, a FIFO or standard input as the source of a stream: a thread that reads, decodes and admits.

The thread reads a block, decodes it with the stream's codec, waits for room, and admits the train. It never sheds. A
bad line is refused and kept as a dead letter with the file and the line; the lines around it pass. Only what no decoder
can understand (a CSV header without a needed column, bytes that are not Arrow) ends the source with an error.

Position. With a data_dir every block becomes one numbered batch, also when it has no good row. The epoch of its number
is the byte behind the block, and the log commits the number with the rows. A restart reads up to the last committed
byte without admitting, which brings the decoder to where it was, and goes on from there.

``follow`` waits for more at the end, as ``tail -F`` does. It goes on with a new file of the same name, and begins again
when the file was truncated.

Threads: ``stop`` and the counts from any thread; everything else on the reader's own.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Sequence
from threading import Event, Thread
from typing import Protocol

from router.boundary import FILE, StreamEntrance
from router.codecs.base import Decoder, Received, Reject
from router.files.inputs import FileInput
from router.server import SourcePort
from storage.admission import BatchNumber
from storage.train import NO_WATERMARK, Train

log = logging.getLogger("aurorad.files")

TEXT_READ_BYTES = 1024**2
VIEW_READ_BYTES = 4 * 1024**2
ROOM_POLL_SECONDS = 0.0005
FOLLOW_POLL_SECONDS = 0.1


class ReaderWatcher(Protocol):
    """Is called on the reader's own thread."""

    def source_is_read(self, stream: int) -> None:
        """All rows of this stream's source have entered, now or before a restart."""

    def source_has_ended(self) -> None:
        """A source has come to its end or has failed. This is the last call of its thread."""


class KeepRejects(Protocol):
    def __call__(self, stream: str, sender: str, rejects: Sequence[Reject]) -> None:
        """Keep refused rows as dead letters."""


class _SourceFailedError(Exception):
    """The source cannot be read on; the message is for the user."""


class FileReader:
    """The source of one stream. This thread is the only writer of the port's counts: the stream has no listener."""

    def __init__(
        self,
        port: SourcePort,
        source: FileInput,
        entrance: StreamEntrance,
        keep_rejects: KeepRejects,
        watcher: ReaderWatcher,
        now_ns: Callable[[], int],
        *,
        follow: bool = False,
    ) -> None:
        self.stream = port.stream
        self.error = ""
        self.is_ended = False
        self._port = port
        self._input = source
        self._entrance = entrance
        self._keep_rejects = keep_rejects
        self._watcher = watcher
        self._now_ns = now_ns
        self._follow = follow
        self._stopped = Event()
        self._decoder: Decoder = port.make_decoder()
        self._counted = 0  # tuples of the decoder that are in the port's count
        self._identity = ""
        self.thread = Thread(target=self._run, name=f"aurorad-file-{self.stream.name}", daemon=True)

    def open(self) -> None:
        """Open the file, if it is there or must be there. Raises OSError."""
        try:
            self._input.open()
        except FileNotFoundError:
            if not self._follow:
                raise
            log.info("stream %s waits for %s, which does not exist yet", self.stream.name, self._input.name)

    def stop(self) -> None:
        """Admit nothing more."""
        self._stopped.set()

    @property
    def is_reading(self) -> bool:
        return self.thread.is_alive()

    # -- the thread ---------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        self._port.connections += 1
        try:
            self._read_all()
            if not self._stopped.is_set():
                self._watcher.source_is_read(self.stream.number)
        except (_SourceFailedError, OSError) as error:
            why = str(error) if isinstance(error, _SourceFailedError) else error.strerror or str(error)
            self.error = f"{self._input.name}: {why}"
            log.error("stream %s: %s", self.stream.name, self.error)
        finally:
            self._port.connections -= 1
            self._input.close()
            self.is_ended = True
            self._watcher.source_has_ended()

    def _read_all(self) -> None:
        """Read until the end or until ``stop``. With ``follow`` there is no end."""
        while not self._stopped.is_set():
            if self._input.is_open or self._opens_again():
                self._skip_known()
                self._read_one()
                if not self._follow:
                    return
                self._input.close()

    def _opens_again(self) -> bool:
        try:
            self._input.open()
        except FileNotFoundError:
            self._stopped.wait(FOLLOW_POLL_SECONDS)
            return False
        return True

    def _read_one(self) -> None:
        """Read the open file to its end; with ``follow``, until another file has its name."""
        size = VIEW_READ_BYTES if self._decoder.takes_views else TEXT_READ_BYTES
        while not self._stopped.is_set():
            data = self._input.read(size)
            if data:
                arrival_ns = self._now_ns()
                self._port.received_bytes += len(data)
                self._take(self._decoder.receive(data, arrival_ns), 1)
            elif data is not None and self._has_ended():
                self._take(self._decoder.end(self._now_ns()), 2)
                self._begin_anew()
                return

    def _has_ended(self) -> bool:
        """At the end of what is there, tell whether more may come. With ``follow``, wait a moment."""
        if not self._follow:
            return True
        if self._input.is_replaced():
            log.info("stream %s: %s is a new file now", self.stream.name, self._input.name)
            return True
        self._stopped.wait(FOLLOW_POLL_SECONDS)
        return False

    def _begin_anew(self) -> None:
        self._decoder = self._port.make_decoder()
        self._counted = 0

    # -- position -----------------------------------------------------------------------------------------------------

    def _find_identity(self) -> tuple[int, int]:
        """Find the name under which the log knows this file. Return the last committed byte and sequence.

        A file that is shorter than the log knows it was rewritten in place: it gets a new name.
        """
        self._identity = base = self._input.identity() if self._entrance.keeps_batches else ""
        for again in itertools.count(1):
            known = self._entrance.numbers.newest(self.stream.number, self._identity) if base else (0, 0)
            if not base or known[0] <= self._input.size():
                return known
            self._identity = f"{base} {again}"
        raise AssertionError("unreachable")

    def _skip_known(self) -> None:
        """Read what an earlier run has admitted, which brings the decoder to where it was, and admit none of it."""
        known_bytes, sequence = self._find_identity()
        if not sequence:
            return
        while self._input.offset < known_bytes and not self._stopped.is_set():
            data = self._input.read(min(VIEW_READ_BYTES, known_bytes - self._input.offset))
            if not data:
                break
            self._decoder.receive(data, self._now_ns())
        if sequence == 2:  # a last line without its newline was admitted too
            self._decoder.end(self._now_ns())
        self._counted = self._decoder.received
        log.info(
            "stream %s: the first %d bytes of %s were read before", self.stream.name, known_bytes, self._input.name
        )

    # -- rows ---------------------------------------------------------------------------------------------------------

    def _take(self, received: Received, sequence: int) -> None:
        """Count, refuse and admit what the decoder returned for the bytes up to the current position."""
        self._port.received += self._decoder.received - self._counted
        self._counted = self._decoder.received
        if received.rejects:
            self._refuse(received.rejects)
            if received.fatal:
                raise _SourceFailedError(received.rejects[-1].message)
        full = [train for train in received.trains if train.count]
        if not self._identity:
            self._find_identity()  # the first line was not there when the file was opened
        if full or self._identity:
            self._admit(Train.concat(full) if full else Train.empty(self.stream.schema, NO_WATERMARK), sequence)
        for train in received.trains:
            if not train.count and train.watermark_ns != NO_WATERMARK:
                self._entrance.heartbeat(self.stream.number, train.watermark_ns)

    def _admit(self, train: Train, sequence: int) -> None:
        number = self.stream.number
        while not (self._entrance.has_bulk_room() and self._entrance.may_read(number)):
            if self._stopped.wait(ROOM_POLL_SECONDS):
                break  # what was read is still admitted, as from a socket
        origin = FILE
        if self._identity:
            origin = FILE.numbered(BatchNumber(self._identity, self._input.offset, sequence, can_wait=True))
        self._entrance.admit(number, train, origin)

    def _refuse(self, rejects: Sequence[Reject]) -> None:
        counts = self._port.rejected
        for reject in rejects:
            counts[reject.reason] = counts.get(reject.reason, 0) + reject.tuples
        self._keep_rejects(self.stream.name, self._input.name, rejects)
