"""Batches as P4 runs them: whole, without what is overdue, and what the controller of ATS counts."""

from __future__ import annotations

import pytest

from catalog.qos import QoS
from engine.simulate.sketch import NetworkSketch
from scheduler.batches import Batches, late_tasks
from scheduler.events import Claimed, Clock, Dispatched, Enqueued, Expired, Finished
from scheduler.policies import make_index, policies
from scheduler.state import BatchRule, SchedulerSettings, SchedulerState


def queries(policy: str, rule: BatchRule, *deadlines_ns: int) -> SchedulerState:
    """A query of one box for each deadline, followed by this policy."""
    sketch = NetworkSketch()
    for deadline_ns in deadlines_ns:
        sketch.output(sketch.box(sketch.stream()), QoS(deadline_ns=deadline_ns))
    state = SchedulerState(sketch.network(), SchedulerSettings(unit="box", batch=rule))
    state.follow(make_index(policies()[policy]))
    return state


def fill(state: SchedulerState, arc: int, arrival_ns: int, tuples: int) -> None:
    state.apply(Enqueued((arc,), tuples, arrival_ns, arrival_ns, 0))


def test_a_whole_batch_waits_until_its_interval_is_over() -> None:
    state = queries("bts", BatchRule(basic_ns=1_000, whole=True), 10**9, 10**6)
    fill(state, 0, 0, 3)
    fill(state, 1, 500, 3)
    for now_ns, box in ((999, None), (1_000, 0), (1_499, 0), (1_500, 1)):  # the second is due first, once it is full
        state.apply(Clock(now_ns))
        plan = policies()["bts"](state, now_ns)
        assert (None if plan is None else plan.boxes[0]) == box, now_ns


@pytest.mark.parametrize("policy", ["edf", "bts", "ats"])
def test_overdue_tasks_are_dropped_where_that_is_asked_for(policy: str) -> None:
    for overdue, expired, taken in ((False, (), 10), (True, ((0, 4),), 6)):
        rule = BatchRule(basic_ns=1_000, overdue=overdue)
        state = queries(policy, rule, 1_000)
        fill(state, 0, 0, 4)
        fill(state, 0, 600, 6)
        state.apply(Clock(1_500))
        plan = policies()[policy](state, 1_500)
        assert plan is not None and plan.expired == expired
        assert plan.takes == {0: 1 if policy == "edf" else taken}


@pytest.mark.parametrize("policy", ["edf", "bts"])
def test_a_queue_of_overdue_tasks_is_only_dropped(policy: str) -> None:
    state = queries(policy, BatchRule(overdue=True), 1_000)
    fill(state, 0, 0, 4)
    state.apply(Clock(5_000))
    plan = policies()[policy](state, 5_000)
    assert plan is not None and plan.expired == ((0, 4),) and not any((plan.takes or {}).values())


def test_late_tasks_of_a_batch_are_counted_one_by_one() -> None:
    """Ten tasks, the first due at 1,000, the last at 3,000; the batch is done at 1,500: a quarter was due before."""
    batch = (1_000, 2_000, 10)
    assert [late_tasks(batch, at) for at in (900, 1_000, 1_500, 3_000, 9_000)] == [0.0, 0.0, 2.5, 10.0, 10.0]
    assert late_tasks((1_000, 0, 4), 1_001) == 4.0


def run_one(state: SchedulerState, dropped: int, run: int, at_ns: int) -> None:
    """``dropped`` tasks that are long overdue and ``run`` that are not, one plan, and a look of the controller."""
    if dropped:
        fill(state, 0, at_ns - 5_000, dropped)
    fill(state, 0, at_ns, run)
    state.apply(Clock(at_ns))
    plan = policies()["ats"](state, at_ns)
    assert plan is not None and plan.expired == (((0, dropped),) if dropped else ())
    state.apply(Dispatched(plan))
    if dropped:
        state.apply(Expired(0, dropped, 1))
    state.apply(Claimed(0, run, 1))
    state.apply(Finished(plan))
    state.apply(Clock(at_ns + 100))


def test_what_was_dropped_does_not_count_for_the_controller() -> None:
    state = queries("ats", BatchRule(k=8, overdue=True), 1_000)
    index = state.index
    assert isinstance(index, Batches)
    run_one(state, 90, 10, 5_000)
    assert index.share_missed == 0.0 and index.k == 8


def test_in_total_what_was_dropped_counts_and_is_remembered() -> None:
    """As P4 prints it: the change is that of one execution to the next, SDMR is that of the whole run."""
    state = queries("ats", BatchRule(k=8, overdue=True, total=True), 1_000)
    index = state.index
    assert isinstance(index, Batches)
    run_one(state, 0, 10, 5_000)
    assert index.k == 8
    run_one(state, 2, 8, 20_000)
    assert index.share_missed == pytest.approx(0.2) and index.k == 8 - 1  # floor(0.2 + 10 * 0.1)
    run_one(state, 0, 20, 40_000)
    assert index.share_missed == 0.0 and index.k == 8 - 1  # floor(-0.2 + 10 * 0.05)
