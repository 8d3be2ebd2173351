"""Group commit: what comes in is collected, written, synced; then it is admitted and acknowledged, in that order.

A group is committed when two milliseconds have passed since the last one or 1 MiB has come, whichever is first; or at
once, where the last one had hardly anything in it: a client that waits for each acknowledgement before it sends on
waits for its own sync only, many share one. While a group is being synced the next one collects. Short trains of one
stream in a group become one record and one train, so a thousand trains of one tuple do not cost a thousand records.

Order: per stream, trains are admitted in the order in which they were submitted and in which they stand in the log. A
group is either admitted whole or not at all.

A full disk: nothing of the group was written. Batches of clients that number them are refused, and so is what comes
until there is room (clause H); trains of plain connections have nobody to be told, so they wait and reading stops.
Outputs for named subscribers wait too. A log that has failed refuses everything until a restart.

``step`` is the whole of it and knows no thread; ``CommitThread`` calls it.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Sequence
from threading import Condition, Event, Lock, Thread
from time import monotonic
from typing import Any, NamedTuple, Protocol

from engine.durable.records import NAMED, OUTPUT, TRAIN, output_record, pack, train_record
from storage.admission import Admission, Entry
from storage.files import Files, StorageError
from storage.log import DiskFullError, Log
from storage.plants import planted
from storage.queue import COALESCE_BELOW
from storage.train import NO_WATERMARK, Train

log = logging.getLogger("aurorad.log")

GROUP_SECONDS = 0.002
ALONE_ITEMS = 2
"""A group of so few was nobody's company: the next one need not wait for any."""
GROUP_BYTES = 1024**2
GROUP_AT_MOST_BYTES = 16 * 1024**2
PENDING_AT_MOST_BYTES = 32 * 1024**2
JOINED_TUPLES = 4 * COALESCE_BELOW
MARK_AFTER_SECONDS = 0.05
RETRY_SECONDS = 0.1
RESERVE_BYTES = 64 * 1024**2
"""Kept free for outputs and checkpoints, which are what makes room again; of a small disk a sixteenth."""


class Input(NamedTuple):
    stream: int
    train: Train
    entry: Entry | None
    nbytes: int


class Emitted(NamedTuple):
    output: int
    first: int
    train: Train
    nbytes: int


class Note(NamedTuple):
    kind: int
    note: dict[str, Any]
    nbytes: int = 64
    then: Callable[[str], None] | None = None  # called when it is on disk, with ""; or with why it cannot be


Item = Input | Emitted | Note


class Outcome(NamedTuple):
    """What became of a group, for whoever tells the clients."""

    committed: list[tuple[int, Entry]]  # (stream, the batch): on disk and admitted
    refused: list[tuple[int, Entry, int, str]]  # (stream, the batch, its tuples, why): nothing came of it


class Around(Protocol):
    """What the committer acts on."""

    def admit(self, stream: int, train: Train, now_ns: int) -> None: ...

    def emitted(self, output: int, first: int, tuples: int, position: int) -> None:
        """A train of an output is on disk."""

    def told(self, outcome: Outcome) -> None: ...

    def notes(self) -> list[Note]:
        """What should go into the log with the next group, and is worth no group of its own."""

    def full(self) -> None:
        """The disk has no room: whoever can make some should."""


class Committer:
    def __init__(
        self,
        journal: Log,
        files: Files,
        streams: Sequence[str],
        outputs: Sequence[str],
        around: Around,
        now_ns: Callable[[], int],
    ) -> None:
        self.log = journal
        self._files = files
        self._streams = streams
        self._outputs = outputs
        self._around = around
        self._now_ns = now_ns
        self.admissions = [Admission() for _ in streams]
        self.table = Lock()  # guards the admissions
        self.gate = Lock()  # held while a group is under way: who has it sees the log and the engine agree
        self._pending: deque[Item] = deque()
        self._sum = Lock()
        self.pending_bytes = 0
        self.pending_tuples = [0] * len(streams)
        self.refusal = ""  # why nothing can be taken now
        self.lost_tuples = [0] * len(streams)  # of plain connections, when the log failed
        self._was_short = False
        self.group_items = 0  # of the last group
        self.on_submit: Callable[[], None] = lambda: None
        self.on_room: Callable[[], None] = lambda: None

    # -- any thread ---------------------------------------------------------------------------------------------------

    def submit(self, item: Item) -> None:
        with self._sum:
            self._pending.append(item)
            self.pending_bytes += item.nbytes
            if self.pending_bytes >= PENDING_AT_MOST_BYTES:
                self._was_short = True
            if isinstance(item, Input):
                self.pending_tuples[item.stream] += item.train.count
        self.on_submit()

    @property
    def has_room(self) -> bool:
        return self.pending_bytes < PENDING_AT_MOST_BYTES and not self.refusal

    def has_work(self) -> bool:
        """Something waits that may be committed now."""
        if self.is_waiting:
            return not all(isinstance(item, Input) for item in self._pending.copy())
        return bool(self._pending)

    @property
    def is_idle(self) -> bool:
        return not self._pending and not self.gate.locked()

    @property
    def is_waiting(self) -> bool:
        """For room on the disk."""
        return bool(self.refusal) and self.log.failed is None

    def unlogged(self) -> list[Emitted]:
        """Outputs that are emitted and not yet in the log. With the gate only."""
        return [item for item in list(self._pending) if isinstance(item, Emitted)]

    # -- a group ------------------------------------------------------------------------------------------------------

    def step(self) -> bool:
        """Commit one group; False when there was none, or no room for it."""
        with self.gate:
            group = self._next_group()
            self.group_items = len(group)
            done = bool(group) and self._commit(group)
        self._say_room()
        return done

    def look(self) -> None:
        """After a refusal: whether there is room again."""
        with self.gate:
            if self.refusal and self.log.failed is None and not self._is_short_of_room(2 * GROUP_BYTES):
                log.info("there is room on the disk again")
                self.refusal = ""
        self._say_room()

    def _next_group(self) -> list[Item]:
        group: list[Item] = []
        held: list[Item] = []  # without room only outputs and notes, for which some is reserved
        size = 0
        while self._pending and size < GROUP_AT_MOST_BYTES:
            item = self._pending.popleft()
            if self.is_waiting and isinstance(item, Input):
                held.append(item)
            else:
                group.append(item)
                size += item.nbytes
        self._pending.extendleft(reversed(held))
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
        if planted("ack_before_sync"):
            self._tell(inputs)
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
        """A batch whose forerunner was refused while it was on its way is refused as well."""
        expected: dict[tuple[int, str], tuple[int, int]] = {}
        good: list[Item] = []
        bad: list[Input] = []
        with self.table:
            for item in group:
                if not isinstance(item, Input) or item.entry is None:
                    good.append(item)
                    continue
                source, epoch, sequence = item.entry
                key = (item.stream, source)
                last = expected.get(key) or (epoch, self.admissions[item.stream].committed(source, epoch))
                follows = sequence == (last[1] + 1 if epoch == last[0] else 1)
                if follows or planted("accept_gap"):
                    expected[key] = (epoch, sequence)
                    good.append(item)
                else:
                    bad.append(item)
        self._refuse(bad, "the batch before it was refused")
        return good

    def _append(self, group: list[Item], inputs: list[Joined], now_ns: int) -> list[tuple[Emitted, int]]:
        """Everything into the log's group; the outputs with their positions."""
        emitted: list[tuple[Emitted, int]] = []
        # Names first: where a torn tail leaves a train and not the name behind it, a replay would keep nothing for it.
        for item in group:
            if isinstance(item, Note) and item.kind == NAMED:
                self.log.append(NAMED, pack(item.note))
        for joined in inputs:
            self.log.append(TRAIN, train_record(self._streams[joined.stream], joined.train, now_ns, joined.entries))
        for item in group:
            if isinstance(item, Emitted):
                record = output_record(self._outputs[item.output], item.first, item.train)
                emitted.append((item, self.log.append(OUTPUT, record)))
            elif isinstance(item, Note) and item.kind != NAMED:
                self.log.append(item.kind, pack(item.note))
        for note in self._around.notes():
            self.log.append(note.kind, pack(note.note))
        return emitted

    def _settle(self, group: list[Item], inputs: list[Joined], emitted: list[tuple[Emitted, int]], now_ns: int) -> None:
        """It is on disk: now it counts."""
        with self.table:
            for joined in inputs:
                for entry in joined.entries:
                    self.admissions[joined.stream].commit(entry)
        for joined in inputs:
            self._around.admit(joined.stream, joined.train, now_ns)
        self._account(group)
        for item, position in emitted:
            self._around.emitted(item.output, item.first, item.train.count, position)
        _answer(group, "")
        if not planted("ack_before_sync"):
            self._tell(inputs)

    def _tell(self, inputs: list[Joined]) -> None:
        if committed := [(j.stream, entry) for j in inputs for entry in j.entries]:
            self._around.told(Outcome(committed, []))

    def _account(self, items: Sequence[Item]) -> None:
        with self._sum:
            for item in items:
                self.pending_bytes -= item.nbytes
                if isinstance(item, Input):
                    self.pending_tuples[item.stream] -= item.train.count

    def _say_room(self) -> None:
        if self._was_short and self.has_room:
            self._was_short = False
            self.on_room()

    # -- when it cannot be --------------------------------------------------------------------------------------------

    def _is_short_of_room(self, wanted_bytes: int) -> bool:
        free, total = self._files.space()
        return free < min(RESERVE_BYTES, total // 16) + wanted_bytes

    def _hold_back(self, group: list[Item], why: str) -> bool:
        """No room: tell who can be told, keep the rest for later."""
        if not self.refusal:
            log.warning("nothing more is taken until there is room: %s", why)
        self.refusal = why
        self._was_short = True
        numbered: list[Input] = []
        kept: list[Item] = []
        for item in group:
            if isinstance(item, Input) and item.entry is not None:
                numbered.append(item)
            else:
                kept.append(item)
        self._refuse(numbered, why)
        self._pending.extendleft(reversed(kept))
        self._around.full()
        return False

    def _give_up(self, group: list[Item], why: str) -> None:
        """The log has failed: everything is refused, and what nobody can be told of is counted."""
        if not self.refusal:
            log.critical("%s; restart to read what is really there", why)
        self.refusal = why
        inputs = [i for i in group if isinstance(i, Input)]
        for item in inputs:
            if item.entry is None:
                self.lost_tuples[item.stream] += item.train.count
        self._refuse([i for i in inputs if i.entry is not None], why)
        self._account([i for i in group if not (isinstance(i, Input) and i.entry is not None)])
        _answer(group, why)

    def _refuse(self, inputs: list[Input], why: str) -> None:
        if not inputs:
            return
        with self.table:
            for item in inputs:
                assert item.entry is not None
                self.admissions[item.stream].retract([item.entry.source])
        self._account(inputs)
        self._around.told(Outcome([], [(i.stream, i.entry, i.train.count, why) for i in inputs if i.entry is not None]))


def _answer(group: list[Item], why: str) -> None:
    for item in group:
        if isinstance(item, Note) and item.then is not None:
            item.then(why)


class Joined(NamedTuple):
    """One record: a train, and the batches that it is made of."""

    stream: int
    train: Train
    entries: list[Entry]


def _joined(inputs: list[Input]) -> list[Joined]:
    """Short neighbours of one stream as one train, each stream's in order. What carries a watermark stands alone."""
    out: list[Joined] = []
    runs: dict[int, tuple[list[Input], int]] = {}  # by stream: neighbours, and how many tuples

    def close(stream: int) -> None:
        if stream in runs:
            run, _ = runs.pop(stream)
            train = Train.concat([i.train for i in run])
            out.append(Joined(stream, train, [i.entry for i in run if i.entry is not None]))

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


class CommitThread:
    """Calls ``step`` when it is time: see the head of the module."""

    def __init__(self, committer: Committer, on_failure: Callable[[Exception], None]) -> None:
        self._committer = committer
        self._on_failure = on_failure
        self._wake = Condition()
        self._asleep = False
        self._end = Event()
        self._thread = Thread(target=self._run, name="aurorad-log", daemon=True)
        committer.on_submit = self._submitted

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Ends after what was submitted before is committed, if it can be."""
        with self._wake:
            self._end.set()
            self._wake.notify()
        if self._thread.ident is not None:
            self._thread.join()

    def _submitted(self) -> None:
        """Wakes the thread only if it waits for just this: a wake costs as much as a small group."""
        if self._asleep or self._committer.pending_bytes >= GROUP_BYTES:
            with self._wake:
                self._asleep = False
                self._wake.notify()

    def _run(self) -> None:
        try:
            self._loop()
        except Exception as error:  # noqa: BLE001
            self._on_failure(error)  # whatever it is, tuples wait that nobody will admit

    def _loop(self) -> None:
        committer = self._committer
        last = 0.0
        while self._wait_for_work():
            self._wait_for_company(last)
            if not committer.step() and committer.is_waiting:
                if self._end.is_set():
                    return
                with self._wake:
                    self._wake.wait(RETRY_SECONDS)
                committer.look()
            last = monotonic()

    def _wait_for_work(self) -> bool:
        """True when there is something to commit; False when there is not, or cannot be, and we are to end."""
        committer = self._committer
        marked = False
        while not committer.has_work():
            if self._end.is_set():
                self._mark()
                return False
            with self._wake:
                self._asleep = True
                if not (committer.has_work() or self._end.is_set()):
                    self._wake.wait(RETRY_SECONDS if committer.is_waiting else None if marked else MARK_AFTER_SECONDS)
                self._asleep = False
            if committer.is_waiting:
                committer.look()
            elif not marked and not committer.has_work():
                self._mark()
                marked = True
        return True

    def _mark(self) -> None:
        committer = self._committer
        with committer.gate:
            if committer.log.failed is None and not committer.refusal:
                try:
                    committer.log.mark()
                except StorageError as error:
                    log.warning("the log could not be marked: %s", error)

    def _wait_for_company(self, last: float) -> None:
        if self._committer.group_items <= ALONE_ITEMS:
            return
        with self._wake:
            while (left := last + GROUP_SECONDS - monotonic()) > 0:
                if self._committer.pending_bytes >= GROUP_BYTES or self._end.is_set():
                    return
                self._wake.wait(left)
