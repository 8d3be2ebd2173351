"""The scheduler's loop: what wakes it, how far it fills the execution queue, and who may take its turn."""

from __future__ import annotations

from collections.abc import Callable
from queue import SimpleQueue
from threading import Thread
from time import monotonic, sleep

import pytest

from catalog.qos import QoS
from engine.simulate.sketch import SCHEMA, NetworkSketch
from scheduler.claims import QueuedPlan
from scheduler.events import Enqueued, Event, Finished
from scheduler.loop import SchedulerLoop
from scheduler.plan import Plan
from scheduler.policies import policies
from scheduler.state import SchedulerState
from storage.train import Train
from tests.unit.storage_harness import make_storage


class Rig:
    """A loop over boxes, one a stream, whose tests are its only thread."""

    def __init__(self, boxes: int = 1, qos: QoS | None = None) -> None:
        sketch = NetworkSketch()
        for _ in range(boxes):
            sketch.output(sketch.box(sketch.stream()), qos)
        network = sketch.network()
        self.storage = make_storage(len(network.arcs), 2**20)
        self.failures: list[Exception] = []
        self.queue: SimpleQueue[QueuedPlan] = SimpleQueue()
        self.loop = SchedulerLoop(
            SchedulerState(network), policies()["round_robin"], self.storage, self.queue, 1, lambda: 0, lambda: 0,
            on_failure=self.failures.append,
        )  # fmt: skip

    def put(self, arc: int = 0) -> None:
        train = Train.from_pylists(SCHEMA, {"seq": [1], "value": [0.5]}, 0)
        self.loop.mailbox.put(Enqueued((arc,), 1, 0, 0, self.storage.enqueue((arc,), train)))

    def filled(self, ran_ns: int) -> int:
        """Put a train before every box, and return how many plans one step dispatches, after a plan of each box has
        kept a worker for so long."""
        arcs = [stream.arcs[0] for stream in self.loop.state.network.streams]
        for arc in arcs:
            self.put(arc)
            self.loop.drain_mailbox()
            self.loop.mailbox.put(Finished(self.taken(), ran_ns))
        for arc in arcs:
            self.put(arc)
        self.loop.drain_mailbox()
        return self.queue.qsize()

    def taken(self) -> Plan:
        plan = self.queue.get_nowait().plan
        assert plan is not None
        return plan


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = monotonic() + 60
    while not condition():
        assert monotonic() < deadline
        sleep(0.001)


@pytest.fixture
def rig() -> Rig:
    return Rig()


def test_a_step_reads_the_mailbox_and_fills_the_execution_queue(rig: Rig) -> None:
    rig.put()
    rig.loop.drain_mailbox()
    assert rig.taken().boxes == (0,) and rig.loop.is_resting


def test_the_scheduler_s_thread_is_woken_and_decides(rig: Rig) -> None:
    thread = Thread(target=rig.loop.run, daemon=True)
    thread.start()
    for _ in range(20):
        rig.put()
        rig.loop.wake()
        plan = rig.queue.get(timeout=60).plan
        assert plan is not None and plan.boxes == (0,)
        rig.loop.post(Finished(plan))
    rig.loop.stop()
    thread.join(60)
    assert not thread.is_alive() and rig.loop.steps == 20


def test_a_train_for_a_unit_that_runs_is_no_news_until_its_plan_ends(rig: Rig) -> None:
    rig.put()
    rig.loop.drain_mailbox()
    rig.put()
    assert not rig.loop.mailbox.has_news, "its box is in use"
    rig.loop.mailbox.put(Finished(rig.taken()))
    assert rig.loop.mailbox.has_news
    rig.loop.drain_mailbox()
    assert rig.taken().boxes == (0,)


def test_a_train_that_came_while_the_end_of_a_plan_was_read_is_not_left_behind(rig: Rig) -> None:
    """The train counts as no news, because its unit is in use, and then the step frees the unit."""
    rig.put()
    rig.loop.drain_mailbox()
    rig.loop.mailbox.put(Finished(rig.taken()))
    apply = rig.loop.state.apply

    def and_a_train(event: Event) -> None:
        if isinstance(event, Finished):
            rig.put()
        apply(event)

    rig.loop.state.apply = and_a_train  # type: ignore[method-assign]
    rig.loop.drain_mailbox()
    assert rig.taken().boxes == (0,)


def test_the_queue_is_filled_ahead_by_work_and_again_when_little_is_left() -> None:
    """Plans of 0.5 ms each: 4 ms of work takes eight of them, plans of 2 ms or of unknown length leave it at two."""
    assert [Rig(boxes=80).filled(ran_ns) for ran_ns in (500_000, 2_000_000, 0, 1)] == [8, 2, 2, 64]
    assert Rig(boxes=80).filled(20_000_000) == 1, "the choice after a long plan is made when it ends"
    rig = Rig(boxes=80)
    rig.filled(500_000)
    for left in range(7, 2, -1):
        rig.loop.mailbox.put(Finished(rig.taken(), 500_000))
        assert not rig.loop.mailbox.has_news, f"{left} plans are left"
    rig.loop.mailbox.put(Finished(rig.taken(), 500_000))
    assert rig.loop.mailbox.has_news, "1 ms of work is left"


def test_a_tight_deadline_keeps_the_queue_short() -> None:
    """A fiftieth of 100 ms is 2 ms; of 10 ms it would be 0.2 ms, but a wake-up for so little is too expensive."""
    deadlines = [QoS(deadline_ns=ms * 10**6) for ms in (100, 10)]
    assert [Rig(boxes=80, qos=qos).filled(500_000) for qos in deadlines] == [4, 2]


def test_the_thread_reads_the_last_end_of_a_plan_before_it_comes_to_rest(rig: Rig) -> None:
    thread = Thread(target=rig.loop.run, daemon=True)
    thread.start()
    rig.put()
    rig.loop.wake()
    plan = rig.queue.get(timeout=60).plan
    assert plan is not None
    assert not rig.loop.is_at_rest
    rig.loop.post(Finished(plan))  # no news, as nothing waits: nobody rings
    wait_for(lambda: rig.loop.is_at_rest)
    rig.loop.stop()
    thread.join(60)
    assert not thread.is_alive()


def test_nothing_is_decided_during_a_pause(rig: Rig) -> None:
    with rig.loop.paused():
        rig.put()
        assert not rig.loop.acquire_if_idle(0) and not rig.loop.is_resting
    rig.loop.drain_mailbox()
    assert rig.taken().boxes == (0,)


def test_a_thread_that_cannot_have_the_turn_in_time_says_so(rig: Rig) -> None:
    with rig.loop.paused(), pytest.raises(TimeoutError, match="turn did not become free"), rig.loop.paused(0.001):
        pass


def test_the_end_of_a_plan_is_left_in_the_mailbox_while_all_queues_are_empty(rig: Rig) -> None:
    rig.put()
    rig.loop.drain_mailbox()
    rig.loop.post(Finished(rig.taken()))
    assert not rig.loop.mailbox.has_news and rig.loop.state.outstanding == 1, "nothing could be decided on it"
    rig.loop.drain_mailbox()
    assert rig.loop.state.outstanding == 0 and rig.loop.is_resting


def test_an_idle_scheduler_lends_its_turn_and_gets_it_back(rig: Rig) -> None:
    assert rig.loop.acquire_if_idle(0)
    assert not rig.loop.acquire_if_idle(0)
    rig.put()
    rig.loop.release()
    assert not rig.loop.acquire_if_idle(0), "a train waits"
    rig.loop.drain_mailbox()
    assert rig.taken().boxes == (0,) and rig.loop.idle_plans == 1


def test_a_broken_policy_decides_nothing_any_more(rig: Rig) -> None:
    rig.loop.follow(lambda state, now_ns: 1 / 0)  # type: ignore[arg-type, return-value]
    for _ in range(2):
        rig.put()
        rig.loop.drain_mailbox()
        assert [type(f) for f in rig.failures] == [ZeroDivisionError] and not rig.loop.is_resting
    assert not rig.loop.acquire_if_idle(0)
    rig.loop.stop()
    assert rig.queue.empty() and len(rig.failures) == 1


def test_nothing_is_decided_after_the_stop(rig: Rig) -> None:
    rig.loop.stop()
    rig.put()
    rig.loop.drain_mailbox()
    assert rig.queue.empty() and not rig.loop.acquire_if_idle(0)
