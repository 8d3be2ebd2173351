"""Replay: the log behind a checkpoint goes through the network once more.

There are two passes. ``read_emitted`` reads the tuples that were emitted to named readers since the checkpoint, so that
the second pass recognises them. ``replay`` lets the trains enter, each with the time at which it was logged. ``settle``
waits until the engine has nothing left to do. ``finish`` compares: if a tuple that was emitted before the crash did not
come again, the tuples that came instead are flagged as possible repeats.

A crash during a replay does no harm. The log holds what the replay emitted, behind a note of where the replay began,
and the next replay recognises it like everything else.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from time import monotonic, sleep
from typing import Any, NamedTuple

from catalog.network import Network
from engine.daemon.durable.committer import Committer, Emitted, Note
from engine.daemon.durable.data_format import DataFormat
from engine.daemon.durable.gone_outputs import GoneOutputs
from engine.daemon.durable.outbox import Outbox
from engine.daemon.durable.records import NAMED, OUTPUT, RECOVERED, REPEATS, TRAIN, batches_of, unpack
from engine.daemon.durable.regenerated import Regenerated
from engine.run.core import Engine
from storage.admission import BatchNumber
from storage.encode import EncodingError, TrainReader
from storage.log import Log, LogDamageError
from storage.log_records import LogRecord
from storage.train import Train

log = logging.getLogger("aurorad.durable")

PROGRESS_EVERY_SECONDS = 0.2
SETTLE_POLL_SECONDS = 0.002

Enter = Callable[[int, Train, int, list[BatchNumber]], None]
"""Takes a stream's number, a train, the time at which it was logged, and the batches that it is made of."""


class Progress(NamedTuple):
    done_bytes: int
    total_bytes: int
    tuples: int
    seconds: float


class Recovered(NamedTuple):
    """What a start found in the data_dir, and how long its replay took."""

    checkpoint: int = 0  # its number, 0 without one
    log_bytes: int = 0  # behind the checkpoint
    torn_bytes: int = 0  # removed from the end of the log
    passed_over: int = 0  # bad checkpoints
    tuples: int = 0  # that the replay let enter
    seconds: float = 0.0


class Recovery:
    def __init__(
        self,
        journal: Log,
        position: int,
        network: Network,
        outboxes: Sequence[Outbox],
        committer: Committer,
        format: DataFormat,
        gone: GoneOutputs,
    ) -> None:
        self._format = format
        self._gone = gone
        self._log = journal
        self._position = position
        self._end = journal.durable
        self._network = network
        self._outboxes = {outbox.output.name: outbox for outbox in outboxes}
        self._committer = committer
        self._streams = {s.name: s for s in network.streams}
        self._numbers = {o.name: o.number for o in network.outputs}
        self.log_bytes = self._end - position

    # -- what was emitted ---------------------------------------------------------------------------------------------

    def read_emitted(self, unlogged: Sequence[Sequence[Any]]) -> None:
        """Bring the outboxes to where they were when the log ended. ``unlogged`` comes from the checkpoint."""
        at_checkpoint = {name: outbox.next for name, outbox in self._outboxes.items()}
        emitted: dict[str, list[Train]] = {name: [] for name in self._outboxes}
        reader = TrainReader()
        began: dict[str, int] = {}
        for record, note, rest in self._notes():
            if record.kind == RECOVERED:
                for name, number in note["q"].items():
                    began.setdefault(name, number)  # of several replays the first one counts
            elif (outbox := self._outboxes.get(note["o"])) is None:
                self._gone.note(record, note)
            elif record.kind == OUTPUT:
                train = self._decode(record, note, reader, rest, outbox)
                first = int(note["q"])
                if first >= at_checkpoint[note["o"]]:
                    emitted[note["o"]].append(train)
                outbox.next = max(outbox.next, first + train.count)
                outbox.committed(first, train.count, record.position)
            elif record.kind == NAMED:
                self._name(outbox, note)
            elif record.kind == REPEATS:
                if note["z"] >= note["q"]:
                    outbox.repeats.append((int(note["q"]), int(note["z"])))
                began.pop(note["o"], None)
        self._put_back(unlogged)
        for name, outbox in self._outboxes.items():
            outbox.assume_all_seen()
            outbox.replayed_from = began.get(name, outbox.next - 1) + 1
            if outbox.is_kept:
                outbox.regenerated = Regenerated(emitted[name])

    def _notes(self) -> Iterator[tuple[LogRecord, dict[str, Any], memoryview]]:
        """Yield each record behind the checkpoint but the input trains, with its note and the bytes after the note.

        An input train that this network cannot take raises LogDamageError: here nothing has changed yet.
        """
        for record in self._log.records(self._position, self._end):
            note, rest = unpack(record.payload)
            if record.kind == TRAIN:
                self._check_train(record, note)
            else:
                yield record, note, rest

    def _check_train(self, record: LogRecord, note: dict[str, Any]) -> None:
        stream = self._streams.get(note["s"])
        if stream is None:
            raise self._not_ours(record, f"stream {note['s']}", "which this network does not have")
        if "f" in note and (why := self._format.why_unreadable(note["f"], stream.schema)):
            raise self._not_ours(record, f"stream {stream.name}", f"which had other fields then ({why})")

    def _decode(
        self, record: LogRecord, note: dict[str, Any], reader: TrainReader, rest: memoryview, outbox: Outbox
    ) -> Train:
        output, mark = outbox.output, self._format.output_mark(note)
        if why := self._format.why_unreadable(mark, output.schema):
            raise self._not_ours(record, f"output {output.name}", f"which had other fields then ({why})")
        try:
            return self._format.decode(reader, rest, mark, output.schema)
        except EncodingError as error:
            raise LogDamageError("the log", record.position, f"output {output.name}: {error}") from error

    def _name(self, outbox: Outbox, note: dict[str, Any]) -> None:
        name, number = note["name"], int(note["q"])
        if number < 0:
            outbox.names.pop(name, None)
            return
        outbox.names[name] = max(number, outbox.names.get(name, 0))
        outbox.next = max(outbox.next, number + 1)  # numbers that were given while nobody had a name are not in the log

    def _put_back(self, unlogged: Sequence[Sequence[Any]]) -> None:
        """Submit the outputs that were emitted before the checkpoint and had not reached the log: only it has them."""
        for name, first, train in unlogged:
            outbox = self._outboxes.get(name)
            if outbox is not None and first > outbox.readable:
                self._committer.submit(Emitted(self._numbers[name], first, train, train.nbytes))

    # -- through the network ------------------------------------------------------------------------------------------

    def replay(self, engine: Engine, enter: Enter, on_progress: Callable[[Progress], None]) -> int:
        """Let the trains of the log enter. Returns how many tuples they have."""
        if any(outbox.is_kept for outbox in self._outboxes.values()) and self.log_bytes:
            began = {name: outbox.replayed_from - 1 for name, outbox in self._outboxes.items()}
            self._committer.submit(Note(RECOVERED, {"q": began}))
        begun = reported = monotonic()
        reader = TrainReader()
        tuples = 0
        for record in self._log.records(self._position, self._end):
            if record.kind != TRAIN:
                continue
            note, rest = unpack(record.payload)
            stream = self._streams[note["s"]]
            try:
                train = self._format.decode(reader, rest, note.get("f"), stream.schema)
            except EncodingError as error:
                raise LogDamageError("the log", record.position, f"stream {stream.name}: {error}") from error
            while not engine.ingress.wait_for_memory(PROGRESS_EVERY_SECONDS):
                on_progress(Progress(record.position - self._position, self.log_bytes, tuples, monotonic() - begun))
            enter(stream.number, train, int(note["n"]), batches_of(note))
            tuples += train.count
            if monotonic() - reported > PROGRESS_EVERY_SECONDS:
                reported = monotonic()
                on_progress(Progress(record.end - self._position, self.log_bytes, tuples, reported - begun))
        on_progress(Progress(self.log_bytes, self.log_bytes, tuples, monotonic() - begun))
        return tuples

    def _not_ours(self, record: LogRecord, place: str, why: str) -> LogDamageError:
        why = f"acknowledged tuples of {place}, {why}: start once with the network file before, and stop that"
        return LogDamageError("the log", record.position, why)

    def settle(
        self,
        engine: Engine,
        commit: Callable[[], None],
        on_progress: Callable[[Progress], None],
    ) -> None:
        """Wait until everything that follows from the log has come out, and is in the log itself."""
        begun = reported = monotonic()
        # A full disk keeps the committer from coming to rest, but not the engine. ``finish`` may compare only when the
        # engine has computed everything again.
        while not (engine.is_quiet() and (self._committer.is_idle or self._committer.refusal)):
            if engine.loop.failure is not None:
                return
            if monotonic() - reported > PROGRESS_EVERY_SECONDS:
                reported = monotonic()
                on_progress(Progress(self.log_bytes, self.log_bytes, 0, reported - begun))
            commit()
            sleep(SETTLE_POLL_SECONDS)

    def finish(self) -> None:
        """Decide whether the tuples that the replay added may be repeats. From here on they may be read."""
        for name, outbox in self._outboxes.items():
            with outbox.lock:
                regenerated, outbox.regenerated = outbox.regenerated, None
                if regenerated is None or not self.log_bytes:
                    continue
                first, last = outbox.replayed_from, outbox.next - 1
                if not regenerated.left:
                    last = first - 1  # everything that was emitted before has come again: the rest is new
                elif last >= first:
                    outbox.repeats.append((first, last))
                    log.warning("output %s: %d to %d may repeat what was delivered before", name, first, last)
            self._committer.submit(Note(REPEATS, {"o": name, "q": first, "z": last}))
