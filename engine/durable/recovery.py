"""Replay: the log behind a checkpoint, through the network once more.

Two passes. ``look`` reads what was emitted to named subscribers since the checkpoint, so that the second pass knows
what it computes again. ``replay`` admits the trains, each with the time it was stamped with, and waits until the engine
has nothing left to do. ``finish`` compares: where something was emitted before the crash that did not come again, what
came instead is flagged as a possible repeat.

A crash during a replay does no harm: what the replay emitted is in the log behind a note of where it began, and the
next replay recognises it like everything else.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from time import monotonic, sleep
from typing import Any, NamedTuple

from catalog.network import Network
from engine.core import Engine
from engine.durable.committer import Committer, Emitted, Note
from engine.durable.outbox import Outbox
from engine.durable.records import NAMED, OUTPUT, RECOVERED, REPEATS, TRAIN, entries_of, schema_mark, unpack
from engine.durable.regenerated import Regenerated
from storage.admission import Entry
from storage.encode import EncodingError, TrainReader
from storage.log import Log, LogDamageError
from storage.log_records import Record
from storage.plants import planted
from storage.train import Train

log = logging.getLogger("aurorad.durable")

TOLD_EVERY_SECONDS = 0.2
SETTLE_POLL_SECONDS = 0.002

Admit = Callable[[int, Train, int, list[Entry]], None]


class Progress(NamedTuple):
    done_bytes: int
    total_bytes: int
    tuples: int
    seconds: float


class Recovery:
    def __init__(
        self, journal: Log, position: int, network: Network, outboxes: Sequence[Outbox], committer: Committer
    ) -> None:
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

    def look(self, unlogged: Sequence[Sequence[Any]]) -> None:
        """Bring the outboxes to where they were when the log ended. ``unlogged`` is the checkpoint's."""
        cuts = {name: outbox.next for name, outbox in self._outboxes.items()}
        emitted: dict[str, list[Train]] = {name: [] for name in self._outboxes}
        reader = TrainReader()
        began: dict[str, int] = {}
        for record in self._log.records(self._position, self._end):
            if record.kind == TRAIN:
                continue
            note, rest = unpack(record.payload)
            if record.kind == RECOVERED:
                for name, number in note["q"].items():
                    began.setdefault(name, number)  # of several replays the first one counts
            elif (outbox := self._outboxes.get(note["o"])) is None:
                continue
            elif record.kind == OUTPUT and not planted("forget_sent"):
                train = self._decode(record, reader, rest, outbox)
                first = int(note["q"])
                if first >= cuts[note["o"]]:
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
            outbox.suppose_sent()
            outbox.replayed_from = began.get(name, outbox.next - 1) + 1
            if outbox.is_kept:
                outbox.regenerated = Regenerated(emitted[name])

    def _decode(self, record: Record, reader: TrainReader, rest: memoryview, outbox: Outbox) -> Train:
        try:
            return reader.decode(rest, outbox.output.schema)
        except EncodingError as error:
            raise LogDamageError("the log", record.position, f"output {outbox.output.name}: {error}") from error

    def _name(self, outbox: Outbox, note: dict[str, Any]) -> None:
        name, number = note["name"], int(note["q"])
        if number < 0:
            outbox.names.pop(name, None)
            return
        outbox.names[name] = max(number, outbox.names.get(name, 0))
        outbox.next = max(outbox.next, number + 1)  # numbers that were given while nobody had a name are not in the log

    def _put_back(self, unlogged: Sequence[Sequence[Any]]) -> None:
        """What was emitted before the checkpoint and had not reached the log: it is in the checkpoint alone."""
        for name, first, train in unlogged:
            outbox = self._outboxes.get(name)
            if outbox is not None and first > outbox.readable:
                self._committer.submit(Emitted(self._numbers[name], first, train, train.nbytes))

    # -- through the network ------------------------------------------------------------------------------------------

    def replay(self, engine: Engine, admit: Admit, on_progress: Callable[[Progress], None]) -> int:
        """How many tuples were admitted."""
        if any(outbox.is_kept for outbox in self._outboxes.values()) and self.log_bytes:
            began = {name: outbox.replayed_from - 1 for name, outbox in self._outboxes.items()}
            self._committer.submit(Note(RECOVERED, {"q": began}))
        begun = told = monotonic()
        reader = TrainReader()
        tuples = 0
        for record in self._log.records(self._position, self._end):
            if record.kind != TRAIN:
                continue
            note, rest = unpack(record.payload)
            stream = self._streams.get(note["s"])
            if stream is None:
                raise self._not_ours(record, note["s"], "which this network does not have")
            if note.get("f", mark := schema_mark(stream.schema)) != mark:
                raise self._not_ours(record, note["s"], "which had other fields then")
            try:
                train = reader.decode(rest, stream.schema)
            except EncodingError as error:
                raise LogDamageError("the log", record.position, f"stream {stream.name}: {error}") from error
            for _ in range(2 if planted("replay_twice") and not tuples else 1):
                while not engine.wait_for_room(timeout_s=TOLD_EVERY_SECONDS):
                    on_progress(Progress(record.position - self._position, self.log_bytes, tuples, monotonic() - begun))
                admit(stream.number, train, int(note["n"]), entries_of(note))
            tuples += train.count
            if monotonic() - told > TOLD_EVERY_SECONDS:
                told = monotonic()
                on_progress(Progress(record.end - self._position, self.log_bytes, tuples, told - begun))
        on_progress(Progress(self.log_bytes, self.log_bytes, tuples, monotonic() - begun))
        return tuples

    def _not_ours(self, record: Record, stream: str, why: str) -> LogDamageError:
        why = f"acknowledged tuples of stream {stream}, {why}: start once with the network file before, and stop that"
        return LogDamageError("the log", record.position, why)

    def settle(
        self,
        engine: Engine,
        commit: Callable[[], None],
        on_progress: Callable[[Progress], None] = lambda progress: None,
    ) -> None:
        """Until everything that follows from the log has come out, and what came out is in the log."""
        begun = told = monotonic()
        # A full disk keeps the committer from coming to rest, but not the engine: what it computes again must all have
        # come before ``finish`` compares.
        while not (engine.is_quiet() and (self._committer.is_idle or self._committer.refusal)):
            if engine.loop.failure is not None:
                return
            if monotonic() - told > TOLD_EVERY_SECONDS:
                told = monotonic()
                on_progress(Progress(self.log_bytes, self.log_bytes, 0, told - begun))
            commit()
            sleep(SETTLE_POLL_SECONDS)

    def finish(self) -> None:
        """Say of what the replay added whether it may be a repeat. From here on it may be read."""
        for name, outbox in self._outboxes.items():
            with outbox.lock:
                regenerated, outbox.regenerated = outbox.regenerated, None
                if regenerated is None or not self.log_bytes:
                    continue
                first, last = outbox.replayed_from, outbox.next - 1
                if not regenerated.left:
                    last = first - 1  # all that was emitted before has come again: the rest is new
                elif last >= first:
                    outbox.repeats.append((first, last))
                    log.warning("output %s: %d to %d may repeat what was delivered before", name, first, last)
            self._committer.submit(Note(REPEATS, {"o": name, "q": first, "z": last}))
