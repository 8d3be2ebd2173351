"""A plan's input stays in the account of the storage until the plan has ended (P3)."""

from __future__ import annotations

from threading import Event

import numpy as np

from catalog.schema import Schema
from engine.daemon.durable.committer import PENDING_AT_MOST_BYTES, pending_at_most
from engine.run.core import Engine
from engine.simulate.sketch import SCHEMA, NetworkSketch
from scheduler.state import SchedulerSettings
from storage.manager import StorageManager
from storage.string_account import string_share, waiting_bytes
from storage.strings import StringPool
from storage.train import Train, constant_ns


def test_the_edge_has_no_room_while_a_plan_holds_the_budget() -> None:
    sketch = NetworkSketch()
    sketch.output(sketch.box(sketch.stream(), cost_ns=0))
    entered, leave = Event(), Event()

    def outlet(train: Train) -> None:
        entered.set()
        assert leave.wait(60)

    columns = (np.arange(100), np.zeros(100))
    train = Train(SCHEMA, columns, constant_ns(0, 100))
    settings = SchedulerSettings(idle_fast_path=False)
    engine = Engine(sketch.network(), [outlet], workers=1, memory_bytes=train.nbytes, settings=settings)
    engine.start()
    try:
        assert engine.ingress.admit(0, train)
        assert entered.wait(60), "the plan runs"
        storage = engine.storage
        assert (storage.used_bytes, storage.pinned_bytes) == (train.nbytes, train.nbytes)
        assert storage.queues[0].tuples == 0 and not storage.has_room
        leave.set()
        assert engine.drain(60)
        assert (storage.used_bytes, storage.pinned_bytes) == (0, 0) and storage.has_room
    finally:
        leave.set()
        engine.stop()


def test_trains_that_a_checkpoint_writes_stay_in_the_account() -> None:
    sketch = NetworkSketch()
    sketch.output(sketch.box(sketch.stream(), cost_ns=0))
    train = Train(SCHEMA, (np.arange(100), np.zeros(100)), constant_ns(0, 100))
    settings = SchedulerSettings(idle_fast_path=False)
    engine = Engine(sketch.network(), [lambda train: None], workers=1, memory_bytes=train.nbytes, settings=settings)
    storage = engine.storage
    storage.enqueue((0,), train)
    held = storage.hold()
    taken, _, _ = storage.take(0, 100, 1)
    storage.unpin([0])
    assert taken and storage.used_bytes == train.nbytes and not storage.has_room, "the checkpoint still has the train"
    storage.enqueue((0,), train)
    storage.let_go(held)
    assert (storage.used_bytes, storage.pinned_bytes) == (train.nbytes, 0), "only the train that waits is left"
    storage.take(0, 100, 1)
    storage.unpin([0])
    assert (storage.used_bytes, storage.pinned_bytes) == (0, 0) and storage.has_room


def test_strings_of_waiting_trains_are_in_the_account_once() -> None:
    """60,000 tuples with a string of 10 kB each were counted with 700 kB, and took 700 MB."""
    schema = Schema.of(s="string")
    interner = StringPool()

    def words(first: int, count: int) -> Train:
        codes = interner.encode([f"{n:05}" * 1_000 for n in range(first, first + count)])
        return Train(schema, (codes,), constant_ns(0, count), pools=(interner,))

    storage = StorageManager(1, 10**6, on_room=lambda: None, on_expired=lambda arc, dropped: None)
    storage.enqueue((0,), words(0, 50))
    assert 250_000 < storage.held_bytes < 270_000
    storage.enqueue((0,), words(0, 50))
    assert storage.held_bytes < 270_000, "the same strings are counted once"
    storage.enqueue((0,), words(50, 150))
    assert storage.held_bytes > 10**6 and not storage.has_room, "those that were added since are counted too"
    assert storage.waiting_bytes == 250 * 4
    for _ in range(3):
        storage.take(0, 1_000, 1)
        storage.unpin([0])
    assert storage.held_bytes == 0 and storage.has_room


def test_the_share_of_a_train_in_its_strings() -> None:
    pool = StringPool([f"{n:05}" for n in range(1_000)])
    train = Train(Schema.of(s="string"), (np.array([1, 2, 2, 1], np.int32),), constant_ns(0, 4), pools=(pool,))
    assert string_share(train) == 2 * pool.nbytes // 1_000
    assert string_share(Train(SCHEMA, (np.arange(3), np.zeros(3)), constant_ns(0, 3))) == 0


def test_what_waits_for_the_log_counts_with_its_strings() -> None:
    pool = StringPool([f"{n:05}" + "x" * 995 for n in range(1_000)])
    schema = Schema.of(s="string", t="string")

    def train(count: int) -> Train:
        codes = np.arange(count, dtype=np.int32) % 1_000
        return Train(schema, (codes, codes), constant_ns(0, count), pools=(pool, pool))

    assert waiting_bytes(train(5_000)) >= pool.nbytes + train(5_000).nbytes
    for count in (1, 10, 64):
        assert count * 1_000 <= waiting_bytes(train(count)) - train(count).nbytes <= 2 * count * 1_200
    numbers = Train(SCHEMA, (np.arange(3), np.zeros(3)), constant_ns(0, 3))
    assert waiting_bytes(numbers) == numbers.nbytes
    assert [pending_at_most(n * 2**20) // 2**20 for n in (8, 32, 64, 256, 1_024)] == [4, 4, 8, 32, 32]
    assert pending_at_most(2**40) == PENDING_AT_MOST_BYTES
