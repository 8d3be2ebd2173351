"""Checkpoints of a running engine: when one is due, how it is made, and what may be deleted after it.

A checkpoint is a cut (``cut``) on disk with everything else that a restart needs: numbers of batches, event-time
clocks, outboxes, counters. It is made every ``checkpoint_s`` seconds, sooner when the log has grown by
``CHECKPOINT_LOG_BYTES`` (a replay must not take long), and at once when a part asks for one. A failed checkpoint
changes nothing: the ones before it stand.

Order: the cut goes to disk first; only then may the log and the spill files before it go.

Threads: the checkpoint thread; ``make`` may be called from another one, one at a time.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from threading import Event, Lock, Thread
from time import monotonic, sleep
from typing import Any, NamedTuple, Protocol

from catalog.network import Network
from engine.daemon.durable.committer import Committer
from engine.daemon.durable.cut import QUIET_SECONDS, Cut, CutError
from engine.daemon.durable.outbox import Outbox
from engine.daemon.history.keeper import HistoryKeeper
from engine.daemon.history.starts import QueryStarts
from engine.run.core import Engine
from engine.run.quiet import quiet
from engine.run.state_home import StateHome
from router.event_time import StreamClock
from storage.checkpoint import CheckpointPart, Checkpoints
from storage.log import Log
from storage.spill_files import SpillFiles

log = logging.getLogger("aurorad.durable")

CHECKPOINT_LOG_BYTES = 256 * 1024**2

AGAIN_SECONDS = 1.0
"""The pause after a checkpoint that failed. On a full disk every group asks for one, and each copies all state."""

PACE_SECONDS = 0.004
"""About as long as the disk needs for a piece, so that a checkpoint takes half of the disk's time."""


class KeptNames(NamedTuple):
    """What a folder knows of outputs beside their outboxes."""

    past: Mapping[str, int]  # of outputs that are gone: the number that a next tuple would have
    marks: Mapping[str, Sequence[str]]  # of the fields of the tuples that readers may ask for (``data_format``)


NO_NAMES = KeptNames({}, {})


class HeldMoment(NamedTuple):
    """A moment that a savepoint keeps: a checkpoint, the end of the log, and the spilled queues of the checkpoint."""

    number: int
    end: int
    spill: list[str]


class KeptCounters(Protocol):
    """Counts that go on after a restart, as plain data."""

    def snapshot(self) -> dict[str, Any]: ...

    def restore(self, data: Mapping[str, Any]) -> None: ...


class Checkpointer:
    def __init__(
        self,
        network: Network,
        journal: Log,
        checkpoints: Checkpoints,
        spill: SpillFiles,
        state_home: StateHome,
        committer: Committer,
        outboxes: Sequence[Outbox],
        history: HistoryKeeper,
        starts: QueryStarts,
        *,
        every_s: float,
        retain_bytes: int,
    ) -> None:
        self._network = network
        self._log = journal
        self._checkpoints = checkpoints
        self._spill = spill
        self._state_home = state_home
        self._committer = committer
        self._outboxes = outboxes
        self._history = history
        self._starts = starts
        self._every_s = every_s
        self.retain_bytes = retain_bytes
        self.life = secrets.token_hex(6)  # names this process: see Cut
        self._one_at_a_time = Lock()
        self._stamps: dict[str, str] = {}
        self._state_segments: dict[str, list[int]] = {}  # of the last checkpoint, by box
        self._wanted = Event()
        self._is_owed = False  # one is due also without news in the log
        self._ended = Event()
        self._thread = Thread(target=self._run, name="aurorad-checkpoint", daemon=True)
        self.trouble = ""  # why the last one failed
        self._is_hurried = False  # a change of the network waits for it
        self.failures = 0
        self.pause_s = 0.0  # how long the last cut held the scheduler
        self.position = 0  # in the log, of the newest checkpoint

    def attach(
        self,
        engine: Engine,
        clocks: Sequence[StreamClock | None],
        counters: KeptCounters,
        kept: KeptNames = NO_NAMES,
    ) -> None:
        self._engine = engine
        self._clocks = clocks
        self._counters = counters
        self._kept = kept

    def adopt(self, network: Network, outboxes: Sequence[Outbox]) -> None:
        """Make checkpoints of another network. Inside ``swapping``."""
        self._network = network
        self._outboxes = outboxes

    # -- life ---------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._ended.set()
        self._wanted.set()
        if self._thread.ident is not None:
            self._thread.join()

    def ask(self, *, always: bool = False) -> None:
        """Have a checkpoint made soon: if there is news in the log, or ``always``. Any thread."""
        self._is_owed = self._is_owed or always
        self._wanted.set()

    def pace(self) -> None:
        """Wait between two pieces of a checkpoint: nothing waits for it, but the log's syncs need the same disk."""
        if not self._ended.is_set() and not self._is_hurried:
            sleep(PACE_SECONDS)

    def _run(self) -> None:
        last = monotonic()
        while not self._ended.is_set():
            self._wanted.wait(min(1.0, self._every_s))
            if self._ended.is_set() or not self._is_due(monotonic() - last):
                continue
            if not self.make():
                self._ended.wait(AGAIN_SECONDS)
            last = monotonic()

    def _is_due(self, elapsed_s: float) -> bool:
        """Whether a checkpoint is due. Without news in the log the newest one holds everything, and nothing is due."""
        asked = self._wanted.is_set()
        if self._is_owed and asked:
            return True
        grown = self._log.durable - self.position
        if not grown:
            self._wanted.clear()
        return grown > 0 and (asked or elapsed_s >= self._every_s or grown >= CHECKPOINT_LOG_BYTES)

    # -- a change of the network --------------------------------------------------------------------------------------

    @contextmanager
    def swapping(self) -> Iterator[None]:
        """Make no other checkpoint, commit no group and move no train of history meanwhile."""
        with self._one_at_a_time, self._committer.gate, self._starts.still():
            yield

    def commit_change(self) -> None:
        """Write the checkpoint that makes a change of the network count: the rename of its manifest is the moment.

        Inside ``swapping``, with the new engine, which has not started. Raises OSError and CutError: then the next
        start runs the network before.
        """
        self._is_hurried = True
        try:
            history = self._history.cut()
            cut = Cut(self._engine, self._log.durable, self._rest(history), self.life)
            self._write_cut(cut, history)
        finally:
            self._is_hurried = False

    # -- a checkpoint -------------------------------------------------------------------------------------------------

    def make(self) -> bool:
        """Make a checkpoint now. False when it failed; the ones before it stay valid."""
        with self._one_at_a_time:
            self._wanted.clear()  # this one answers everything that was asked before
            self._is_owed = False
            try:
                self._make()
            except (OSError, CutError, TimeoutError) as error:
                self.failures += 1
                if str(error) != self.trouble:  # logged once, not for every retry
                    log.warning("a checkpoint failed: %s", error)
                self.trouble = str(error)
                return False
            self.trouble = ""
            return True

    @contextmanager
    def held(self) -> Iterator[HeldMoment]:
        """Make a checkpoint, and until the block ends make no other and delete nothing. Raises OSError, CutError and
        TimeoutError."""
        with self._one_at_a_time:
            self._wanted.clear()
            self._make()
            with self._committer.gate:
                end = self._log.durable
            number = self._checkpoints.newest
            segments = self._checkpoints.facts()[-1]["spill"]
            yield HeldMoment(number, end, [self._spill.name(segment) for segment in segments])

    def _make(self) -> None:
        with self._committer.gate, self._starts.still():
            begun = monotonic()
            with quiet(self._engine, QUIET_SECONDS):
                history = self._history.cut()
                cut = Cut(self._engine, self._log.durable, self._rest(history), self.life)
            self.pause_s = monotonic() - begun
        self._write_cut(cut, history)
        oldest = self._checkpoints.oldest_kept
        self._prune(cut.position if oldest is None else oldest)
        self._collect()

    def _write_cut(self, cut: Cut, history: Mapping[str, Any]) -> None:
        try:
            try:
                reusable = self._checkpoints.reusable()
                parts = cut.parts({name: stamp for name, stamp in self._stamps.items() if name in reusable})
            finally:
                cut.release()
            self._history.flush(history)
            self._persist(cut, parts, {name: place["next"] for name, place in history.items()})
        finally:
            cut.let_go()

    def _persist(self, cut: Cut, parts: Mapping[str, CheckpointPart], history: Mapping[str, int]) -> None:
        """Write a cut to disk. Only after that may the log and the spill files before it be deleted."""
        self._spill.sync()
        self._state_home.sync()
        state = cut.state_segments(self._state_segments)
        facts = {
            "spill": sorted({ref.segment for ref in cut.spilled}),
            "state": state,
            "history": history,
            "revision": self._network.version,
        }
        self._checkpoints.write(cut.position, parts, facts)
        self._stamps = {name: part.stamp for name, part in parts.items()}
        self._state_segments = state
        self.position = cut.position

    def _collect(self) -> None:
        """Delete the files of queues and states that neither the engine nor a kept checkpoint needs."""
        facts = self._checkpoints.facts()
        self._spill.collect({n for kept in facts for n in kept["spill"]})
        states: dict[str, set[int]] = {}
        for kept in facts:
            for box, segments in kept.get("state", {}).items():  # not in checkpoints of version 0.2
                states.setdefault(box, set()).update(segments)
        self._state_home.collect(states)
        self._history.settle([kept.get("history", {}) for kept in facts])

    def _rest(self, history: Mapping[str, Any]) -> dict[str, Any]:
        """Return everything but boxes and queues."""
        names = [s.name for s in self._network.streams]
        outputs = self._network.outputs
        return {
            "admission": self._committer.numbers.snapshot(names),
            "clocks": {n: c.snapshot() for n, c in zip(names, self._clocks, strict=True) if c is not None},
            "outputs": {o.output.name: o.snapshot() for o in self._outboxes},
            "unlogged": [[outputs[e.output].name, e.first, e.train] for e in self._committer.unlogged()],
            "counters": self._counters.snapshot(),
            "shed": self._engine.shedding.snapshot(),
            "history": history,
            "starts": self._starts.cut(),
            "entered": self._engine.ingress.entered,
            "past": dict(self._kept.past),
            "marks": {name: list(marks) for name, marks in self._kept.marks.items()},
        }

    def _prune(self, needed: int) -> None:
        """Delete the log below what a checkpoint needs, and below what named readers may still ask for."""
        wanted = [p for p in (outbox.needed_from() for outbox in self._outboxes) if p is not None]
        below = min(needed, max(min(wanted, default=needed), self._log.durable - self.retain_bytes))
        with self._committer.gate:
            if self._log.prune(below):
                for outbox in self._outboxes:
                    outbox.drop_below(self._log.start)
