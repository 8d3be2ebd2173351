"""A box with a bounded state: it stands before another box and keeps its state within a limit.

While the state fits, every call goes straight to the box behind. The worker measures the state from time to time and
gives the box its limit (``bound``). Above the limit one of three things happens, as the file says:

- ``spill``: the state is divided, and most parts of it are on disk from then on (``divided``). Results come later, and
  are the same. The watermark of the output waits for them.
- ``evict``: the keys that were silent longest are forgotten, an eighth more than necessary, so that the cost is spread.
- ``block``: the edge closes until the state is smaller: the ``overload`` rule of the streams applies.

A divided state has work that no tuple brings: parts that are due, and tuples that wait for parts on disk. After a call
``wants_call`` tells so, and the engine sends the box an empty train. It comes behind everything that waits before the
box: under load more tuples wait together, and each load of a part serves more of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from catalog.schema import Schema
from engine.operators.bounded.copying import copied
from engine.operators.bounded.divided import LOWEST_NS, DividedState
from engine.operators.bounded.hashing import KeyHash, new_seed
from engine.operators.bounded.limits import StateLimits
from engine.operators.boxes.base import Box, DeadRow, Emit, Tally
from engine.operators.boxes.keyed import KeyedBox
from storage.train import NO_WATERMARK, Mask, Train

if TYPE_CHECKING:
    from load_shedder.record.book import BoxLosses
    from storage.block_ref import BlockRef
    from storage.state_files import StateFiles

WORK_NS = 20_000_000
"""How long a box works off its parts in one call. Then others may run."""


class OpenFiles(Protocol):
    def __call__(self, live: Sequence[BlockRef], /) -> StateFiles:
        """Open the files of a box. The first call removes everything in them but these blocks."""


class BoundedState:
    """In one piece (``whole``) or divided. Owned by the worker that runs the box."""

    __slots__ = ("divided", "is_full", "limit_bytes", "losses", "owed_ns", "swept_ns", "watermark_ns", "whole")

    def __init__(self, whole: Any) -> None:
        self.whole = whole
        self.divided: DividedState | None = None
        self.watermark_ns = NO_WATERMARK
        self.limit_bytes = 2**62
        self.is_full = False  # the edge must wait
        self.losses: BoxLosses | None = None
        self.owed_ns = 0  # time spent on taking tuples in while parts were due
        self.swept_ns = NO_WATERMARK  # the watermark when silent keys were last looked for


class BoundedBox(Box):
    """``inner`` is bound already. ``files`` opens the box's files on disk."""

    def __init__(self, inner: KeyedBox, name: str, files: OpenFiles) -> None:
        super().__init__(inner.parameters)
        self.inner = inner
        self._name = name
        self._files = files
        self._limits: StateLimits = inner.parameters.state
        self.kind = inner.kind  # type: ignore[misc]
        self.row_wise = inner.row_wise
        self.needs_time = inner.needs_time
        self.needs_clock = inner.needs_clock  # type: ignore[misc]
        self.dead_because = inner.dead_because  # type: ignore[misc]

    def bind(self, inputs: tuple[Schema, ...], times: tuple[str | None, ...]) -> tuple[Schema, ...]:
        raise AssertionError("the box behind is bound already")

    def new_state(self) -> BoundedState:
        return BoundedState(self.inner.new_state())

    # -- work ---------------------------------------------------------------------------------------------------------

    def run(self, state: BoundedState, port: int, train: Train, emit: Emit, tally: Tally) -> None:
        divided = state.divided
        if divided is None:
            self.inner.run(state.whole, port, train, emit, tally)
            return
        begun_ns = perf_counter_ns()
        divided.put(port, train, tally)
        while divided.is_crowded and divided.work(emit, tally):
            pass
        if divided.has_due:  # half of the time is for results, however many tuples wait before the box
            state.owed_ns += perf_counter_ns() - begun_ns
            while state.owed_ns > 0 and divided.has_due:
                begun_ns = perf_counter_ns()
                divided.work(emit, tally)
                state.owed_ns -= perf_counter_ns() - begun_ns
        else:
            state.owed_ns = 0

    def advance(self, state: BoundedState, watermark_ns: int, emit: Emit, tally: Tally) -> None:
        state.watermark_ns = watermark_ns
        if state.divided is None:
            self.inner.advance(state.whole, watermark_ns, emit, tally)
        else:
            state.divided.advance(watermark_ns)

    def go_on(self, state: BoundedState, emit: Emit, tally: Tally) -> None:
        """Bring parts of a divided state up to date, for a while."""
        divided = state.divided
        if divided is None:
            return
        until_ns = perf_counter_ns() + WORK_NS
        while divided.work(emit, tally) and perf_counter_ns() < until_ns:
            pass
        if not divided.has_work and divided.is_nearly_empty:
            state.whole = divided.in_one_piece(emit, tally)
            state.divided = None
            self._watch(state)

    def wants_call(self, state: BoundedState) -> bool:
        """Tell whether results could come out without a new tuple or watermark."""
        return state.divided is not None and state.divided.has_work

    def out_watermark_ns(self, state: BoundedState, watermark_ns: int) -> int:
        if state.divided is not None:
            watermark_ns = state.divided.low_ns()
            if watermark_ns == NO_WATERMARK:
                return watermark_ns
        return self.inner.out_watermark_ns(state.whole, watermark_ns)

    def closed_ns(self, state: BoundedState) -> int:
        """Return the watermark of which all results are out."""
        return state.watermark_ns if state.divided is None else state.divided.low_ns()

    def tick(self, state: BoundedState, now_ns: int, emit: Emit, tally: Tally) -> None:
        if state.divided is None:  # a box with a time-out is never divided
            self.inner.tick(state.whole, now_ns, emit, tally)

    # -- limits -------------------------------------------------------------------------------------------------------

    def bound(self, state: BoundedState, share_bytes: int, tally: Tally) -> None:
        """Keep the state within its limits. ``share_bytes`` is its share of the memory budget."""
        limits = self._limits
        if limits.ttl is not None:
            self._forget_silent(state, limits.ttl, tally)
        nbytes, keys = self.state_nbytes(state), self.state_keys(state)
        limit_bytes = share_bytes if limits.memory is None else min(limits.memory, share_bytes)
        own_bytes = limits.memory  # the limit that the file names, None for none
        if limits.keys is not None and state.divided is None and keys:
            own_bytes = min(2**62 if own_bytes is None else own_bytes, nbytes * limits.keys // keys)
            limit_bytes = min(limit_bytes, own_bytes)
        elif limits.keys is not None:
            limit_bytes = min(limit_bytes, state.limit_bytes)
        state.limit_bytes = limit_bytes
        is_over = nbytes > limit_bytes
        if is_over and limits.at_limit == "evict":
            self._evict(state, keys * limit_bytes // nbytes, tally)
        elif is_over and limits.at_limit == "spill" and self.inner.is_divisible:
            self._spill(state)
        elif is_over:
            self.trim(state)
        is_own = own_bytes is not None and nbytes > own_bytes
        state.is_full = (is_own and limits.at_limit == "block") or (
            is_over and state.divided is not None and state.divided.is_disk_full
        )

    def _spill(self, state: BoundedState) -> None:
        if state.divided is None:
            if self.inner.is_empty(state.whole):
                self.inner.trim(state.whole)
                return
            state.divided = DividedState.of(
                self.inner, self._name, self._files(()), KeyHash(new_seed()), state.limit_bytes, state.whole,
                state.watermark_ns,
            )  # fmt: skip
            state.whole = None
            self._watch(state)
        state.divided.shrink(state.limit_bytes)

    def _evict(self, state: BoundedState, fitting: int, tally: Tally) -> None:
        """Forget the keys that were silent longest, so that seven eighths of those that fit are left."""
        last_ns = self.inner.last_ns(state.whole)
        left = min(fitting - fitting // 8, last_ns.shape[0])
        chosen = np.zeros(last_ns.shape[0] + 1, np.bool_)
        chosen[-1] = True
        if left:
            chosen[np.argpartition(last_ns, -left)[-left:]] = True
        self._keep(state, chosen, last_ns > LOWEST_NS, tally)

    def _forget_silent(self, state: BoundedState, ttl_ns: int, tally: Tally) -> None:
        """Forget the keys that were silent for too long, when a quarter of that time has passed since the last look."""
        if state.divided is not None:
            state.divided.silent_ns = ttl_ns
            return
        if state.watermark_ns == NO_WATERMARK or state.watermark_ns < state.swept_ns + ttl_ns // 4:
            return
        state.swept_ns = state.watermark_ns
        last_ns = self.inner.last_ns(state.whole)
        live = last_ns > state.watermark_ns - ttl_ns
        if not live.all():
            self._keep(state, np.append(live, True), last_ns > LOWEST_NS, tally)

    def _keep(self, state: BoundedState, chosen: Mask, used: Mask, tally: Tally) -> None:
        tally.evicted += int(np.count_nonzero(used & ~chosen[:-1]))
        state.whole = self.inner.restore(self.inner.snapshot_of(state.whole, chosen))
        self._watch(state)

    # -- the state ----------------------------------------------------------------------------------------------------

    def trim(self, state: BoundedState) -> None:
        if state.divided is None:
            self.inner.trim(state.whole)

    def watch_losses(self, state: BoundedState, losses: BoxLosses) -> None:
        state.losses = losses
        self._watch(state)

    def _watch(self, state: BoundedState) -> None:
        if state.divided is not None:
            state.divided.losses = state.losses
        elif state.losses is not None:
            self.inner.watch_losses(state.whole, state.losses)

    def dead_rows(self, state: BoundedState) -> Sequence[DeadRow]:
        return () if state.divided is not None else self.inner.dead_rows(state.whole)

    def waits_for_time(self) -> bool:
        return self.inner.waits_for_time()

    def held_tuples(self, state: BoundedState) -> int:
        return self.inner.held_tuples(state.whole) if state.divided is None else state.divided.held

    def state_nbytes(self, state: BoundedState) -> int:
        divided, whole = state.divided, state.whole
        return divided.nbytes if divided is not None else self.inner.state_nbytes(whole) if whole is not None else 0

    def state_keys(self, state: BoundedState) -> int:
        divided, whole = state.divided, state.whole
        return divided.keys if divided is not None else self.inner.state_keys(whole) if whole is not None else 0

    def disk_bytes(self, state: BoundedState) -> int:
        """Return the bytes of the state on disk."""
        return 0 if state.divided is None else state.divided.disk_bytes

    def snapshot(self, state: BoundedState) -> Any:
        """Return the state as plain data: that of the box behind, or with ``divided`` as the only key."""
        if state.divided is None:
            return self.inner.snapshot(state.whole)
        return {"divided": state.divided.snapshot()}

    def restore(self, data: Any) -> BoundedState:
        if not isinstance(data, dict) or "divided" not in data:
            return BoundedState(self.inner.restore(data))
        state = BoundedState(None)
        state.divided = DividedState.restored(self.inner, self._name, self._files, state.limit_bytes, data["divided"])
        state.watermark_ns = state.divided.watermark_ns
        return state

    def copy_of(self, other: BoundedBox, state: BoundedState) -> BoundedState:
        """Return a copy of the state of another box of the same definition, in files of its own.

        Raises OSError when the disk has no room, and SpillDamageError when a block cannot be read.
        """
        data = other.snapshot(state)
        if state.divided is not None:
            data = {"divided": copied(data["divided"], other._files(()), self._files(()))}
        return self.restore(data)

    def discard(self, state: BoundedState) -> None:
        """Release what the state has on disk: it is replaced by another one."""
        if state.divided is not None:
            state.divided.discard()
