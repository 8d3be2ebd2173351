"""Batches as P4 runs them: whole, without what is overdue, and what the controller of ATS counts."""

from __future__ import annotations

import pytest

from catalog.qos import QoS
from catalog.stats import Statistics
from engine.run.core import Engine
from engine.run.network_file import read_network
from engine.run.settings import scheduler_settings
from engine.simulate.sketch import NetworkSketch
from scheduler.batches import Batches, basic_ns, late_tasks
from scheduler.events import Claimed, Clock, Dispatched, Enqueued, Expired, Finished
from scheduler.policies import make_index, policies
from scheduler.state import BatchRule, SchedulerSettings, SchedulerState
from storage.train import Train


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


WINDOWED = """
http: {listen: "off"}
scheduler: {policy: bts, batch: {basic: 100ms, window: 25%, whole: true, overdue: true, total: true}}
streams: {s: {schema: {n: int}}}
boxes:
  big: {filter: s, where: "n > 0"}
  short: {aggregate: big, window: {tumbling: 200ms}, select: {c: "count(*)"}}
  long: {aggregate: big, window: {sliding: 4s, advance: 2s}, select: {c: "count(*)"}}
  none: {filter: s, where: "n > 1"}
  rare: {aggregate: none, window: {tumbling: 2s}, select: {c: "count(*)"}}
outputs:
  a: {from: short, qos: {deadline: 1h}}
  b: {from: long, qos: {deadline: 1h}}
  c: {from: rare, qos: {deadline: 1h}}
  d: {from: none, qos: {deadline: 1h}}
"""


def test_phi_of_a_query_with_windows() -> None:
    """P4 section 1.3: phi = phi_Q if phi_w < phi_Q, else phi_w; phi_Q is 100 ms, phi_w a quarter of the hop."""
    network = read_network(WINDOWED)
    state = SchedulerState(network, scheduler_settings(network.config.scheduler))
    phi_ms = {node.name: basic_ns(state, node.number) // 10**6 for node in network.boxes}
    assert phi_ms == {"big": 100, "short": 100, "long": 500, "none": 500, "rare": 500}


def test_the_settings_of_the_experiments_run_in_an_engine() -> None:
    """Whole batches leave after their interval, also when nothing else happens."""
    network = read_network(WINDOWED)
    got: list[int] = []
    outlets = [lambda train: None] * 3 + [lambda train: got.extend(train.columns[0].tolist())]
    settings = scheduler_settings(network.config.scheduler)
    engine = Engine(network, outlets, workers=1, policy="bts", settings=settings)
    engine.start()
    try:
        schema = network.stream("s").schema
        engine.ingress.admit(0, Train.from_pylists(schema, {"n": [0, 1, 2, 3]}, engine.now_ns()))
        assert engine.drain(60)
    finally:
        engine.stop()
    assert got == [2, 3]


def test_muf_runs_the_critical_set_by_laxity() -> None:
    """Loads of 0.4, 0.5 and 0.3 processors, deadlines of 10, 20 and 30 ms: the first two are critical (0.9), the third
    would make it 1.2. At 100 ms the third query is due in 5 ms, the first in 9 ms with one task of 0.4 ms, the second
    in 19 ms with 25 tasks of 0.5 ms. The laxities are 9 - 0.4 and 19 - 12.5: EDF takes the third query, MUF the
    second, then the first, then the third."""
    sketch = NetworkSketch()
    for cost_ns, deadline_ns in ((400_000.0, 10**7), (500_000.0, 2 * 10**7), (300_000.0, 3 * 10**7)):
        sketch.output(sketch.box(sketch.stream(), cost_ns=cost_ns), QoS(deadline_ns=deadline_ns))
    network = sketch.network()
    statistics = Statistics(network)
    statistics.cost_per_call_ns[:] = 0.0
    statistics.rate_per_s[:] = 1_000.0
    chosen = {}
    for policy in ("bts", "muf"):
        state = SchedulerState(network, SchedulerSettings(unit="box", batch=BatchRule(step_ns=0)), statistics)
        state.follow(make_index(policies()[policy]))
        for arc, arrival_ns, tuples in ((0, 99_000_000, 1), (1, 99_000_000, 25), (2, 75_000_000, 1)):
            fill(state, arc, arrival_ns, tuples)
        chosen[policy] = []
        for _ in range(3):
            state.apply(Clock(100_000_000))
            plan = policies()[policy](state, 100_000_000)
            assert plan is not None
            state.apply(Dispatched(plan))
            chosen[policy].append(plan.boxes[0])
    assert state.facts.critical == [True, True, False]
    assert chosen == {"bts": [2, 0, 1], "muf": [1, 0, 2]}
