"""The keeper of a data_dir: log, outboxes and checkpoints around one engine, from its start to its end.

    open()     lock the folder, find the newest good checkpoint, check the log, put the state back; nothing runs yet
    replay()   with the engine running and no listener open: admit what the log holds behind the checkpoint
    start()    commit groups and make checkpoints from now on
    stop()     a last checkpoint, so that the next start replays nothing

A damaged log or checkpoint raises StorageError from ``open``, with the file and the byte, before anything runs.

Threads: ``submit`` and ``emit`` on any; the committer's thread admits; the checkpoint thread makes checkpoints.
"""

from __future__ import annotations

import errno
import logging
import os
import secrets
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from threading import Condition, Event, Lock, Thread
from time import monotonic, sleep
from typing import Any, NamedTuple, Protocol

from catalog.network import Network
from engine.core import Engine
from engine.durable.committer import Committer, CommitThread, Emitted, Input, Note, Outcome
from engine.durable.cut import Cut, CutError, quiet, restore_queues, restore_runtime, spilled_refs
from engine.durable.outbox import Outbox, Piece
from engine.durable.records import NAMED
from engine.durable.recovery import Progress, Recovery
from storage.admission import Entry
from storage.checkpoint import CheckpointError, Checkpoints, Found
from storage.dying import DyingFiles
from storage.encode import TrainReader
from storage.files import Files, FolderLock, RealFiles, StorageError
from storage.log import Log
from storage.plants import crash_before, planted
from storage.spill import SpillFiles
from storage.train import NO_WATERMARK, Train
from storage.tree import TreeError, load

log = logging.getLogger("aurorad.durable")

CHECKPOINT_LOG_BYTES = 256 * 1024**2
"""A checkpoint is due before its time when the log has grown by so much: replay must not take long either."""

AGAIN_SECONDS = 1.0
"""After one that could not be made: on a full disk every group asks for one, and each copies all of the state."""

PACE_SECONDS = 0.004
"""About as long as the disk needs for a piece: so a checkpoint takes half of it."""


class StampClock:
    """The time that tuples are stamped with: now, or while a record of the log is admitted, the time it was logged."""

    def __init__(self, now_ns: Callable[[], int]) -> None:
        self._now_ns = now_ns
        self.fixed_ns: int | None = None

    def __call__(self) -> int:
        return self._now_ns() if self.fixed_ns is None else self.fixed_ns


class Around(Protocol):
    """What the keeper needs of the daemon."""

    def enter(self, stream: int, train: Train) -> None:
        """A train that is on disk goes into the network."""

    def told(self, outcome: Outcome) -> None:
        """Batches were committed or refused. Called on the committer's thread."""

    def readable(self, output: int) -> None:
        """More of an output's history is on disk. Called on the committer's thread."""

    def room_again(self) -> None: ...

    def counters(self) -> dict[str, Any]:
        """Counts that should go on after a restart, as plain data."""

    def restore_counters(self, data: Mapping[str, Any]) -> None: ...

    def failed(self, error: Exception) -> None: ...


class Recovered(NamedTuple):
    checkpoint: int  # its number, 0 without one
    tuples: int
    log_bytes: int
    torn_bytes: int
    passed_over: int  # bad checkpoints
    seconds: float


class Keeper:
    def __init__(
        self,
        network: Network,
        root: str,
        *,
        now_ns: Callable[[], int],
        checkpoint_s: float = 10.0,
        retain_bytes: int = 1024**3,
        files: Files | None = None,
        threads: bool = True,
    ) -> None:
        """``threads``: without them whoever owns the keeper calls ``committer.step`` and ``checkpoint`` itself."""
        self.network = network
        self.root = root
        self.clock = StampClock(now_ns)
        self._now_ns = now_ns
        self._checkpoint_s = checkpoint_s
        self._retain_bytes = retain_bytes
        self._lock: FolderLock | None = None
        self.files: Files = _real_files(root) if files is None else files
        self._is_real = files is None
        self._threads = threads
        self.log = Log(self.files)
        self.checkpoints = Checkpoints(self.files, self._pace)
        self.spill = SpillFiles(self.files, keep_dead=True)
        self.outboxes = [Outbox(output) for output in network.outputs]
        self.life = secrets.token_hex(6)
        self.committer = Committer(
            self.log, self.files, [s.name for s in network.streams], [o.name for o in network.outputs], self, now_ns
        )
        self.committer.on_room = self._room_again
        self._commits = CommitThread(self.committer, lambda error: self._around.failed(error))
        self._one_checkpoint = Lock()
        self._room = Condition()
        self._stamps: dict[str, str] = {}
        self._wanted = Event()
        self._ended = Event()
        self._thread = Thread(target=self._make_checkpoints, name="aurorad-checkpoint", daemon=True)
        self._recovery: Recovery | None = None
        self.recovered = Recovered(0, 0, 0, 0, 0, 0.0)
        self.checkpoint_failures = 0
        self._trouble = ""  # why there was none the last time
        self.checkpoint_pause_s = 0.0  # how long the last cut held the scheduler
        self.checkpoint_position = 0

    def attach(self, engine: Engine, around: Around, clocks: list[Any]) -> None:
        """``clocks`` are the streams' event-time clocks, None where there is none."""
        self._engine = engine
        self._around = around
        self._clocks = clocks

    # -- a start ------------------------------------------------------------------------------------------------------

    def open(self) -> None:
        """Put back what the newest good checkpoint holds. StorageError when the folder cannot be trusted."""
        if self._is_real:
            self._lock = FolderLock(self.root)
        try:
            with self._told_as_storage():
                self._open()
        except StorageError:
            self.close()
            raise

    @contextmanager
    def _told_as_storage(self) -> Iterator[None]:
        """What the kernel refuses of a start is an error of the folder, to be told as one."""
        try:
            yield
        except OSError as error:
            raise StorageError(error.filename or self.root, None, f"a start cannot be: {error.strerror}") from error

    def _open(self) -> None:
        found = self.checkpoints.open()
        for error in self.checkpoints.passed_over:
            log.warning("a bad checkpoint was passed over: %s", error)
        position = found.position if found is not None else 0
        self.log.open(position)
        if self.log.torn_bytes:
            log.warning("%d bytes of a torn tail were cut off the log", self.log.torn_bytes)
        queues = self._load(found, "queues") if found is not None else None
        self.spill.open(spilled_refs(queues) if queues is not None else ())
        if found is not None:
            self._restore(found, queues)
        self.checkpoint_position = position
        self._recovery = Recovery(self.log, position, self.network, self.outboxes, self.committer)
        self._recovery.look(self._rest.get("unlogged", []) if found is not None else [])
        self._number = found.number if found is not None else 0

    def _load(self, found: Found, name: str) -> Any:
        try:
            return load(found.parts[name])
        except (TreeError, KeyError) as error:
            raise CheckpointError(self.files.where(f"checkpoint/{found.number:010d}.json"), 0, str(error)) from error

    def _restore(self, found: Found, queues: Any) -> None:
        self._rest: Mapping[str, Any] = self._load(found, "rest")
        known = list(self._rest["admission"])
        if known and not any(stream.name in known for stream in self.network.streams):
            # Not one stream of it: somebody else's folder. The next checkpoint would forget all that is in it.
            raise StorageError(
                self.root, None, f"holds the state of another network, with the streams {', '.join(known)}"
            )
        for stream, admission in zip(self.network.streams, self.committer.admissions, strict=True):
            admission.restore(self._rest["admission"].get(stream.name, {}))
        for stream, clock in zip(self.network.streams, self._clocks, strict=True):
            if clock is not None and (data := self._rest["clocks"].get(stream.name)) is not None:
                ahead_ns = 25 * 10**9 if planted("window_off_by_one") else 0
                clock.restore({**data, "watermark_ns": data["watermark_ns"] + ahead_ns})
        for outbox in self.outboxes:
            if (data := self._rest["outputs"].get(outbox.output.name)) is not None:
                outbox.restore(data)
        self._around.restore_counters(self._rest["counters"])
        if "shed" in self._rest:
            self._engine.shedding.restore(self._rest["shed"])
        for runtime in self._engine.runtimes:
            name = f"box:{runtime.node.name}"
            restored = name in found.parts and restore_runtime(runtime, self._load(found, name))
            if not restored and runtime.state is not None:
                log.warning("box %s is new or another one now: it begins afresh", runtime.node.name)
        for sentence in restore_queues(self._engine, queues):
            log.warning("%s", sentence)

    def replay(self, on_progress: Callable[[Progress], None] = lambda progress: None) -> None:
        """Admit what lies behind the checkpoint. The engine runs; nothing else feeds it; no listener is open."""
        assert self._recovery is not None
        begun = monotonic()
        if self._threads:
            self._commits.start()
        with self._told_as_storage():
            tuples = self._recovery.replay(self._engine, self._admit_replayed, on_progress)
        self._recovery.settle(self._engine, self._commit_now, on_progress)
        self._recovery.finish()
        for outbox in self.outboxes:
            outbox.held = set(outbox.names)
        self._commit_now()
        self.recovered = Recovered(
            self._number, tuples, self._recovery.log_bytes, self.log.torn_bytes, len(self.checkpoints.passed_over),
            monotonic() - begun,
        )  # fmt: skip
        self._recovery = None

    def _commit_now(self) -> None:
        if not self._threads:
            while self.committer.step():
                pass

    def _admit_replayed(self, stream: int, train: Train, now_ns: int, entries: list[Entry]) -> None:
        if not planted("dedup_in_memory"):
            for entry in entries:
                self.committer.admissions[stream].commit(entry)
        self.admit(stream, train, now_ns)

    @property
    def is_replaying(self) -> bool:
        return self._recovery is not None

    def start(self) -> None:
        if self._threads:
            self._thread.start()
        if self.recovered.tuples:
            self._wanted.set()  # so that a second crash need not replay the same again

    # -- tuples in ----------------------------------------------------------------------------------------------------

    def submit(self, stream: int, train: Train, entry: Entry | None = None) -> None:
        """To be logged, then admitted. Any thread."""
        self.committer.submit(Input(stream, train, entry, train.nbytes + 64))

    @property
    def is_settled(self) -> bool:
        """Everything submitted is on disk, or cannot be."""
        return self.committer.is_idle or bool(self.committer.refusal)

    @property
    def has_room(self) -> bool:
        return self.committer.has_room

    def admit(self, stream: int, train: Train, now_ns: int) -> None:
        """The committer's: it is on disk. Also the replay's."""
        if not train.count and train.watermark_ns == NO_WATERMARK:
            return  # a batch of which every tuple was refused: only its number counts
        self.clock.fixed_ns = now_ns
        try:
            self._around.enter(stream, train)
        finally:
            self.clock.fixed_ns = None

    def told(self, outcome: Outcome) -> None:
        self._around.told(outcome)

    def full(self) -> None:
        self._wanted.set()  # a checkpoint lets go of the log before it

    def _room_again(self) -> None:
        with self._room:
            self._room.notify_all()
        self._around.room_again()

    def wait_for_room(self, timeout_s: float | None = None) -> bool:
        """Whether the log takes more, waiting for it that long."""
        if self.has_room:
            return True
        with self._room:
            return self._room.wait_for(lambda: self.has_room, timeout_s)

    # -- tuples out ---------------------------------------------------------------------------------------------------

    def emit(self, output: int, train: Train) -> None:
        """An output has emitted this. On the worker that made it."""
        outbox = self.outboxes[output]
        with outbox.lock:
            first, train = outbox.number(train)
            if outbox.names and train.count:
                self.committer.submit(Emitted(output, first, train, train.nbytes + 64))

    def emitted(self, output: int, first: int, tuples: int, position: int) -> None:
        self.outboxes[output].committed(first, tuples, position)
        self._around.readable(output)

    def subscribe(self, output: int, name: str, after: int | None, then: Callable[[str], None] | None = None) -> int:
        """The number after which this name goes on. ``then`` hears when the name is in the log, or why it cannot be."""
        outbox = self.outboxes[output]
        if not outbox.is_kept:
            self._wanted.set()  # what was emitted before its first name is not in the log: let no replay begin there
        start = outbox.subscribe(name, after)
        note = {"o": outbox.output.name, "name": name, "q": outbox.names[name]}
        if name in outbox.held:  # it may read on, also when the disk is full or the log has failed
            self.committer.submit(Note(NAMED, note))
            if then is not None:
                then("")
            return start

        def kept(why: str) -> None:
            if not why:
                outbox.held.add(name)
            if then is not None:
                then(why)

        self.committer.submit(Note(NAMED, note, then=kept))
        return start

    def acknowledge(self, output: int, name: str, number: int) -> None:
        """Into the log with whatever comes next: what a crash forgets of it, the reader gets once more, flagged."""
        self.outboxes[output].acknowledge(name, number)

    def notes(self) -> list[Note]:
        return [
            Note(NAMED, {"o": outbox.output.name, "name": name, "q": number})
            for outbox in self.outboxes
            if outbox.names
            for name, number in outbox.news().items()
        ]

    def forget(self, output: int, name: str) -> None:
        self.outboxes[output].forget(name)
        self.committer.submit(Note(NAMED, {"o": self.outboxes[output].output.name, "name": name, "q": -1}))

    def read(self, output: int, reader: TrainReader, after: int, limit_bytes: int) -> list[Piece]:
        return self.outboxes[output].read(self.log, reader, after, limit_bytes)

    # -- checkpoints --------------------------------------------------------------------------------------------------

    def checkpoint(self) -> bool:
        """One now. False when it could not be made; the ones before it stand."""
        with self._one_checkpoint:
            try:
                self._checkpoint()
            except (OSError, CutError, TimeoutError) as error:
                self.checkpoint_failures += 1
                if str(error) != self._trouble:  # once, not for every time that it is tried again
                    log.warning("no checkpoint this time: %s", error)
                self._trouble = str(error)
                return False
            self._trouble = ""
            return True

    def _checkpoint(self) -> None:
        with self.committer.gate:
            begun = monotonic()
            with quiet(self._engine):
                cut = Cut(self._engine, self.log.durable, self._rest_now(), self.life)
            self.checkpoint_pause_s = monotonic() - begun
        try:
            parts = cut.parts(self._stamps)
        finally:
            cut.release()
        if planted("unlink_before_persist"):
            self._prune(cut.position)
        self.spill.sync()
        facts = {"spill": sorted({ref.segment for ref in cut.spilled})}
        self.checkpoints.write(cut.position, parts, facts)
        self._stamps = {name: part.stamp for name, part in parts.items()}
        self.checkpoint_position = cut.position
        oldest = self.checkpoints.oldest_kept
        self._prune(cut.position if oldest is None else oldest)
        self.spill.collect({n for facts in self.checkpoints.facts() for n in facts["spill"]})

    def _pace(self) -> None:
        """Between two pieces of a checkpoint. Nobody waits for it, but the log's syncs wait for the disk it uses."""
        if not self._ended.is_set():
            sleep(PACE_SECONDS)

    def _rest_now(self) -> dict[str, Any]:
        names = [s.name for s in self.network.streams]
        with self.committer.table:
            admission = {n: a.snapshot() for n, a in zip(names, self.committer.admissions, strict=True)}
        return {
            "admission": admission,
            "clocks": {n: c.snapshot() for n, c in zip(names, self._clocks, strict=True) if c is not None},
            "outputs": {o.output.name: o.snapshot() for o in self.outboxes},
            "unlogged": [[self.network.outputs[e.output].name, e.first, e.train] for e in self.committer.unlogged()],
            "counters": self._around.counters(),
            "shed": self._engine.shedding.snapshot(),
        }

    def _prune(self, needed: int) -> None:
        """Let go of the log below what a checkpoint needs, and below what named subscribers may still ask for."""
        wanted = [p for p in (outbox.needed_from() for outbox in self.outboxes) if p is not None]
        below = min(needed, max(min(wanted, default=needed), self.log.durable - self._retain_bytes))
        with self.committer.gate:
            if self.log.prune(below):
                for outbox in self.outboxes:
                    outbox.drop_below(self.log.start)

    def _make_checkpoints(self) -> None:
        """The checkpoint thread."""
        last = monotonic()
        while not self._ended.is_set():
            asked = self._wanted.wait(min(1.0, self._checkpoint_s))
            self._wanted.clear()
            grown = self.log.durable - self.checkpoint_position
            due = monotonic() - last >= self._checkpoint_s
            if self._ended.is_set() or not grown or not (asked or due or grown >= CHECKPOINT_LOG_BYTES):
                continue
            if not self.checkpoint():
                self._ended.wait(AGAIN_SECONDS)
            last = monotonic()

    # -- an end -------------------------------------------------------------------------------------------------------

    def stop(self, *, checkpoint: bool = True) -> None:
        """Before the engine stops. Without a checkpoint the next start replays what this one would have held.

        In the middle of a replay there is none: it would say of the whole log that it has been through the network.
        """
        self._ended.set()
        self._wanted.set()
        if self._thread.ident is not None:
            self._thread.join()
        self._commits.stop()
        if checkpoint and not self.is_replaying:
            self.checkpoint()

    def close(self) -> None:
        """When nobody reads a history any more."""
        self.log.close()
        self.spill.close()
        if self._lock is not None:
            self._lock.release()


def _real_files(root: str) -> Files:
    try:
        files: Files = RealFiles(root)
        if not os.access(root, os.W_OK):
            raise OSError(errno.EROFS, "it cannot be written to")
        left = crash_before()
        return files if left is None else DyingFiles(files, left)
    except OSError as error:
        raise StorageError(root, None, f"the data_dir cannot be used: {error.strerror}") from error
