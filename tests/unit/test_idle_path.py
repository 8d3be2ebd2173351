"""The idle fast path through an engine at rest: the same tuples and counts, without a queue or a decision."""

from __future__ import annotations

import numpy as np
import pytest

from engine.run.core import Engine
from engine.run.network_file import read_network
from router.boundary import SOCKET
from scheduler.events import Finished, OutputBlocked, OutputFreed, StatisticsMoved
from scheduler.state import SchedulerSettings
from storage.train import Train

NETWORK = """
streams:
  rows: {schema: {n: bigint}}
  pair: {schema: {n: bigint}}
boxes:
  even: {filter: rows, where: "n % 2 = 0"}
  more: {map: even, select: {n: "n + 1"}}
  left: {filter: pair, where: "n > 0"}
  right: {filter: pair, where: "n < 0"}
outputs:
  out: {from: more, qos: {deadline: 100ms}}
  plus: {from: left}
  minus: {from: right}
"""


class Rig:
    """An engine whose threads are not started: a test takes the scheduler's steps and runs its plans."""

    def __init__(self, policy: str = "round_robin", settings: SchedulerSettings | None = None) -> None:
        self.network = read_network(NETWORK, {})
        self.got: list[int] = []
        outlets = [lambda train: self.got.extend(train.columns[0].tolist())] * 3
        self.engine = Engine(self.network, outlets, workers=1, policy=policy, settings=settings, now_ns=lambda: 0)
        self.out = self.network.output("out").number

    def bring(self, *values: int, stream: str = "rows") -> None:
        train = Train.from_pylists(self.network.stream(stream).schema, {"n": list(values)}, 0)
        self.engine.ingress.admit(self.network.stream(stream).number, train, SOCKET)

    def schedule(self) -> None:
        """Take the scheduler's step, and run the plans that it dispatches, until nothing waits."""
        self.engine.loop.drain_mailbox()
        while self.engine.pool.execution_queue.qsize():
            plan, claims = self.engine.pool.execution_queue.get()
            assert plan is not None
            self.engine.pool.work(plan, claims)
            self.engine.loop.mailbox.put(Finished(plan))
            self.engine.loop.drain_mailbox()

    @property
    def plans(self) -> int:
        return self.engine.state.dispatched

    def is_lawful(self) -> bool:
        boxes = self.engine.readings.boxes()
        return not any(q.residual for q in self.engine.storage.queues) and all(
            box.tuples_in == box.tuples_out + box.filtered for box in boxes
        )


@pytest.fixture
def rig() -> Rig:
    return Rig()


def test_tuples_that_find_the_engine_at_rest_need_no_plan(rig: Rig) -> None:
    rig.bring(1, 2, 3, 4)
    rig.bring(6)
    assert rig.got == [3, 5, 7] and rig.plans == 0 and rig.engine.loop.steps == 2
    queue = rig.engine.storage.queues[rig.network.stream("rows").arcs[0]]
    assert (queue.enqueued, queue.dequeued) == (5, 5) and rig.is_lawful() and rig.engine.is_quiet()


def test_a_stream_of_two_superboxes_is_the_scheduler_s_to_decide(rig: Rig) -> None:
    rig.bring(1, -2, stream="pair")
    assert rig.got == [], "both are the scheduler's to order"
    rig.schedule()
    assert rig.plans == 2 and sorted(rig.got) == [-2, 1]


def test_a_long_train_takes_its_turn(rig: Rig) -> None:
    rig.bring(*range(1_000))
    assert rig.got == []
    rig.schedule()
    assert len(rig.got) == 500 and rig.plans == 1


def test_the_network_file_can_switch_the_path_off() -> None:
    rig = Rig(settings=SchedulerSettings(idle_fast_path=False))
    rig.bring(2)
    assert rig.got == []
    rig.schedule()
    assert rig.got == [3] and rig.engine.readings.scheduler().plans_by == {"scheduler": 1, "idle": 0}


def test_a_train_is_bounded_by_the_train_rule_of_this_moment(rig: Rig) -> None:
    """Costs that have grown since the start shorten trains; the idle fast path must not go by the old bound."""
    rig.engine.state._statistics.cost_per_tuple_ns[:] = 1e6  # a tuple now costs 1 ms, of a deadline of 100 ms
    rig.engine.state.apply(StatisticsMoved())
    assert max(rig.engine.state.auto_tuples) < 100
    rig.bring(*range(100))
    assert rig.got == []
    rig.schedule()
    assert rig.plans > 0 and len(rig.got) == 50


def test_nothing_overtakes_what_waits(rig: Rig) -> None:
    rig.engine.post(OutputBlocked(rig.out))
    rig.bring(2)
    rig.schedule()
    assert rig.got == [] and rig.plans == 0
    rig.engine.loop.mailbox.put(OutputFreed(rig.out))  # said, and not read yet
    rig.bring(4)
    rig.schedule()
    assert rig.got == [3, 5] and rig.plans == 1 and rig.is_lawful()
    rig.bring(6)
    assert rig.got == [3, 5, 7] and rig.plans == 1 and rig.engine.is_quiet()


def test_while_a_plan_runs_the_turn_alone_is_not_enough(rig: Rig) -> None:
    rig.bring(*range(1_000))
    rig.engine.loop.drain_mailbox()
    rig.bring(2)
    assert rig.got == []
    plan, claims = rig.engine.pool.execution_queue.get(timeout=60)
    assert plan is not None
    rig.engine.pool.work(plan, claims)
    rig.engine.loop.mailbox.put(Finished(plan))
    rig.bring(4)
    rig.schedule()
    assert np.array_equal(rig.got, [*range(1, 1_000, 2), 3, 5]) and rig.is_lawful()
    rig.bring(2)
    assert rig.engine.loop.idle_plans == 1, "the engine is at rest again"


@pytest.mark.parametrize("policy", ["ats", "qos_feedback"])
def test_a_policy_that_learns_from_plans_sees_every_one(policy: str) -> None:
    rig = Rig(policy)
    rig.bring(2)
    rig.schedule()
    assert rig.got == [3] and rig.plans == 1


@pytest.mark.parametrize("unit", ["tuple", "box"])
def test_only_superboxes_go_this_way(unit: str) -> None:
    rig = Rig(settings=SchedulerSettings(unit=unit))
    rig.bring(2, 4)
    rig.schedule()
    assert rig.plans >= 1
