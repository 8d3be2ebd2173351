"""Rows off the Spark port into streams: decoded, checked, counted, admitted.

The decoder is the Arrow codec of the sockets, so rows from Spark obey the same rules and the same limits. Whatever is
refused is counted with its stream and kept as a dead letter.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from threading import Event, Lock, get_native_id
from typing import Any

from catalog.network import Network, Stream
from router.codecs.arrow import ArrowDecoder
from router.codecs.base import Intake, Reason, Received, Reject
from router.spark.errors import SparkRefusedError
from router.spark.ledger import Ledger
from router.spark.loads import Doors, Load, Loads, Numbered
from router.spark.pace import Pacer, StoppedError, parse_pace
from router.spark.port import Peer, PortError
from storage.train import Train

FRAME_BYTES = 64 * 1024**2
SETTLE_SECONDS = 0.005
BULK_NICE = 5

Admit = Callable[[int, Train], None]
Letters = Callable[[str, str, Sequence[Reject]], None]


@dataclass
class Counts:
    """What came to one stream over the Spark port. Guarded by the lock."""

    received: int = 0  # tuples, good and bad
    received_bytes: int = 0
    rejected: dict[Reason, int] = field(default_factory=dict)
    duplicates: int = 0
    connections: int = 0
    lock: Lock = field(default_factory=Lock)


class StreamIntake:
    """The bulk way into the streams of a network. ``may_enter`` says whether queues are short enough for bulk rows."""

    def __init__(
        self,
        network: Network,
        admit: Admit,
        may_enter: Callable[[], bool],
        letters: Letters,
        now_ns: Callable[[], int],
        *,
        ledger: Ledger | None = None,
        numbered: Numbered | None = None,
        batch_bytes: int = FRAME_BYTES,
    ) -> None:
        self._ledger = ledger if ledger is not None else Ledger(None)
        self._numbered = numbered
        self._network = network
        self.doors = Doors(admit, self._count)
        self._may_enter = may_enter
        self._letters = letters
        self._now_ns = now_ns
        self._batch_bytes = batch_bytes
        self.loads = Loads()
        self.counts = [Counts() for _ in network.streams]
        self._intakes = [Intake(stream.schema, batch_bytes=batch_bytes) for stream in network.streams]

    # -- jobs ---------------------------------------------------------------------------------------------------------

    def begin(
        self, job: str, stream: str, *, pace: str = "as_fast", fingerprint: str = "", parts: int = 0, rows: int = 0
    ) -> Load:
        """A job, new or gone on with. Raises SparkRefusedError."""
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
        load = self.loads.begin(
            Load(
                job, entry, pacer, fingerprint=fingerprint, parts=parts, rows=rows, numbered=self._numbered,
                epoch=known.epoch,
            )
        )  # fmt: skip
        if known.is_done:
            load.end()
        return load

    def end(self, load: Load, error: str = "") -> None:
        """All of a job is here, or it failed."""
        load.end(error)
        if not error:
            self._ledger.done(load.job)

    def push(self, peer: Peer, hello: Mapping[str, Any]) -> None:
        """An executor brings a part of a job."""
        come_last()
        load = self.loads.get(str(hello.get("job")))
        number = int(hello.get("partition", 0))
        part = load.part(number)
        attempt, stopped = load.take_over(part)
        counts = self.counts[load.stream.number]
        with counts.lock:
            counts.connections += 1
        try:
            peer.say(ok=True, rows=part.rows)
            for received, rows in self.batches(load.stream, peer):
                good = self._enter(load, number, attempt, received, stopped)
                load.close_batch(part, attempt, rows, good)
                self.refuse(load.stream, peer.name, received)
            rows = int(peer.hear()["rows"])
            self._settle(load, number, stopped)
            load.finish_part(part, attempt, rows)
            peer.say(ok=True, rows=rows)
        finally:
            with counts.lock:
                counts.connections -= 1

    def _enter(self, load: Load, number: int, attempt: int, received: Received, stopped: Event) -> int:
        """The good rows of a batch, each train when it may; how many they are."""
        part = load.part(number)
        good, again = 0, part.ahead  # what of this batch has entered before
        for train in received.trains:
            fresh = train.slice(min(again, train.count), train.count)
            for piece in load.pacer.trains(fresh, stopped):
                load.enter(number, attempt, piece, self.doors)
            good += train.count
            again -= train.count - fresh.count
        return good

    def _settle(self, load: Load, number: int, stopped: Event) -> None:
        """What is acknowledged is on disk, where there is one to be on."""
        part = load.part(number)
        while not load.is_on_disk(number, part):
            if stopped.wait(SETTLE_SECONDS):
                raise StoppedError

    # -- rows ---------------------------------------------------------------------------------------------------------

    def decoder(self, stream: Stream) -> ArrowDecoder:
        """Its strings go into the pool that all rows from Spark share."""
        return ArrowDecoder(self._intakes[stream.number])

    def batches(self, stream: Stream, peer: Peer) -> Iterable[tuple[Received, int]]:
        """What comes, frame by frame, with how many rows each was. A schema that does not fit ends it."""
        decoder = self.decoder(stream)
        counts = self.counts[stream.number]
        for frame in peer.frames(self._batch_bytes):
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
        """Count what was refused, once its batch is dealt with: an attempt that was cut off brings it again."""
        if not received.rejects:
            return
        counts = self.counts[stream.number]
        with counts.lock:
            for reject in received.rejects:
                counts.received += reject.tuples
                counts.rejected[reject.reason] = counts.rejected.get(reject.reason, 0) + reject.tuples
        self._letters(stream.name, sender, received.rejects)


def come_last() -> None:
    """This thread unpacks bulk rows: where a core is wanted by it and by one that carries live tuples, it waits. (Linux
    gives every thread a nice value of its own; elsewhere it is the process's, and stays as it is.)"""
    if sys.platform == "linux":
        here = get_native_id()
        os.setpriority(os.PRIO_PROCESS, here, min(19, os.getpriority(os.PRIO_PROCESS, here) + BULK_NICE))


def find_stream(network: Network, name: str) -> Stream:
    for stream in network.streams:
        if stream.name == name:
            return stream
    raise SparkRefusedError(f"there is no stream {name}; there is {', '.join(s.name for s in network.streams)}")
