"""The scheduler's state: counts after events, units that are ready and why not, superboxes, what the loop claims."""

from __future__ import annotations

from queue import SimpleQueue

import numpy as np
import pytest

from catalog.network import Network
from engine.simulate.sketch import SCHEMA, NetworkSketch
from scheduler.claims import QueuedPlan
from scheduler.events import Claimed, Dispatched, Enqueued, Finished, MemoryShort, OutputBlocked, OutputFreed
from scheduler.loop import SchedulerLoop
from scheduler.plan import Plan, Step
from scheduler.policies import policies
from scheduler.state import SchedulerSettings, SchedulerState
from scheduler.superbox import static_superboxes
from scheduler.trains import TrainRule
from storage.manager import StorageManager
from storage.queue import ALL
from storage.train import Train, constant_ns
from tests.unit.storage_harness import make_storage


def chain_of(length: int) -> Network:
    sketch = NetworkSketch()
    sketch.output(sketch.chain(sketch.stream(), length))
    return sketch.network()


def enqueued(arc: int, tuples: int, first_ns: int = 0, last_ns: int | None = None, nbytes: int = 0) -> Enqueued:
    last_ns = first_ns if last_ns is None else last_ns
    return Enqueued((arc,), tuples, first_ns, (first_ns + last_ns) // 2, nbytes)


def train(count: int, arrival_ns: int = 0) -> Train:
    return Train(SCHEMA, (np.arange(count), np.zeros(count)), constant_ns(arrival_ns, count))


# -- superboxes ---------------------------------------------------------------------------------------------------


def test_a_tree_is_one_superbox_in_post_order() -> None:
    sketch = NetworkSketch()
    leaf, other = sketch.box(sketch.stream(), name="leaf"), sketch.box(sketch.stream(), name="other")
    sketch.output(sketch.box(sketch.box(leaf, name="inner"), other, name="root"))
    network = sketch.network()
    [superbox] = static_superboxes(network)
    assert [network.boxes[b].name for b in superbox.boxes] == ["leaf", "inner", "other", "root"]


def test_a_shared_box_is_the_root_of_its_own_superbox() -> None:
    sketch = NetworkSketch()
    shared = sketch.box(sketch.box(sketch.stream(), name="above"), name="shared")
    for name in ("left", "right"):
        sketch.output(sketch.box(shared, name=name))
    network = sketch.network()
    assert [[network.boxes[b].name for b in s.boxes] for s in static_superboxes(network)] == [
        ["above", "shared"],
        ["left"],
        ["right"],
    ]


def test_a_box_that_delivers_and_feeds_is_a_root() -> None:
    sketch = NetworkSketch()
    first = sketch.box(sketch.stream())
    sketch.output(first)
    sketch.output(sketch.box(first))
    assert [s.boxes for s in static_superboxes(sketch.network())] == [(0,), (1,)]


def test_a_diamond_stays_whole() -> None:
    sketch = NetworkSketch()
    top = sketch.box(sketch.stream())
    sketch.output(sketch.box(sketch.box(top), sketch.box(top)))
    assert [s.boxes for s in static_superboxes(sketch.network())] == [(0, 1, 2, 3)]


def test_a_chain_of_thousands_needs_no_stack() -> None:
    [superbox] = static_superboxes(chain_of(5_000))
    assert superbox.boxes == tuple(range(5_000))


# -- events -------------------------------------------------------------------------------------------------------


def test_enqueued_counts_and_makes_ready() -> None:
    state = SchedulerState(chain_of(2), SchedulerSettings(unit="box"))
    state.apply(enqueued(0, 10, 100, 300, nbytes=80))
    arc = state.arcs[0]
    assert (arc.tuples, arc.nbytes, state.waiting_tuples, list(state.ready)) == (10, 80, 10, [0])
    assert (state.head_ns(0), state.mean_arrival_ns(0)) == (100, 200)


def test_a_cut_head_keeps_its_bytes_and_moves_its_times() -> None:
    state = SchedulerState(chain_of(1))
    state.apply(enqueued(0, 11, 0, 1_000, nbytes=88))
    state.apply(Claimed(0, 5, 0))
    arc = state.arcs[0]
    assert (arc.tuples, arc.nbytes, len(arc.entries), state.waiting[0]) == (6, 88, 1, 1)
    assert arc.entries[0].first_arrival_ns == 500
    assert state.mean_arrival_ns(0) == 750
    state.apply(Claimed(0, 6, 1))
    assert (arc.tuples, arc.nbytes, arc.arrival_total_ns, state.waiting[0], state.waiting_tuples) == (0, 0, 0, 0, 0)


def test_a_punctuation_makes_ready_without_tuples() -> None:
    state = SchedulerState(chain_of(1))
    state.apply(Enqueued((0,), 0, 0, 0, 0))
    assert list(state.ready) == [0] and state.box_tuples(0) == 0
    state.apply(Claimed(0, 0, 1))
    assert not state.waiting[0]


def test_a_dispatched_unit_is_not_ready_until_finished_and_then_goes_last() -> None:
    sketch = NetworkSketch()
    for _ in range(2):
        sketch.output(sketch.box(sketch.stream()))
    state = SchedulerState(sketch.network())
    for arc in (0, 1):
        state.apply(enqueued(arc, 5))
    plan = Plan((Step(0, 2),))
    state.apply(Dispatched(plan))
    state.apply(Claimed(0, 2, 0))
    assert list(state.ready) == [1] and state.outstanding == 1
    state.apply(enqueued(0, 1))
    assert list(state.ready) == [1]
    state.apply(Finished(plan))
    assert list(state.ready) == [1, 0] and state.outstanding == 0


def test_a_blocked_output_rests_the_unit_that_feeds_it_however_often_it_is_held() -> None:
    state = SchedulerState(chain_of(2))
    state.apply(enqueued(0, 1))
    plan = Plan((Step(0, 1), Step(1, ALL)))
    state.apply(Dispatched(plan))
    state.apply(OutputBlocked(0))
    state.apply(enqueued(0, 1))
    state.apply(Finished(plan))
    assert not state.ready
    state.apply(OutputFreed(0))
    assert list(state.ready) == [0]


def test_memory_short_is_remembered() -> None:
    state = SchedulerState(chain_of(1))
    state.apply(MemoryShort(True))
    assert state.memory_short
    state.apply(MemoryShort(False))
    assert not state.memory_short


# -- the loop -----------------------------------------------------------------------------------------------------


def loop_over(network: Network, settings: SchedulerSettings) -> tuple[SchedulerLoop, StorageManager]:
    storage = make_storage(len(network.arcs), 2**30)
    queue: SimpleQueue[QueuedPlan] = SimpleQueue()
    state = SchedulerState(network, settings)
    return SchedulerLoop(state, policies()["round_robin"], storage, queue, 1, lambda: 0, lambda: 0), storage


def put(loop: SchedulerLoop, storage: StorageManager, arc: int, count: int, arrival_ns: int = 0) -> None:
    t = train(count, arrival_ns)
    loop.state.apply(Enqueued((arc,), count, arrival_ns, arrival_ns, storage.enqueue((arc,), t)))


def test_dispatch_claims_what_the_plan_says_and_accounts_for_it() -> None:
    loop, storage = loop_over(chain_of(1), SchedulerSettings(train=TrainRule("tuples", 3)))
    put(loop, storage, 0, 5)
    plan = loop.decide(0)
    assert plan is not None
    loop.dispatch(plan)
    work = loop.execution_queue.get_nowait()
    assert [t.count for t in work.claims[0].trains] == [3] and not work.claims[0].emptied
    queue, arc = storage.queues[0], loop.state.arcs[0]
    assert (queue.tuples, arc.tuples, len(queue.entries), len(arc.entries)) == (2, 2, 1, 1)
    assert queue.residual == 0


def test_dispatch_never_takes_a_train_that_the_state_has_not_heard_of() -> None:
    loop, storage = loop_over(chain_of(1), SchedulerSettings(train=TrainRule("all")))
    put(loop, storage, 0, 2)
    storage.enqueue((0,), train(7))  # its event is still on its way
    plan = loop.decide(0)
    assert plan is not None
    loop.dispatch(plan)
    work = loop.execution_queue.get_nowait()
    assert [t.count for t in work.claims[0].trains] == [2]
    assert storage.queues[0].tuples == 7


def test_an_arc_that_is_not_in_takes_is_left_and_marked_as_cut() -> None:
    sketch = NetworkSketch()
    sketch.output(sketch.box(sketch.stream(), sketch.stream()))
    loop, storage = loop_over(sketch.network(), SchedulerSettings())
    put(loop, storage, 0, 4)
    put(loop, storage, 1, 4)
    loop.dispatch(Plan((Step(0, ALL),), takes={1: 2}))
    work = loop.execution_queue.get_nowait()
    assert work.claims[0].trains == [] and not work.claims[0].emptied
    assert [t.count for t in work.claims[1].trains] == [2]
    assert (loop.state.arcs[0].tuples, loop.state.arcs[1].tuples) == (4, 2)


def test_expired_tuples_are_dropped_counted_and_their_watermark_goes_on() -> None:
    loop, storage = loop_over(chain_of(1), SchedulerSettings())
    for watermark_ns in (10, 20, 30):
        t = train(4).with_watermark(watermark_ns)
        loop.state.apply(Enqueued((0,), 4, 0, 0, storage.enqueue((0,), t)))
    loop.dispatch(Plan((Step(0, ALL),), takes={0: 6}, expired=((0, 6),)))
    claim = loop.execution_queue.get_nowait().claims[0]
    assert [(t.count, t.watermark_ns) for t in claim.trains] == [(0, 10), (2, 20), (4, 30)]
    queue = storage.queues[0]
    assert (queue.expired, queue.dequeued, queue.tuples, queue.residual) == (6, 6, 0, 0)
    assert storage.readings(["a", "b"])[0].shed == {"expired": 6}
    storage.unpin((0,))
    assert storage.used_bytes == 0
    assert loop.state.arcs[0].tuples == 0


@pytest.mark.parametrize("unit", ["tuple", "box", "superbox"])
def test_a_run_leaves_nothing_behind(unit: str) -> None:
    loop, storage = loop_over(chain_of(1), SchedulerSettings(unit=unit))
    put(loop, storage, 0, 9)
    while (plan := loop.decide(0)) is not None:
        loop.dispatch(plan)
        loop.state.apply(Finished(plan))
    assert loop.state.is_quiet() and storage.is_empty() and loop.state.waiting_tuples == 0
