"""Queues by count, one lease a train, and a budget that pushes back."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from catalog.schema import Schema
from storage.manager import LOW_WATER
from storage.queue import ALL, COALESCE_BELOW, coalesce
from storage.train import Train, constant_ns
from tests.unit.storage_harness import make_storage

SCHEMA = Schema.of(a="int")


def train_of(start: int, count: int) -> Train:
    return Train(SCHEMA, (np.arange(start, start + count, dtype=np.int32),), constant_ns(start, count))


def values(trains: list[Train]) -> list[int]:
    return [v for t in trains for v in t.columns[0].tolist()]


@given(st.lists(st.integers(0, 9), max_size=12), st.lists(st.integers(0, 15), max_size=30))
def test_tuples_leave_in_the_order_they_came(sizes: list[int], takes: list[int]) -> None:
    storage = make_storage(1, 10**9)
    start = 0
    for size in sizes:
        storage.enqueue([0], train_of(start, size))
        start += size
    out: list[int] = []
    for count in [*takes, ALL]:
        trains, tuples, _ = storage.take(0, count, 10**9)
        got = values(trains)
        assert len(got) == tuples <= count
        out += got
        storage.unpin([0])
    assert out == list(range(start))
    queue = storage.queues[0]
    assert (queue.residual, queue.tuples, queue.nbytes, storage.used_bytes) == (0, 0, 0, 0)
    assert queue.enqueued == queue.dequeued == start


def test_no_more_trains_than_the_taker_knows_of() -> None:
    storage = make_storage(1, 10**9)
    for start in (0, 5, 10):
        storage.enqueue([0], train_of(start, 5))
    trains, tuples, whole = storage.take(0, ALL, 2)
    assert (values(trains), tuples, whole) == (list(range(10)), 10, 2)


def test_a_train_on_many_arcs_is_counted_once_until_the_last_has_taken_it() -> None:
    storage = make_storage(3, 10**9)
    train = train_of(0, 100)
    storage.enqueue([0, 1, 2], train)
    assert storage.used_bytes == train.nbytes == 400
    storage.take(0, ALL, 9)
    storage.take(1, 50, 9)
    storage.take(2, ALL, 9)
    storage.unpin([0, 1, 2])
    assert storage.used_bytes == 400  # half of it still waits on arc 1, as a view into all of it
    storage.take(1, ALL, 9)
    storage.unpin([1])
    assert storage.used_bytes == storage.pinned_bytes == 0


def test_a_taken_train_is_pinned_until_its_plan_has_ended() -> None:
    """P3: "the queue of the box be pinned to the buffer throughout box's execution"."""
    storage = make_storage(2, 10**9)
    storage.enqueue([0], train_of(0, 100))
    storage.enqueue([0, 1], train_of(0, 50))
    storage.take(0, ALL, 9)
    assert (storage.used_bytes, storage.pinned_bytes, storage.waiting_bytes) == (600, 400, 200)
    storage.take(1, ALL, 9)
    assert (storage.used_bytes, storage.pinned_bytes, storage.waiting_bytes) == (600, 600, 0)
    storage.unpin([0])
    assert (storage.used_bytes, storage.pinned_bytes) == (200, 200)  # the plan of arc 1 still has the train of both
    storage.enqueue([1], train_of(0, 10))
    storage.expire(1, 10, 9)
    assert (storage.used_bytes, storage.pinned_bytes) == (200, 200)
    storage.unpin([0, 1])
    assert (storage.used_bytes, storage.pinned_bytes, storage.peak_bytes) == (0, 0, 600)


def test_room_ends_at_the_budget_and_comes_back_below_low_water() -> None:
    told: list[bool] = []
    storage = make_storage(1, 4_000, on_room=lambda: told.append(storage.has_room))
    for start in range(0, 1_000, 100):
        assert storage.has_room
        storage.enqueue([0], train_of(start, 100))
    assert not storage.has_room
    while storage.used_bytes - 400 > 4_000 * LOW_WATER:
        storage.take(0, 100, 9)
        storage.unpin([0])
        assert not storage.has_room and not told
    storage.take(0, 100, 9)
    assert not storage.has_room and not told, "the train is pinned while its plan runs"
    storage.unpin([0])
    assert storage.has_room and told == [True]
    assert storage.peak_bytes == 4_000


def test_short_trains_are_joined_and_long_ones_left() -> None:
    storage = make_storage(1, 10**9)
    for start in range(50):
        storage.enqueue([0], train_of(start, 1))
    long = train_of(50, COALESCE_BELOW)
    storage.enqueue([0], long)
    storage.enqueue([0], train_of(50 + COALESCE_BELOW, 1))
    taken, _, whole = storage.take(0, ALL, 10**9)
    trains = coalesce(taken)
    assert [t.count for t in trains] == [50, COALESCE_BELOW, 1] and trains[1] is long and whole == len(taken) == 52
    assert values(trains) == list(range(51 + COALESCE_BELOW))


def test_punctuations_travel_with_the_tuples_before_them() -> None:
    storage = make_storage(1, 10**9)
    storage.enqueue([0], train_of(0, 2))
    storage.enqueue([0], Train.empty(SCHEMA, watermark_ns=5))
    storage.enqueue([0], train_of(2, 2))
    trains, tuples, whole = storage.take(0, 2, 9)
    assert (tuples, whole) == (2, 2) and max(t.watermark_ns for t in trains) == 5
    assert storage.take(0, ALL, 9)[1] == 2


def test_state_above_the_budget_lets_tuples_in_one_train_at_a_time() -> None:
    """Nothing else could close a window, and the stream would wait for ever."""
    manager = make_storage(1, 4_000)
    manager.note_state(0, 10**9)
    assert manager.has_room
    manager.enqueue((0,), train_of(0, 1_000))
    assert not manager.has_room
    manager.take(0, 1_000, 1)
    manager.unpin((0,))
    assert manager.has_room
