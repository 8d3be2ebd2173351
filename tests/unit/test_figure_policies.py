"""The baselines of the papers that only figures run: they decide as their paper says."""

from __future__ import annotations

import pytest

from catalog.qos import QoS, QoSGraph
from engine.lab.figures.lab import Lab
from engine.lab.figures.p0_13 import SlopeSlack
from engine.lab.figures.p2_server import LINE, arriving, serve
from engine.lab.figures.p2_systems import ChainInOrder, ordered_join
from engine.simulate.sketch import NetworkSketch
from scheduler.events import Enqueued
from scheduler.policies.qos import key
from scheduler.state import SchedulerSettings, SchedulerState

LAB = Lab("simulated", seed=3)


def test_slope_slack_sorts_at_scheduling_points_and_places_the_best() -> None:
    sketch = NetworkSketch()
    for fall_ns in (4e6, 1e6, 2e6):
        sketch.output(sketch.box(sketch.stream(), cost_ns=10.0), QoS(QoSGraph(((0.0, 1.0), (fall_ns, 0.0)))))
    network = sketch.network()
    state = SchedulerState(network, SchedulerSettings(unit="box"))
    for arc in range(3):
        state.apply(Enqueued((arc,), 1, 0, 0, 8))
    policy = SlopeSlack(placed=2)
    now_ns = 1_000
    by_priority = sorted(range(3), key=lambda box: key(state, box, now_ns)[0])
    first, second, third = (policy(state, now_ns) for _ in range(3))
    assert [p.boxes[0] for p in (first, second) if p is not None] == by_priority[:2] == [1, 2]
    assert third is not None and third.boxes[0] == 1 and policy.computed == 3, "a new scheduling point"


@pytest.mark.parametrize("at_once", [False, True])
@pytest.mark.parametrize("fan_in", [2, 5])
def test_chain_at_an_ordered_join_keeps_the_order_of_time(fan_in: int, at_once: bool) -> None:
    network = ordered_join(fan_in, 5.0)
    trains = {s: arriving(LAB, 0.8 / 6 / fan_in, 60, s) for s in range(fan_in)}
    rule = ChainInOrder(network, at_once)
    run = serve(LAB, network, rule, trains, (*[1.0] * fan_in, 5.0), 1.0)
    came = [came for came, _ in sorted(run.times[0], key=lambda times: times[1])]
    if at_once:
        assert came == sorted(came)
    # Under the paper's rule the last tuples wait for ever for an arrival on the slowest stream.
    assert len(came) > 0.8 * sum(len(times) for times, _ in trains.values())
    assert 0 < rule.broken < rule.fetched


def test_vpipe_takes_one_tuple_at_a_time_in_the_order_of_time() -> None:
    network = ordered_join(4, 5.0)
    trains = {s: arriving(LAB, 0.8 / 6 / 4, 60, s) for s in range(4)}
    run = serve(LAB, network, "vpipe", trains, (1.0, 1.0, 1.0, 1.0, 5.0), 1.0, LINE)
    came = [came for came, _ in sorted(run.times[0], key=lambda times: times[1])]
    assert came == sorted(came) and len(came) == sum(len(times) for times, _ in trains.values())
    ends = [done for _, done in run.times[0]]
    assert len(set(ends)) == len(ends), "no two tuples leave together"
