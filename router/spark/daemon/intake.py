"""Take rows off the Spark port and let them into streams: decode, check, pace, enter, count.

The decoder is the sockets' Arrow codec, so rows from Spark obey the same rules and limits. Refused rows are counted
with their stream and kept as dead letters.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from threading import Event, Lock, get_native_id
from typing import Protocol

from catalog.network import Network, Stream
from router.boundary import StreamEntrance
from router.codecs.arrow import ArrowDecoder
from router.codecs.base import Intake, Reason, Received, Reject
from router.spark.daemon.entrance import BulkEntrance
from router.spark.daemon.ledger import JobLedger, JobMemory
from router.spark.daemon.pace import JobStoppedError, Pacer, parse_pace
from router.spark.daemon.progress import JobProgress, JobTable
from router.spark.daemon.request import PortRequest
from router.spark.wire.errors import SparkRefusedError
from router.spark.wire.peer import Peer, PortError

FRAME_BYTES = 64 * 1024**2
DISK_POLL_SECONDS = 0.005
BULK_NICE = 5


class DeadLetterBox(Protocol):
    def __call__(self, stream: str, sender: str, rejects: Sequence[Reject]) -> None:
        """Keep rows that were refused, with their stream and sender."""


@dataclass
class BulkCounts:
    """What one stream has received over the Spark port. Guarded by the lock."""

    received: int = 0  # tuples, accepted and refused
    received_bytes: int = 0
    rejected: dict[Reason, int] = field(default_factory=dict)
    duplicates: int = 0
    connections: int = 0
    lock: Lock = field(default_factory=Lock)


class StreamIntake:
    """The bulk way into the streams of a network."""

    def __init__(
        self,
        network: Network,
        entrance: StreamEntrance,
        dead_letters: DeadLetterBox,
        now_ns: Callable[[], int],
        ledger: JobLedger,
    ) -> None:
        self._ledger = ledger
        self._network = network
        self.entrance = BulkEntrance(entrance, self._count)
        self._may_enter = entrance.has_bulk_room
        self._dead_letters = dead_letters
        self._now_ns = now_ns
        self.jobs = JobTable()
        self.counts = [BulkCounts() for _ in network.streams]
        self._intakes = [Intake(stream.schema, batch_bytes=FRAME_BYTES) for stream in network.streams]

    # -- jobs ---------------------------------------------------------------------------------------------------------

    def begin(
        self, job: str, stream: str, *, pace: str = "as_fast", fingerprint: str = "", parts: int = 0, rows: int = 0
    ) -> JobProgress:
        """Begin a job, or go on with the one of this name. Raises SparkRefusedError."""
        entry = find_stream(self._network, stream)
        try:
            speed = parse_pace(pace)
        except ValueError as error:
            raise SparkRefusedError(str(error)) from None
        column = None if entry.time_field is None else entry.schema.index(entry.time_field)
        if speed and column is None:
            raise SparkRefusedError(f"pace {pace}: stream {stream} has no event time to go by")
        pacer = Pacer(self._may_enter, self._now_ns, speed=speed, column=column)
        known = self._ledger.begin(job, fingerprint, self._now_ns())
        progress = self.jobs.begin(
            JobProgress(
                job, entry, pacer, self.entrance, fingerprint=fingerprint, parts=parts, rows=rows, epoch=known.epoch
            )
        )
        if known.is_done:
            progress.end()
        return progress

    def end(self, progress: JobProgress, error: str = "", memory: JobMemory | None = None) -> None:
        """End a job: all of its rows are here, or it failed. ``memory`` is for the next run."""
        progress.end(error)
        if not error:
            self._ledger.done(progress.job, memory or JobMemory())

    def has_read(self, job: str, files: str) -> bool:
        """Tell whether an earlier run has read exactly these files."""
        return self._ledger.has_read(job, files)

    def has_read_other(self, job: str, fingerprint: str) -> bool:
        """Tell whether a job of this name has read another input to its end, before this process or in it."""
        return self._ledger.has_read_other(job, fingerprint)

    def quarantine(self, stream: Stream, rows: int, file: str) -> None:
        """Count rows that do not fit the stream. Spark has written them to a file, with their reasons."""
        message = f"{rows:,} rows do not fit the stream; {file} has each of them with its reason"
        self.refuse(stream, "Spark", Received([], [Reject(Reason.QUARANTINED, 0, 0, message, tuples=rows)]))

    def mark(self, job: str) -> str:
        """Return how far earlier runs have read an increasing field; empty at first."""
        return self._ledger.mark(job)

    def push(self, peer: Peer, request: PortRequest) -> None:
        """Receive a partition of a job from an executor."""
        lower_thread_priority()
        progress = self.jobs.get(request.text("job"))
        number = request.number("partition", 0)
        part = progress.part(number)
        attempt, stopped = progress.take_over(part)
        counts = self.counts[progress.stream.number]
        with counts.lock:
            counts.connections += 1
        try:
            peer.say(ok=True, rows=part.rows)
            for received, rows in self.batches(progress.stream, peer):
                good = self._enter(progress, number, attempt, received, stopped)
                progress.close_batch(part, attempt, rows, good)
                self.refuse(progress.stream, peer.name, received)
            rows = PortRequest(peer.hear()).number("rows")
            self._wait_for_disk(progress, number, stopped)
            progress.finish_part(part, attempt, rows)
            peer.say(ok=True, rows=rows)
        finally:
            with counts.lock:
                counts.connections -= 1

    def _enter(self, progress: JobProgress, number: int, attempt: int, received: Received, stopped: Event) -> int:
        """Let the accepted rows of a batch in, each train when it may enter. Return how many rows there are."""
        part = progress.part(number)
        good, again = 0, part.ahead  # rows of this batch that an earlier attempt has brought
        for train in received.trains:
            fresh = train.slice(min(again, train.count), train.count)
            for piece in progress.pacer.trains(fresh, stopped):
                progress.enter(number, attempt, piece)
            good += train.count
            again -= train.count - fresh.count
        return good

    def _wait_for_disk(self, progress: JobProgress, number: int, stopped: Event) -> None:
        """Wait until all trains of a partition are in the log, if there is one: only then they are acknowledged."""
        part = progress.part(number)
        while not progress.is_on_disk(number, part):
            if stopped.wait(DISK_POLL_SECONDS):
                raise JobStoppedError

    # -- rows ---------------------------------------------------------------------------------------------------------

    def decoder(self, stream: Stream) -> ArrowDecoder:
        """Make a decoder. All decoders of a stream share one string pool."""
        return ArrowDecoder(self._intakes[stream.number])

    def batches(self, stream: Stream, peer: Peer) -> Iterable[tuple[Received, int]]:
        """Decode frame after frame, each with its number of rows. Raises PortError when the schema does not fit."""
        decoder = self.decoder(stream)
        counts = self.counts[stream.number]
        for frame in peer.frames(FRAME_BYTES):
            before = decoder.received
            received = decoder.receive(frame, self._now_ns())
            with counts.lock:
                counts.received_bytes += len(frame)
            if received.fatal:
                self.refuse(stream, peer.name, received)
                raise PortError(f"stream {stream.name}: {received.rejects[-1].message}")
            yield received, decoder.received - before

    def _count(self, stream: int, tuples: int, duplicates: int) -> None:
        counts = self.counts[stream]
        with counts.lock:
            counts.received += tuples
            counts.duplicates += duplicates

    def refuse(self, stream: Stream, sender: str, received: Received) -> None:
        """Count the refused rows of a batch. Call it when the batch is complete: an attempt that breaks off before
        brings them again."""
        if not received.rejects:
            return
        counts = self.counts[stream.number]
        with counts.lock:
            for reject in received.rejects:
                counts.received += reject.tuples
                counts.rejected[reject.reason] = counts.rejected.get(reject.reason, 0) + reject.tuples
        self._dead_letters(stream.name, sender, received.rejects)


def lower_thread_priority() -> None:
    """Let this thread, which decodes bulk rows, yield its core to threads that carry live tuples.

    Linux has a nice value for each thread. Elsewhere it belongs to the process and stays as it is.
    """
    if sys.platform == "linux":
        here = get_native_id()
        os.setpriority(os.PRIO_PROCESS, here, min(19, os.getpriority(os.PRIO_PROCESS, here) + BULK_NICE))


def find_stream(network: Network, name: str) -> Stream:
    for stream in network.streams:
        if stream.name == name:
            return stream
    raise SparkRefusedError(f"there is no stream {name}; the streams are {', '.join(s.name for s in network.streams)}")
