"""Self-tuning settles at the best value, stays there for most of the time, and follows when the best value moves."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from random import Random

import pytest

from catalog.qos import QoS, QoSGraph
from engine.simulate.sketch import NetworkSketch
from scheduler.batches import Batches
from scheduler.buckets import Buckets
from scheduler.events import Claimed, Clock, Dispatched, Enqueued, Finished, MissedShares
from scheduler.policies import make_index, policies
from scheduler.state import BatchRule, SchedulerSettings, SchedulerState
from scheduler.tuner import Climber, TakeTurns

GRAPH = QoSGraph(((0.0, 1.0), (1e6, 1.0), (1e9, 0.0)))


def drive(climber: Climber, cost: Callable[[float], float], readings: int, random: Random) -> Counter[float]:
    """How often each value was in force."""
    held: Counter[float] = Counter()
    for _ in range(readings):
        held[climber.value] += 1
        climber.observe(max(0.0, cost(climber.value) + random.gauss(0, 0.01)))
    return held


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("best", [0, 3, 6])
def test_a_climber_settles_at_the_best_value(seed: int, best: int) -> None:
    values = (1, 2, 5, 10, 20, 40, 80)
    climber = Climber(values, 20)

    def cost(value: float) -> float:
        return 0.1 + 0.05 * abs(values.index(int(value)) - best)

    drive(climber, cost, 2_000, Random(seed))
    held = drive(climber, cost, 10_000, Random(seed + 100))
    assert climber.best == values[best] and held[values[best]] > 0.8 * 10_000


def test_a_climber_follows_when_the_best_value_moves() -> None:
    climber = Climber((1, 2, 3, 4, 5), 1)
    for best in (5, 2):
        drive(climber, lambda value, best=best: abs(value - best) / 10, 6_000, Random(best))
        held = drive(climber, lambda value, best=best: abs(value - best) / 10, 6_000, Random(best))
        assert held.most_common(1)[0][0] == best


def test_a_climber_stays_where_nothing_differs() -> None:
    climber = Climber((1, 2, 3), 2)
    held = drive(climber, lambda value: 0.0, 10_000, Random(1))
    assert held[2] > 0.9 * 10_000


def test_settings_with_one_cost_are_tuned_one_after_the_other() -> None:
    """P4 section 4.2: first Kp, then Ki."""
    kp, ki = Climber((0.5, 1, 2.5, 10, 20), 20), Climber((1, 5, 10, 15, 20), 1)
    both = TakeTurns(kp, ki)
    random = Random(3)
    for _ in range(20_000):
        both.observe(0.1 + abs(kp.value - 1) / 100 + abs(ki.value - 10) / 100 + random.gauss(0, 0.005))
    assert (kp.best, ki.best) == (1, 10)


def tuned(policy: str, **settings: object) -> SchedulerState:
    sketch = NetworkSketch()
    for _ in range(3):
        sketch.output(sketch.chain(sketch.stream(), 3), QoS(GRAPH, deadline_ns=10**6))
    state = SchedulerState(sketch.network(), SchedulerSettings(**settings))  # type: ignore[arg-type]
    state.follow(make_index(policies()[policy]))
    return state


def test_the_grid_of_qos_buckets_settles_and_keeps_its_boxes() -> None:
    """The shares of missed deadlines are least at a grid of 5. (Every change sorts the boxes that wait anew.)"""
    state = tuned("qos_buckets", tune=frozenset({"grid"}))
    for arc in range(3):
        state.apply(Enqueued((state.network.boxes[3 * arc].in_arcs[0],), 4, 0, 0, 0))
    index = state.index
    assert isinstance(index, Buckets) and index.grid == 20
    held: Counter[int] = Counter()
    for tick in range(8_000):
        missed = 0.1 + 0.05 * abs((1, 2, 5, 10, 20, 40, 80).index(index.grid) - 2)
        state.apply(MissedShares((missed, missed, -1.0)))
        state.apply(Clock(tick * 10**8))
        assert index.best() is not None
        held[index.grid] += 1
    assert held.most_common(1)[0][0] == 5 and held[5] > 0.6 * 8_000
    assert index.grid in (2, 5, 10)


def test_the_spanner_settles() -> None:
    """The least misses with k = 4; 0 means all boxes, which comes behind the largest k."""
    state = tuned("qos", tune=frozenset({"spanner"}))
    assert state.spanner == 0
    ladder = [1, 2, 4, 8, 16, 32, 0]
    held: Counter[int] = Counter()
    for _ in range(8_000):
        missed = 0.1 + 0.05 * abs(ladder.index(state.spanner) - 2)
        state.apply(MissedShares((missed,) * 3))
        held[state.spanner] += 1
    assert held.most_common(1)[0][0] == 4


def test_the_controller_of_ats_is_tuned_by_its_own_readings() -> None:
    """A plan misses more of its deadlines the farther Kp is from 1 and Ki from 10."""
    rule = BatchRule(proportional=20.0, integral=1.0)
    state = tuned("ats", batch=rule, tune=frozenset({"controller"}))
    index = state.index
    assert isinstance(index, Batches)
    now_ns = 10**9
    for _ in range(3_000):
        now_ns += 10**9
        share = 0.1 + min(0.4, abs(index.proportional - 1) / 100 + abs(index.integral - 10) / 100)
        late = round(1_000 * share)
        for tuples, arrival_ns in ((late, now_ns - 10**8), (1_000 - late, now_ns)):
            state.apply(Enqueued((0,), tuples, arrival_ns, arrival_ns, 0))
        state.apply(Clock(now_ns))
        plan = policies()["ats"](state, now_ns)
        assert plan is not None
        state.apply(Dispatched(plan))
        state.apply(Claimed(0, late, 1))
        state.apply(Claimed(0, 1_000 - late, 1))
        state.apply(Finished(plan))
        state.apply(Clock(now_ns + 1))
    assert [climber.best for climber in index._tuned] == [1.0, 10.0]
