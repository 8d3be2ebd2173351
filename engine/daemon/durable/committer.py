"""Group commit: the committer collects trains, writes, syncs, lets them enter and acknowledges them, in that order.

``commit_thread`` decides when a group is due. While one group is being synced, the next one collects. Short trains of
one stream in a group become one record and one train, so that a thousand trains of one tuple do not cost a thousand
records.

Order: the trains of a stream enter in the order in which they were submitted, which is their order in the log. A group
enters whole or not at all.

A full disk: nothing of the group was written. The committer refuses numbered batches until there is room (clause H).
The sender of a plain connection cannot be told, so its trains wait, and reading stops. So do the trains of a file.
Outputs for named readers wait too. A log that has failed refuses everything until a restart.

``Committer.step`` commits one group and knows no thread.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from threading import Lock
from typing import Any, NamedTuple, Protocol

from catalog.network import Network
from engine.daemon.durable.records import NAMED, OUTPUT, TRAIN, output_record, pack, train_record
from storage.admission import BatchNumber
from storage.files import Bytes, Files, StorageError
from storage.log import DiskFullError, Log
from storage.queue import COALESCE_BELOW
from storage.source_numbers import SourceNumbers
from storage.train import NO_WATERMARK, Train

log = logging.getLogger("aurorad.log")

GROUP_BYTES = 1024**2
GROUP_AT_MOST_BYTES = 16 * 1024**2
PENDING_AT_MOST_BYTES, PENDING_LEAST_BYTES = 32 * 1024**2, 4 * 1024**2
PENDING_SHARE = 1 / 8  # of the memory budget, between these two
JOINED_TUPLES = 4 * COALESCE_BELOW
RESERVE_BYTES = 64 * 1024**2
"""Kept free for outputs and checkpoints, because they make room again. On a small disk: a sixteenth of it."""


class Input(NamedTuple):
    """A train for a stream."""

    stream: int
    train: Train
    batch: BatchNumber | None
    nbytes: int


class Emitted(NamedTuple):
    """A train of an output; ``first`` is the number of its first tuple."""

    output: int
    first: int
    train: Train
    nbytes: int


class Note(NamedTuple):
    """A record without a train, such as the name of a reader."""

    kind: int
    note: dict[str, Any]
    nbytes: int = 64
    then: Callable[[str], None] | None = None  # called with "" when it is on disk, or with the reason why it cannot be
    record: Sequence[Bytes] = ()  # the note as bytes: see ``Committer.submit``


Item = Input | Emitted | Note


class GroupOutcome(NamedTuple):
    """The fate of a group's numbered batches; the server answers their clients."""

    committed: list[tuple[int, BatchNumber]]  # (stream, the batch): on disk and in the network
    refused: list[tuple[int, BatchNumber, int, str]]  # (stream, the batch, its tuples, the reason)


class CommitEffects(Protocol):
    """The committer's effects on the rest of the daemon. All but ``submitted`` are called on the committer's thread."""

    def submitted(self) -> None:
        """Note that something waits to be committed. Called on any thread."""

    def enter(self, stream: int, train: Train, logged_ns: int) -> None:
        """Let a train that is on disk enter the network."""

    def emitted(self, output: int, first: int, tuples: int, position: int) -> None:
        """Note that a train of an output is on disk."""

    def settled(self, outcome: GroupOutcome) -> None:
        """Answer the clients whose batches were committed or refused."""

    def notes(self) -> list[Note]:
        """Return notes for the next group, which do not justify a group of their own."""

    def disk_full(self) -> None:
        """Delete what can be deleted: the disk has no room."""

    def room_again(self) -> None:
        """Note that more may be submitted again."""


def pending_at_most(budget_bytes: int) -> int:
    """Return how many bytes may wait for the log, strings included, beside this memory budget."""
    return max(PENDING_LEAST_BYTES, min(PENDING_AT_MOST_BYTES, int(PENDING_SHARE * budget_bytes)))


class Committer:
    def __init__(
        self,
        journal: Log,
        files: Files,
        streams: Sequence[str],
        outputs: Sequence[str],
        numbers: SourceNumbers,
        effects: CommitEffects,
        now_ns: Callable[[], int],
        *,
        pending_at_most_bytes: int = PENDING_AT_MOST_BYTES,
    ) -> None:
        self.log = journal
        self._pending_at_most_bytes = pending_at_most_bytes
        self._files = files
        self._streams = streams
        self._outputs = outputs
        self.numbers = numbers
        self._effects = effects
        self._now_ns = now_ns
        self.gate = Lock()  # held while a group is under way: inside it the log and the engine agree
        self._pending: deque[Item] = deque()
        self._sum = Lock()
        self.pending_bytes = 0
        self.pending_tuples = [0] * len(streams)
        self.refusal = ""  # the reason why the log takes nothing now
        self.lost_tuples = [0] * len(streams)  # of plain connections, when the log failed
        self._was_short = False
        self.group_items = 0  # of the last group

    # -- any thread ---------------------------------------------------------------------------------------------------

    def submit(self, item: Item) -> None:
        """Have an item committed. A note is encoded here: one that cannot be encoded is the caller's error, and must
        not end the thread that writes the log for everybody."""
        if isinstance(item, Note):
            item = item._replace(record=pack(item.note))
        with self._sum:
            self._pending.append(item)
            self.pending_bytes += item.nbytes
            if self.pending_bytes >= self._pending_at_most_bytes:
                self._was_short = True
            if isinstance(item, Input):
                self.pending_tuples[item.stream] += item.train.count
        self._effects.submitted()

    def pending_of(self, stream: int) -> int:
        """Return how many tuples of a stream wait; 0 for a number that a change of the network has just removed."""
        pending = self.pending_tuples
        return pending[stream] if stream < len(pending) else 0

    def lost_of(self, stream: int) -> int:
        """Return how many tuples of plain connections of a stream were lost when the log failed; 0 as above."""
        lost = self.lost_tuples
        return lost[stream] if stream < len(lost) else 0

    @property
    def has_room(self) -> bool:
        return self.pending_bytes < self._pending_at_most_bytes and not self.refusal

    def has_work(self) -> bool:
        """Whether something waits that may be committed now."""
        if self.is_waiting:
            return not all(isinstance(item, Input) for item in self._pending.copy())
        return bool(self._pending)

    @property
    def is_idle(self) -> bool:
        return not self._pending and not self.gate.locked()

    @property
    def is_waiting(self) -> bool:
        """Whether the committer waits for room on the disk."""
        return bool(self.refusal) and self.log.failed is None

    def unlogged(self) -> list[Emitted]:
        """Return the outputs that are emitted and not yet in the log. The caller holds the gate."""
        return [item for item in list(self._pending) if isinstance(item, Emitted)]

    # -- a change of the network --------------------------------------------------------------------------------------

    def adopt(self, network: Network, streams: Mapping[int, int], outputs: Mapping[int, int]) -> list[Input]:
        """Serve another network. The caller holds the gate, and nothing is submitted meanwhile.

        ``streams`` and ``outputs`` lead from present numbers to those of the next network. Returns the trains that
        wait for streams which are not there any more; what waits of other outputs is dropped.
        """
        gone: list[Input] = []
        kept: list[Item] = []
        with self._sum:
            for item in self._pending:
                if isinstance(item, Note):
                    kept.append(item)
                elif isinstance(item, Input) and item.stream in streams:
                    kept.append(item._replace(stream=streams[item.stream]))
                elif isinstance(item, Emitted) and item.output in outputs:
                    kept.append(item._replace(output=outputs[item.output]))
                else:
                    self.pending_bytes -= item.nbytes
                    gone += [item] if isinstance(item, Input) else []
            self._pending = deque(kept)
            self._streams = [s.name for s in network.streams]
            self._outputs = [o.name for o in network.outputs]
            lost, self.lost_tuples = self.lost_tuples, [0] * len(self._streams)
            self.pending_tuples = [0] * len(self._streams)
            for here, there in streams.items():
                self.lost_tuples[there] = lost[here]
            for item in kept:
                if isinstance(item, Input):
                    self.pending_tuples[item.stream] += item.train.count
        return gone

    # -- a group ------------------------------------------------------------------------------------------------------

    def step(self) -> bool:
        """Commit one group; False when there was none, or no room for it."""
        with self.gate:
            group = self._next_group()
            self.group_items = len(group)
            done = bool(group) and self._commit(group)
        self._report_room()
        return done

    def look_for_room(self) -> None:
        """Look whether a full disk has room again."""
        with self.gate:
            if self.refusal and self.log.failed is None and not self._is_short_of_room(2 * GROUP_BYTES):
                log.info("there is room on the disk again")
                self.refusal = ""
        self._report_room()

    def _next_group(self) -> list[Item]:
        group: list[Item] = []
        waiting: list[Item] = []  # while the disk is full only outputs and notes go on: some room is reserved for them
        size = 0
        while self._pending and size < GROUP_AT_MOST_BYTES:
            item = self._pending.popleft()
            if self.is_waiting and isinstance(item, Input):
                waiting.append(item)
            else:
                group.append(item)
                size += item.nbytes
        self._pending.extendleft(reversed(waiting))
        return group

    def _commit(self, group: list[Item]) -> bool:
        if self.log.failed is not None:
            self._give_up(group, f"the log has failed: {self.log.failed}")
            return True
        group = self._without_gaps(group)
        inputs = _joined([i for i in group if isinstance(i, Input)])
        if inputs and self._is_short_of_room(sum([i.nbytes for i in group])):
            return self._hold_back(group, "the disk is full")
        now_ns = self._now_ns()
        emitted = self._append(group, inputs, now_ns)
        try:
            self.log.commit()
        except DiskFullError as error:
            return self._hold_back(group, f"the disk is full: {error}")
        except StorageError as error:
            self._give_up(group, f"the log has failed: {error}")
            return True
        self._settle(group, inputs, emitted, now_ns)
        return True

    def _without_gaps(self, group: list[Item]) -> list[Item]:
        """Refuse each batch whose predecessor was refused while this one was on its way; return the others."""
        expected: dict[tuple[int, str], tuple[int, int]] = {}
        good: list[Item] = []
        bad: list[Input] = []
        for item in group:
            if not isinstance(item, Input) or item.batch is None:
                good.append(item)
                continue
            source, epoch, sequence, _ = item.batch
            key = (item.stream, source)
            last = expected.get(key) or (epoch, self.numbers.committed(item.stream, source, epoch))
            if sequence == (last[1] + 1 if epoch == last[0] else 1):
                expected[key] = (epoch, sequence)
                good.append(item)
            else:
                bad.append(item)
        self._refuse(bad, "the batch before it was refused")
        return good

    def _append(self, group: list[Item], inputs: list[JoinedTrain], now_ns: int) -> list[tuple[Emitted, int]]:
        """Append everything to the log's group. Returns the outputs with their positions."""
        emitted: list[tuple[Emitted, int]] = []
        # Names first: if a torn tail kept a train and lost a name behind it, a replay would keep nothing for that name.
        for item in group:
            if isinstance(item, Note) and item.kind == NAMED:
                self.log.append(NAMED, item.record)
        for joined in inputs:
            self.log.append(TRAIN, train_record(self._streams[joined.stream], joined.train, now_ns, joined.batches))
        for item in group:
            if isinstance(item, Emitted):
                record = output_record(self._outputs[item.output], item.first, item.train)
                emitted.append((item, self.log.append(OUTPUT, record)))
            elif isinstance(item, Note) and item.kind != NAMED:
                self.log.append(item.kind, item.record)
        for note in self._effects.notes():
            self.log.append(note.kind, pack(note.note))
        return emitted

    def _settle(
        self, group: list[Item], inputs: list[JoinedTrain], emitted: list[tuple[Emitted, int]], now_ns: int
    ) -> None:
        """The group is on disk: commit its numbers, let its trains enter, answer its clients."""
        for joined in inputs:
            self.numbers.commit(joined.stream, joined.batches)
        for joined in inputs:
            self._effects.enter(joined.stream, joined.train, now_ns)
        self._account(group)
        for item, position in emitted:
            self._effects.emitted(item.output, item.first, item.train.count, position)
        _answer(group, "")
        self._acknowledge(inputs)

    def _acknowledge(self, inputs: list[JoinedTrain]) -> None:
        if committed := [(j.stream, batch) for j in inputs for batch in j.batches]:
            self._effects.settled(GroupOutcome(committed, []))

    def _account(self, items: Sequence[Item]) -> None:
        with self._sum:
            for item in items:
                self.pending_bytes -= item.nbytes
                if isinstance(item, Input):
                    self.pending_tuples[item.stream] -= item.train.count

    def _report_room(self) -> None:
        if self._was_short and self.has_room:
            self._was_short = False
            self._effects.room_again()

    # -- a full disk, a failed log ------------------------------------------------------------------------------------

    @property
    def disk_trouble(self) -> str:
        """Say why the log would take nothing now; empty when it would. The disk may be full while nothing arrives."""
        return self.refusal or ("the disk is full" if self._is_short_of_room(0) else "")

    def _is_short_of_room(self, wanted_bytes: int) -> bool:
        free, total = self._files.space()
        return free < min(RESERVE_BYTES, total // 16) + wanted_bytes

    def _hold_back(self, group: list[Item], why: str) -> bool:
        """The disk is full: refuse the numbered batches, keep the rest for later."""
        if not self.refusal:
            log.warning("the log takes nothing more until there is room: %s", why)
        self.refusal = why
        self._was_short = True
        numbered: list[Input] = []
        kept: list[Item] = []
        for item in group:
            if isinstance(item, Input) and item.batch is not None and not item.batch.can_wait:
                numbered.append(item)
            else:
                kept.append(item)
        self._refuse(numbered, why)
        self._pending.extendleft(reversed(kept))
        self._effects.disk_full()
        return False

    def _give_up(self, group: list[Item], why: str) -> None:
        """The log has failed: refuse everything, and count the tuples whose sender cannot be told."""
        if not self.refusal:
            log.critical("%s; restart the daemon: it then reads what is really on disk", why)
        self.refusal = why
        inputs = [i for i in group if isinstance(i, Input)]
        for item in inputs:
            if item.batch is None:
                self.lost_tuples[item.stream] += item.train.count
        self._refuse([i for i in inputs if i.batch is not None], why)
        self._account([i for i in group if not (isinstance(i, Input) and i.batch is not None)])
        _answer(group, why)

    def _refuse(self, inputs: list[Input], why: str) -> None:
        if not inputs:
            return
        self.numbers.retract([(item.stream, item.batch) for item in inputs if item.batch is not None])
        self._account(inputs)
        self._effects.settled(
            GroupOutcome([], [(i.stream, i.batch, i.train.count, why) for i in inputs if i.batch is not None])
        )


def _answer(group: list[Item], why: str) -> None:
    for item in group:
        if isinstance(item, Note) and item.then is not None:
            item.then(why)


class JoinedTrain(NamedTuple):
    """One record: a train, and the batches that it is made of."""

    stream: int
    train: Train
    batches: list[BatchNumber]


def _joined(inputs: list[Input]) -> list[JoinedTrain]:
    """Join short neighbours of one stream into one train, in their order. A train with a watermark stays alone."""
    out: list[JoinedTrain] = []
    runs: dict[int, tuple[list[Input], int]] = {}  # by stream: neighbours, and their tuples

    def close(stream: int) -> None:
        if stream in runs:
            run, _ = runs.pop(stream)
            train = Train.concat([i.train for i in run])
            out.append(JoinedTrain(stream, train, [i.batch for i in run if i.batch is not None]))

    for item in inputs:
        run, size = runs.get(item.stream, ([], 0))
        count = item.train.count
        alone = count >= COALESCE_BELOW or item.train.watermark_ns != NO_WATERMARK
        if run and (alone or size + count > JOINED_TUPLES):
            close(item.stream)
            run, size = [], 0
        run.append(item)
        runs[item.stream] = (run, size + count)
        if alone:
            close(item.stream)
    for stream in list(runs):
        close(stream)
    return out
