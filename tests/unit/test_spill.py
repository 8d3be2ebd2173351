"""Spilling: order, counts, sharing, ranks, damage and a full disk; step by step, without a thread."""

from __future__ import annotations

from collections import deque
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalog.schema import Schema
from storage.block_ref import BlockRef
from storage.manager import SavedBlock
from storage.queue import ALL
from storage.spill_files import SpillDamageError, SpillFiles
from storage.spilling import SpillingStorage
from storage.train import Train, constant_ns
from tests.crash.crash_files import CrashFiles
from tests.unit.storage_harness import ignore_expired

SCHEMA = Schema.of(a="bigint", s="string")


def train_of(start: int, count: int) -> Train:
    return Train.from_pylists(
        SCHEMA, {"a": list(range(start, start + count)), "s": [f"s{i % 5}" for i in range(count)]}, start
    )


class Harness:
    """A storage under a small budget, and a scheduler that knows only the announced trains."""

    def __init__(self, arcs: int = 1, budget: int = 40_000, files: CrashFiles | None = None) -> None:
        self.files = files or CrashFiles()
        self.announced: list[deque[int]] = [deque() for _ in range(arcs)]
        self.room_again: list[bool] = []
        self.spill = SpillFiles(self.files, segment_bytes=20_000)
        self.storage = SpillingStorage(
            [SCHEMA] * arcs,
            budget,
            self.spill,
            [True] * arcs,
            announce=self._announce,
            wake_scheduler=lambda: None,
            wake_spiller=lambda: None,
            on_room=lambda: self.room_again.append(True),
            on_expired=ignore_expired,
            block_bytes=2_000,
        )
        self.storage.pin_bytes = min(self.storage.pin_bytes, 1_000)
        self.sent = [0] * arcs
        self.got: list[list[int]] = [[] for _ in range(arcs)]

    def _announce(self, arcs: tuple[int, ...], train: Train, nbytes: int) -> None:
        for arc in arcs:
            self.announced[arc].append(train.count)

    def put(self, count: int, *arcs: int) -> None:
        start = self.sent[arcs[0]]
        assert all(self.sent[a] == start for a in arcs)
        self.storage.enqueue(arcs, train_of(start, count))
        for arc in arcs:
            self.sent[arc] += count

    def take(self, arc: int, tuples: int) -> None:
        """Take as the scheduler's loop does: at most what was announced; a train leaves whole or is split."""
        announced = self.announced[arc]
        trains, count, whole = self.storage.take(arc, min(tuples, sum(announced)), len(announced))
        self.storage.unpin([arc])
        for train in trains:
            train.verify()
            self.got[arc] += train.columns[0].tolist()
        for _ in range(whole):
            count -= announced.popleft()
        assert count >= 0
        if count:
            assert announced[0] > count
            announced[0] -= count

    def work(self) -> None:
        while self.storage.step():
            pass

    def drain(self) -> None:
        for _ in range(10_000):
            self.work()
            if self.storage.is_empty():
                return
            for arc, announced in enumerate(self.announced):
                if announced:
                    self.take(arc, ALL)
        raise AssertionError("it does not drain")

    def check(self) -> None:
        for arc, reading in enumerate(self.storage.readings([str(a) for a in range(len(self.announced))])):
            dropped = sum(reading.shed.values())
            assert reading.enqueued == reading.dequeued + reading.tuples + reading.spilled_tuples + dropped
            assert reading.enqueued == self.sent[arc]
            assert reading.tuples == sum(self.announced[arc])


def test_ten_times_the_budget_drains_in_order_and_memory_stays_below_it() -> None:
    h = Harness(budget=40_000)
    while h.sent[0] * 12 < 10 * 40_000:
        assert h.storage.has_room
        h.put(97, 0)
        h.work()
        assert h.storage.used_bytes <= 40_000
    h.check()
    assert h.storage.spill_bytes > 5 * 40_000
    assert h.storage.readings(["0"])[0].spilled_tuples > 0
    h.drain()
    assert h.got[0] == list(range(h.sent[0]))
    h.check()
    assert h.storage.used_bytes == 0
    assert len(h.files.list("spill")) <= 1, "segments that nobody waits for are gone"


step = st.one_of(
    st.tuples(st.just("put"), st.integers(0, 120), st.sets(st.integers(0, 2), min_size=1)),
    st.tuples(st.just("take"), st.integers(0, 2), st.integers(0, 300)),
    st.tuples(st.just("work"), st.integers(1, 4), st.none()),
    st.tuples(st.just("rank"), st.permutations([0, 1, 2]), st.none()),
)


@given(st.lists(step, max_size=120))
def test_whatever_happens_every_arc_gets_its_tuples_in_order(steps: list[tuple[str, object, object]]) -> None:
    h = Harness(arcs=3, budget=6_000)
    for kind, a, b in steps:
        if kind == "put":
            for arc in sorted(b):  # type: ignore[type-var]
                h.put(a, arc)  # type: ignore[arg-type]
        elif kind == "take":
            h.take(a, b)  # type: ignore[arg-type]
        elif kind == "work":
            for _ in range(a):  # type: ignore[call-overload]
                h.storage.step()
        else:
            h.storage.rank(a)  # type: ignore[arg-type]
        h.check()
    h.drain()
    for arc in range(3):
        assert h.got[arc] == list(range(h.sent[arc]))
    assert h.storage.used_bytes == 0


@pytest.mark.parametrize("seed", range(10))
def test_a_train_on_many_arcs_is_written_once(seed: int) -> None:
    rng = Random(seed)
    h = Harness(arcs=4, budget=20_000)
    for _ in range(100):
        h.put(rng.randint(1, 100), 0, 1, 2, 3)
        h.work()
        if rng.random() < 0.5:
            h.take(rng.randrange(4), rng.randint(1, 200))
    assert h.spill.written_bytes < 2 * h.sent[0] * 16
    h.drain()
    assert h.got == [list(range(h.sent[0]))] * 4
    assert h.storage.used_bytes == 0


@pytest.mark.parametrize("seed", range(10))
def test_a_restart_gives_every_arc_its_blocks_in_its_own_order(seed: int) -> None:
    """Two arcs that share a block may each have blocks of their own before it, in any order of the block numbers."""
    rng = Random(seed)
    h = Harness(arcs=3, budget=6_000)
    expected: list[list[int]] = [[], [], []]
    for start in range(0, 3_000, 50):
        arcs = sorted(rng.sample(range(3), rng.randint(1, 3)))
        h.storage.enqueue(arcs, train_of(start, 50))
        for arc in arcs:
            expected[arc] += range(start, start + 50)
        if rng.random() < 0.5:
            h.storage.step()
        if rng.random() < 0.3:
            h.take(rng.randrange(3), rng.randint(1, 100))
    contents = h.storage.contents()
    blocks = list({id(b): b for content in contents for b in content.blocks}.values())
    numbers = {id(b): n for n, b in enumerate(blocks)}
    assert any(len(b.arcs) > 1 for b in blocks)
    again = Harness(arcs=3, budget=6_000, files=h.files)
    again.spill.open([b.ref for b in blocks if b.ref is not None])
    again.storage.restore(
        {a: (c.trains, [numbers[id(b)] for b in c.blocks], c.counts) for a, c in enumerate(contents)},
        [SavedBlock(b.ref, b.trains or [], b.nbytes, b.tuples) for b in blocks],
        again.storage.enqueue,
    )
    again.drain()
    for arc in range(3):
        assert h.got[arc] + again.got[arc] == expected[arc]


def test_what_the_scheduler_ranks_last_goes_to_disk_first() -> None:
    h = Harness(arcs=2, budget=100_000)
    h.storage.rank([0, 1])
    while h.storage.used_bytes < 60_000:
        h.put(50, 0)
        h.put(50, 1)
    assert h.storage.blocks.tuples[1] > 0
    assert h.storage.blocks.tuples[0] == 0
    assert h.storage.is_spilled(1) and not h.storage.is_spilled(0)
    h.drain()
    assert h.got == [list(range(n)) for n in h.sent]


def test_the_first_tuples_of_an_arc_stay_in_memory_however_short_it_is() -> None:
    h = Harness(arcs=2, budget=40_000)
    while h.storage.used_bytes < 39_000:
        h.put(100, 0)
    h.put(10, 1)
    assert h.storage.blocks.tuples[1] == 0


def test_boxes_that_rest_do_not_close_the_edge_for_ever() -> None:
    """Exceed the budget for a moment and take nothing from the queues: writing blocks alone must make room."""
    h = Harness(budget=40_000)
    while h.storage.has_room:
        h.put(100, 0)
    h.work()
    assert h.storage.has_room
    assert h.room_again


def test_a_full_disk_fills_memory_up_to_the_budget_and_no_further_than_the_edge_allows() -> None:
    h = Harness(budget=20_000, files=CrashFiles(capacity_bytes=8_000))
    while h.storage.has_room:
        h.put(20, 0)
        h.work()
    assert h.storage.disk_full
    assert h.storage.used_bytes < 20_000 + 1_000
    h.files.capacity_bytes = 10**9
    h.drain()
    assert h.storage.has_room
    assert h.got[0] == list(range(h.sent[0]))


def test_a_damaged_block_costs_its_tuples_counted_and_nothing_else() -> None:
    h = Harness(budget=10_000)
    while h.spill.written_bytes < 30_000:
        h.put(50, 0)
        h.work()
    name = "spill/" + h.files.list("spill")[0]
    h.files.flip(name, 8 * 5_000)
    h.drain()
    h.check()
    lost = h.storage.damaged[0]
    assert 0 < lost < h.sent[0] / 4
    assert len(h.got[0]) == h.sent[0] - lost
    assert h.got[0] == sorted(h.got[0])
    assert h.storage.readings(["0"])[0].shed == {"damaged": lost}


def test_blocks_that_a_checkpoint_refers_to_survive_and_the_rest_is_removed() -> None:
    files = CrashFiles()
    spill = SpillFiles(files, segment_bytes=1, keep_dead=True)
    refs = [spill.write([train_of(i * 10, 10)]) for i in range(4)]
    spill.sync()
    spill.release(refs[0])
    spill.release(refs[1])
    assert len(files.list("spill")) == 4
    spill.collect(kept={refs[1].segment})
    assert len(files.list("spill")) == 3
    again = SpillFiles(files.crash(Random(0)), segment_bytes=1)
    again.open(refs[1:3])
    assert [t.columns[0].tolist() for t in again.read(refs[2], SCHEMA)] == [list(range(20, 30))]
    fresh = again.write([train_of(0, 1)])
    assert fresh.segment == 4
    again.release(refs[1])
    with pytest.raises(SpillDamageError, match="missing"):
        SpillFiles(CrashFiles()).open([BlockRef(0, 0, 1)])


def test_null_and_watermarks_survive() -> None:
    spill = SpillFiles(CrashFiles())
    schema = Schema.of(v="double?")
    flags = np.array([True, False])
    train = Train(schema, (np.array([1.0, 0.0]),), constant_ns(9, 2), valid=(flags,), watermark_ns=77)
    [back] = spill.read(spill.write([train]), schema)
    assert (back.to_rows(), back.watermark_ns, back.arrival_ns.tolist()) == ([(1.0,), (None,)], 77, [9, 9])


def test_a_segment_whose_sync_failed_is_never_trusted_again() -> None:
    """No checkpoint may refer to its blocks: a second sync would succeed and prove nothing."""
    files = CrashFiles()
    spill = SpillFiles(files)
    ref = spill.write([train_of(0, 10)])
    files.fail_syncs = {len(files.operations)}
    for _ in range(3):
        with pytest.raises(OSError):
            spill.sync()
    spill.release(ref)
    spill.sync()  # no arc waits for its blocks
    assert [d for d in files.operations if d.startswith("sync ")] == ["sync spill/000000000000.spill"]
