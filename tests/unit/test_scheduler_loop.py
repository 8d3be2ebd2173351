"""The ways to take the scheduler's turn, one thread at a time."""

from __future__ import annotations

from queue import SimpleQueue

import pytest

from engine.simulate.sketch import SCHEMA, NetworkSketch
from scheduler.claims import QueuedPlan
from scheduler.events import Enqueued, Finished
from scheduler.loop import SchedulerLoop
from scheduler.plan import Plan
from scheduler.policies import policies
from scheduler.state import SchedulerState
from storage.train import Train
from tests.unit.storage_harness import make_storage


class Rig:
    """A loop over one box whose tests are its only thread."""

    def __init__(self) -> None:
        sketch = NetworkSketch()
        sketch.output(sketch.box(sketch.stream()))
        network = sketch.network()
        self.storage = make_storage(len(network.arcs), 2**20)
        self.failures: list[Exception] = []
        self.queue: SimpleQueue[QueuedPlan] = SimpleQueue()
        self.loop = SchedulerLoop(
            SchedulerState(network), policies()["round_robin"], self.storage, self.queue, 1, lambda: 0, lambda: 0,
            on_failure=self.failures.append,
        )  # fmt: skip

    def put(self) -> None:
        train = Train.from_pylists(SCHEMA, {"seq": [1], "value": [0.5]}, 0)
        self.loop.mailbox.put(Enqueued((0,), 1, 0, 0, self.storage.enqueue((0,), train)))

    def taken(self) -> Plan:
        plan = self.queue.get_nowait().plan
        assert plan is not None
        return plan


@pytest.fixture
def rig() -> Rig:
    return Rig()


def test_the_thread_that_brings_news_acts_on_it(rig: Rig) -> None:
    rig.put()
    rig.loop.act_on_news()
    assert rig.taken().boxes == (0,) and rig.loop.is_resting


def test_news_during_a_pause_is_acted_on_when_the_pause_ends(rig: Rig) -> None:
    with rig.loop.paused():
        rig.put()
        rig.loop.act_on_news()
        assert rig.queue.empty() and not rig.loop.is_resting
    assert rig.taken().boxes == (0,)


def test_a_thread_that_cannot_have_the_turn_in_time_says_so(rig: Rig) -> None:
    with rig.loop.paused(), pytest.raises(TimeoutError, match="turn did not become free"), rig.loop.paused(0.001):
        pass


def test_the_end_of_a_plan_is_left_in_the_mailbox_while_all_queues_are_empty(rig: Rig) -> None:
    rig.put()
    rig.loop.act_on_news()
    rig.loop.post(Finished(rig.taken()))
    assert rig.loop.state.outstanding == 1, "nothing could be decided on it"
    rig.loop.drain_mailbox()
    assert rig.loop.state.outstanding == 0 and rig.loop.is_resting


def test_an_idle_scheduler_lends_its_turn_and_gets_it_back(rig: Rig) -> None:
    assert rig.loop.acquire_if_idle(0)
    assert not rig.loop.acquire_if_idle(0)
    rig.put()
    rig.loop.act_on_news()
    assert rig.queue.empty(), "the turn is taken"
    rig.loop.release()
    assert not rig.loop.acquire_if_idle(0), "a train waits"
    rig.loop.act_on_news()
    assert rig.taken().boxes == (0,)


def test_a_broken_policy_keeps_the_turn_for_good(rig: Rig) -> None:
    rig.loop.follow(lambda state, now_ns: 1 / 0)  # type: ignore[arg-type, return-value]
    rig.put()
    rig.loop.act_on_news()
    assert [type(f) for f in rig.failures] == [ZeroDivisionError] and not rig.loop.is_resting
    rig.put()
    rig.loop.act_on_news()
    rig.loop.stop()
    assert rig.queue.empty() and len(rig.failures) == 1


def test_nothing_is_decided_after_the_stop(rig: Rig) -> None:
    rig.loop.stop()
    rig.put()
    rig.loop.act_on_news()
    assert rig.queue.empty()
