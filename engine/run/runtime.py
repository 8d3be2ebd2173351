"""A box at run time: its state, its counts and its cost.

Only the worker that runs the box writes here; a box is in one plan at a time. Any thread reads without a lock, because
a reading that is one train behind does no harm. The counts are plain integers: updating a Prometheus object for every
train would cost more than the train.
"""

from __future__ import annotations

import errno
import logging
from itertools import count
from typing import TYPE_CHECKING, Protocol

from catalog.network import BoxNode
from catalog.readings import TRAIN_BOUNDS, BoxReading
from engine.operators.bounded.box import BoundedBox
from engine.operators.boxes.base import Box, Tally
from engine.operators.boxes.keyed import KeyedBox
from engine.run.state_home import BoxFiles
from storage.files import StorageError
from storage.train import NO_WATERMARK, known_watermark

if TYPE_CHECKING:
    from engine.operators.call_limits import CallLimits
    from engine.run.state_home import StateHome
    from load_shedder.record.book import BoxLosses


log = logging.getLogger("aurorad.state")

MEASURE_EVERY = 8_192
"""Tuples that a box takes before its state is measured again. Measuring takes 5 to 10 us."""

COPIED_BYTES = 256 * 1024**2
"""The most on disk that a box takes along when it leaves a state that it shared: the engine waits for the copy."""

SMALL_SHARE = 16
"""A state below this part of its share need not be measured when windows close: it frees next to nothing."""

_identities = count(1)


class StateAccount(Protocol):
    """The memory budget as a box sees it (``storage/manager.py``)."""

    @property
    def has_room(self) -> bool: ...

    def state_share(self, box: int) -> int:
        """Return how many bytes the state of this box may have now."""

    def waits_on(self, arc: int) -> bool:
        """Tell whether a train waits in memory on this arc."""

    def note_state(self, box: int, nbytes: int, *, is_full: bool = False) -> None: ...


class SkipCounts(Protocol):
    """What an index has filtered for boxes (``engine/run/constant_index.py``)."""

    def skipped(self, slot: int) -> int: ...


class BoxRuntime:
    __slots__ = (
        "_account",
        "_is_full",
        "_is_told",
        "_measure_every",
        "_measured_bytes",
        "_small_bytes",
        "_unmeasured",
        "announced_ns",
        "bounded",
        "box",
        "by_input",
        "call_limits",
        "calls",
        "closed_ns",
        "cost_ns",
        "files",
        "identity",
        "losses",
        "node",
        "port_watermarks_ns",
        "resets",
        "spared_before",
        "spared_by",
        "state",
        "tally",
        "train_counts",
        "tuples_in",
        "tuples_out",
        "watermark_ns",
    )

    def __init__(self, node: BoxNode, account: StateAccount | None = None, state_home: StateHome | None = None) -> None:
        """``account`` counts the bytes of the state, and ``state_home`` has the state that is on disk; None: nobody."""
        self.node = node
        self.box: Box = node.box
        self.bounded: BoundedBox | None = None  # the box, if its state has a limit
        self.files: BoxFiles | None = None  # those of the part of such a state that is on disk
        self.identity = next(_identities)  # of the state: it stays when a change gives the box another name
        if isinstance(node.box, KeyedBox) and state_home is not None:
            self.files = BoxFiles(state_home, node.name)
            self.box = self.bounded = BoundedBox(node.box, node.name, self.files)
        self.announced_ns = NO_WATERMARK  # the watermark of the outputs, if its state is bounded
        has_state = type(node.box).state_nbytes is not Box.state_nbytes
        self._account = account if has_state else None
        self._measured_bytes = 0
        self._is_full = False
        self._is_told = False  # the log says that the state is too large
        self._unmeasured = 0  # tuples since the last measurement
        self._measure_every = 0
        self._small_bytes = 0
        self.state = self.box.new_state()
        self.losses: BoxLosses | None = None
        self.resets = 0  # how often the state was replaced by an empty one
        self.call_limits: CallLimits | None = None
        self.tally = Tally()
        self.calls = 0
        self.tuples_in = 0
        self.tuples_out = [0] * len(node.ports)  # by port
        # By input, tuples in, and tuples out in the same calls. Empty for one input, and where all are treated alike.
        self.by_input = [(0, 0)] * len(node.in_arcs) if len(node.in_arcs) > 1 and not node.box.merges_inputs else []
        # Tuples that the box would have filtered, and that did not reach it: see ``engine/run/constant_index.py``.
        self.spared_by: tuple[SkipCounts, int] | None = None  # an index, and the place of the box there
        self.spared_before = 0  # under other indexes
        self.cost_ns = 0
        self.train_counts = [0] * (len(TRAIN_BOUNDS) + 1)
        self.port_watermarks_ns = [NO_WATERMARK] * len(node.in_arcs)
        self.watermark_ns = NO_WATERMARK  # the lowest of the ports
        self.closed_ns = NO_WATERMARK  # the same, once the box has closed its windows up to it

    @property
    def home(self) -> str:
        """The name of the folder that has the state on disk; empty while nothing of it was there."""
        return "" if self.files is None else self.files.home

    def measure_after(self, tuples: int, *, advanced: bool) -> None:
        """Count the bytes of the state in the budget, if it may have changed much. After each call of the box."""
        if self._account is None:
            return
        self._unmeasured += tuples
        if self._unmeasured >= self._measure_every or (advanced and self._measured_bytes >= self._small_bytes):
            self.measure()

    def measure(self) -> None:
        """Count the bytes of the state in the budget."""
        self._unmeasured = 0
        account = self._account
        if account is None:
            return
        share_bytes, is_full = account.state_share(self.node.number), False
        if self.bounded is not None:
            self.bounded.bound(self.state, share_bytes, self.tally)
            is_full = self.state.is_full
        if not account.has_room:
            self.box.trim(self.state)
        nbytes = self.box.state_nbytes(self.state)
        self._small_bytes = share_bytes // SMALL_SHARE
        self._measure_every = min(MEASURE_EVERY, share_bytes // 512)  # a small budget fills up within a few trains
        if not account.has_room and nbytes > share_bytes and not self._is_told:
            self._is_told = True
            log.warning(
                "box %s: its state has %d MiB, more than its share of engine.memory, and cannot go to disk; streams "
                "wait or shed while memory is full",
                self.node.name, nbytes >> 20,
            )  # fmt: skip
        if nbytes != self._measured_bytes or is_full != self._is_full:
            self._measured_bytes, self._is_full = nbytes, is_full
            account.note_state(self.node.number, nbytes, is_full=is_full)

    @property
    def wants_call(self) -> bool:
        """Whether the box has results that no tuple brings, and nothing waits that would call it."""
        if self.bounded is None or not self.bounded.wants_call(self.state):
            return False
        return self._account is None or not self._account.waits_on(self.node.in_arcs[0])

    def watch_losses(self, losses: BoxLosses | None) -> None:
        """Give the box the record of tuples dropped before it. Called again after its state is restored."""
        self.losses = losses
        if losses is not None:
            self.box.watch_losses(self.state, losses)

    @property
    def skipped(self) -> int:
        """Return how many tuples an index has filtered for the box."""
        if self.spared_by is None:
            return self.spared_before
        counts, slot = self.spared_by
        return self.spared_before + counts.skipped(slot)

    def spare(self, counts: SkipCounts | None, slot: int = 0) -> None:
        """Count what this index skips, after what others have. None: no index any more. The ingress, under its lock."""
        self.spared_before = self.skipped
        self.spared_by = None if counts is None else (counts, slot)

    def take_over(self, other: BoxRuntime) -> None:
        """Go on with the state and the counts of another runtime of the same definition. No worker runs either."""
        if other.bounded is not None:  # it knows the files in which a part of its state may be
            self.box = self.bounded = other.bounded
            self.files = other.files
        self.identity = other.identity
        self.state = other.state
        self.announced_ns = other.announced_ns
        self.resets = other.resets
        self.tally = other.tally
        self.calls, self.tuples_in, self.cost_ns = other.calls, other.tuples_in, other.cost_ns
        self.spared_before = other.skipped
        self.tuples_out, self.by_input, self.train_counts = other.tuples_out, other.by_input, other.train_counts
        self.port_watermarks_ns, self.watermark_ns = other.port_watermarks_ns, other.watermark_ns
        self.closed_ns = other.closed_ns
        self.watch_losses(self.losses)
        self.limit_calls(self.call_limits)
        self.measure()

    def copy_state(self, other: BoxRuntime) -> None:
        """Begin with a copy of the state of a runtime of the same definition, which goes on. Counts begin at 0."""
        try:
            if self.bounded is not None and other.bounded is not None:
                if other.bounded.disk_bytes(other.state) > COPIED_BYTES:
                    raise OSError(errno.EFBIG, "more than 256 MiB of it are on disk")
                self.state = self.bounded.copy_of(other.bounded, other.state)
            else:
                self.state = self.box.restore(other.box.snapshot(other.state))
        except (OSError, StorageError) as error:
            log.warning("box %s: it starts with an empty state: the state that it shared is not copied: %s",
                        self.node.name, error)  # fmt: skip
        self.port_watermarks_ns, self.watermark_ns = list(other.port_watermarks_ns), other.watermark_ns
        self.closed_ns, self.announced_ns = other.closed_ns, other.announced_ns
        self.watch_losses(self.losses)
        self.limit_calls(self.call_limits)
        self.measure()

    def discard(self) -> None:
        """Forget the state for good, also what is on disk."""
        if self.bounded is not None:
            self.bounded.discard(self.state)

    def retire(self) -> None:
        """Forget the state and give its files up: the box is gone."""
        self.discard()
        if self.files is not None:
            self.files.retire()

    def reset(self) -> None:
        """Begin with an empty state. No worker runs the box."""
        self.discard()
        self.state = self.box.new_state()
        self.resets += 1
        self.watch_losses(self.losses)
        self.limit_calls(self.call_limits)
        self.measure()

    def limit_calls(self, limits: CallLimits | None) -> None:
        """Give the box time limits for calls of users' code. Called again after its state is restored."""
        self.call_limits = limits
        if limits is not None:
            self.box.limit_calls(self.state, limits)

    def count_dead_after_failure(self) -> None:
        """After a failure of the box, count as dead the tuples that it took in and that no other count includes."""
        tally = self.tally
        if self.box.row_wise:
            tally.dead = self.tuples_in - sum(self.tuples_out) - tally.filtered - tally.waiting
        else:
            tally.dead = self.tuples_in - tally.absorbed - tally.late - tally.waiting

    def reading(self) -> BoxReading:
        tally, skipped = self.tally, self.skipped
        return BoxReading(
            name=self.node.name,
            kind=self.node.kind,
            row_wise=self.box.row_wise,
            calls=self.calls,
            tuples_in=self.tuples_in + skipped,
            tuples_out=sum(self.tuples_out),
            filtered=tally.filtered + skipped,
            absorbed=tally.absorbed,
            late=tally.late,
            dead=tally.dead,
            null_errors=tally.null_errors,
            cost_ns=self.cost_ns,
            state_bytes=self.box.state_nbytes(self.state),
            state_keys=self.box.state_keys(self.state),
            train_counts=tuple(self.train_counts),
            tuples_out_by_port=tuple(self.tuples_out),
            by_input=tuple(self.by_input),
            withheld=self.losses.withheld if self.losses is not None else 0,
            late_by_ns=tally.late_by_ns,
            dropped=tally.dropped,
            waiting=tally.waiting,
            evicted=tally.evicted,
            state_disk_bytes=0 if self.bounded is None else self.bounded.disk_bytes(self.state),
            failure=self.box.failure(self.state),
            watermark_ns=known_watermark(self.watermark_ns),
        )
