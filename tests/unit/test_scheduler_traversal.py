"""Traversals and their costs on the paper's own examples: P0 figure 4, to the digit."""

from __future__ import annotations

from fractions import Fraction

import pytest

from catalog.network import Network
from catalog.qos import QoS
from catalog.stats import Statistics
from engine.simulate.sketch import NetworkSketch
from scheduler.costs import Prediction, predict
from scheduler.events import Claimed, Dispatched, Enqueued, MemoryShort, MissedShares, StatisticsMoved
from scheduler.plan import Plan
from scheduler.policies import policies
from scheduler.state import SchedulerSettings, SchedulerState
from scheduler.trains import AUTO_TUPLES, HOLD_TICKS, TrainRule
from scheduler.traversal import expand, spanned
from storage.queue import ALL

NAMES = ("b4", "b5", "b3", "b2", "b6", "b1")  # in the order of their numbers


def figure_4(costs: dict[str, float] | None = None, selectivities: dict[str, float] | None = None) -> Network:
    """b1 root; b2, b6 feed b1; b4, b3 feed b2; b5 feeds b3; each has a queue of its own from a stream."""
    sketch = NetworkSketch()

    def box(name: str, *inputs: object) -> object:
        cost, selectivity = (costs or {}).get(name, 1.0), (selectivities or {}).get(name, 1.0)
        return sketch.box(*inputs, sketch.stream(), name=name, cost_ns=cost, selectivity=selectivity, kind="union")

    b4, b5 = box("b4"), box("b5")
    b2 = box("b2", b4, box("b3", b5))
    sketch.output(box("b1", b2, box("b6")))
    return sketch.network()


def state_of(network: Network, traversal: str, call_ns: float, tuple_ns: float | None = None) -> SchedulerState:
    """One tuple on the stream's queue of each box."""
    statistics = Statistics(network)
    statistics.cost_per_call_ns[:] = call_ns
    if tuple_ns is not None:
        statistics.cost_per_tuple_ns[:] = tuple_ns
    state = SchedulerState(network, SchedulerSettings(traversal=traversal, train=TrainRule("all")), statistics)
    for node in network.boxes:
        state.apply(Enqueued((node.in_arcs[-1],), 1, 0, 0, 0))
    return state


def names(network: Network, plan: Plan) -> str:
    return " ".join(network.boxes[b].name for b in plan.boxes)


def outcome(state: SchedulerState, plan: Plan) -> Prediction:
    return predict(state.facts, plan.boxes, dict.fromkeys(range(6), 1.0))


def test_numbers_follow_the_post_order() -> None:
    assert tuple(b.name for b in figure_4().boxes) == NAMES


def test_min_cost_order_calls_and_costs() -> None:
    network = figure_4()
    plan = expand(state_of(network, "min_cost", 1.0), 0)
    assert names(network, plan) == "b4 b5 b3 b2 b6 b1"
    for p, o in ((1.0, 0.0), (0.0, 1.0), (3.0, 7.0)):
        got = outcome(state_of(network, "min_cost", o, p), plan)
        assert got.calls == 6
        assert got.total_ns == pytest.approx(15 * p + 6 * o)
        assert got.latency_ns == pytest.approx(12.5 * p + 6 * o)


def test_min_latency_order_calls_and_costs() -> None:
    network = figure_4()
    plan = expand(state_of(network, "min_latency", 1.0), 0)
    assert names(network, plan) == "b1 b2 b1 b6 b1 b4 b2 b1 b3 b2 b1 b5 b3 b2 b1"
    for p, o in ((1.0, 0.0), (0.0, 1.0), (3.0, 7.0)):
        got = outcome(state_of(network, "min_latency", o, p), plan)
        assert got.calls == 15
        assert got.total_ns == pytest.approx(15 * p + 15 * o)
        assert got.latency_ns == pytest.approx(float(Fraction(43, 6)) * (p + o))


@pytest.mark.parametrize(("ratio", "best"), [(0.21, "min_cost"), (0.22, "min_latency"), (5.0, "min_latency")])
def test_auto_crosses_over_at_p_over_o_of_022(ratio: float, best: str) -> None:
    """12.5p + 6o < 43/6 (p + o) iff p/o < 7/32 = 0.21875."""
    network = figure_4()
    auto = expand(state_of(network, "auto", 1_000.0, ratio * 1_000.0), 0)
    assert auto.boxes == expand(state_of(network, best, 1_000.0, ratio * 1_000.0), 0).boxes


def test_auto_counts_what_its_extra_calls_cost_others() -> None:
    sketch = NetworkSketch()
    tree = sketch.box(sketch.box(sketch.stream()), sketch.stream())
    sketch.output(tree)
    sketch.output(sketch.box(sketch.stream()))
    network = sketch.network()
    statistics = Statistics(network)
    statistics.cost_per_call_ns[:] = 100.0
    statistics.cost_per_tuple_ns[:] = 1_000.0
    state = SchedulerState(network, SchedulerSettings(traversal="auto"), statistics)
    for a in (0, 2):
        state.apply(Enqueued((a,), 1, 0, 0, 0))
    assert expand(state, 0).boxes == (1, 0, 1)  # alone: the near tuple first
    state.apply(Enqueued((3,), 1_000, 0, 0, 0))
    assert expand(state, 0).boxes == (0, 1)  # a thousand wait elsewhere: no call more than needed


def test_auto_saves_memory_when_memory_is_short() -> None:
    network = figure_4()
    state = state_of(network, "auto", 1.0)
    state.apply(MemoryShort(True))
    assert expand(state, 0).boxes == expand(state_of(network, "min_memory", 1.0), 0).boxes


def test_min_memory_rates_and_order() -> None:
    costs = {"b1": 2.0, "b2": 2.0, "b3": 1.0, "b4": 2.0, "b5": 3.0, "b6": 1.0}
    selectivities = {"b1": 0.9, "b2": 0.4, "b3": 0.5, "b4": 1.0, "b5": 0.4, "b6": 0.6}
    network = figure_4(costs, selectivities)
    state = state_of(network, "min_memory", 0.0)
    size = state.facts.tuple_bytes[0]
    rates = {network.boxes[b].name: rate / size for b, rate in enumerate(state.facts.memory_rate)}
    assert [rates[f"b{i}"] for i in range(1, 7)] == pytest.approx([0.05, 0.3, 0.5, 0.0, 0.2, 0.4])
    assert names(network, expand(state, 0)) == "b3 b6 b2 b5 b3 b2 b1 b4 b2 b1"


def test_output_cost_of_a_path_with_selectivities() -> None:
    """output_cost(b) = sum of cost(k)/o_sel(k) over D(b), by hand: 4/(.5*.25) + 2/.25."""
    sketch = NetworkSketch()
    upper = sketch.box(sketch.stream(), cost_ns=4.0, selectivity=0.5)
    sketch.output(sketch.box(upper, cost_ns=2.0, selectivity=0.25))
    network = sketch.network()
    statistics = Statistics(network)
    statistics.cost_per_call_ns[:] = 0.0
    assert SchedulerState(network, None, statistics).facts.output_cost_ns == pytest.approx([32.0 + 8.0, 8.0])


def test_boxes_that_nothing_can_reach_are_left_out() -> None:
    network = figure_4()
    state = SchedulerState(network)
    state.apply(Enqueued((network.boxes[2].in_arcs[-1],), 5, 0, 0, 0))  # b3
    plan = expand(state, 0)
    assert names(network, plan) == "b3 b2 b1"
    assert [s.tuples for s in plan.steps][1:] == [ALL, ALL]


def test_top_k_spans_the_most_urgent_boxes_and_their_way_to_the_root() -> None:
    network = figure_4()
    settings = SchedulerSettings(spanner=2, train=TrainRule("all"))
    state = SchedulerState(network, settings)
    arrivals = {"b1": 50, "b2": 40, "b3": 30, "b4": 20, "b5": 60, "b6": 10}
    for node in network.boxes:
        state.apply(Enqueued((node.in_arcs[-1],), 1, arrivals[node.name], arrivals[node.name], 0))
    assert [network.boxes[b].name for b in spanned(state, 0, 2)] == ["b4", "b2", "b6", "b1"]
    plan = policies()["round_robin"](state, 100)
    assert plan is not None and names(network, plan) == "b4 b2 b6 b1"


def test_a_tuple_at_a_time_takes_the_oldest_of_several_inputs() -> None:
    sketch = NetworkSketch()
    sketch.output(sketch.box(sketch.stream(), sketch.stream()))
    state = SchedulerState(sketch.network(), SchedulerSettings(unit="tuple"))
    state.apply(Enqueued((0,), 3, 70, 70, 0))
    state.apply(Enqueued((1,), 3, 60, 60, 0))
    assert expand(state, 0).takes == {1: 1}


# -- trains -------------------------------------------------------------------------------------------------------


def waiting_state(rule: TrainRule, *, qos: QoS | None = None) -> SchedulerState:
    """100 tuples wait in two trains: 60 that came between 0 and 590, 40 between 1,000 and 1,390."""
    sketch = NetworkSketch()
    sketch.output(sketch.box(sketch.stream(), cost_ns=10.0), qos)
    network = sketch.network()
    statistics = Statistics(network)
    statistics.cost_per_call_ns[:] = 0.0
    state = SchedulerState(network, SchedulerSettings(train=rule), statistics)
    state.apply(Enqueued((0,), 60, 0, 295, 60 * 16))
    state.apply(Enqueued((0,), 40, 1_000, 1_195, 40 * 16))
    return state


@pytest.mark.parametrize(
    ("rule", "tuples"),
    [
        (TrainRule("all"), 100),
        (TrainRule("tuples", 7), 7),
        (TrainRule("tuples", 1_000), 100),
        (TrainRule("fraction", 0.2), 20),
        (TrainRule("fraction", 0.001), 1),
        (TrainRule("cost", 250.0), 25),
        (TrainRule("cost", 1.0), 1),
        (TrainRule("memory", 160.0), 10),
        (TrainRule("spread", 590.0), 60),
        (TrainRule("spread", 295.0), 30),
        (TrainRule("spread", 1_195.0), 80),
        (TrainRule("spread", 10_000.0), 100),
        (TrainRule("auto"), AUTO_TUPLES),
    ],
    ids=str,
)
def test_train_rules(rule: TrainRule, tuples: int) -> None:
    assert rule.tuples(waiting_state(rule), 0) == tuples


def test_a_train_by_spread_goes_on_where_the_last_one_ended() -> None:
    rule = TrainRule("spread", 295.0)
    state = waiting_state(rule)
    state.apply(Claimed(0, 30, 0))
    assert rule.tuples(state, 0) == 30
    state.apply(Claimed(0, 30, 1))
    assert rule.tuples(state, 0) == 30  # 1,000 to 1,295


def test_auto_takes_a_quarter_of_the_tightest_deadline_and_learns() -> None:
    state = waiting_state(TrainRule("auto"), qos=QoS(deadline_ns=40_000))
    assert state.auto_tuples == [1_000]  # 10,000 ns at 10 ns a tuple
    state.apply(MissedShares((0.5,)))
    assert state.auto_tuples == [500]
    for _ in range(HOLD_TICKS):
        state.apply(MissedShares((0.0,)))
    assert state.auto_tuples == [1_000]


def test_auto_does_not_shorten_trains_while_there_is_a_backlog() -> None:
    """Short trains cost more a tuple: with more waiting than can be taken, they would make it worse."""
    state = waiting_state(TrainRule("auto"), qos=QoS(deadline_ns=40_000))
    state.apply(Enqueued((0,), 10_000, 2_000, 2_000, 0))
    state.apply(MissedShares((0.9,)))
    assert state.auto_tuples == [1_000]


def test_auto_does_not_shorten_trains_while_the_unit_with_the_backlog_runs() -> None:
    """Under overload every unit with tuples runs or is queued, and none is ready: that is a backlog all the same."""
    state = waiting_state(TrainRule("auto"), qos=QoS(deadline_ns=40_000))
    state.apply(Enqueued((0,), 10_000, 2_000, 2_000, 0))
    plan = policies()["round_robin"](state, 3_000)
    assert plan is not None
    state.apply(Dispatched(plan))
    assert not state.ready
    state.apply(MissedShares((0.9,)))
    assert state.auto_tuples == [1_000]


def test_auto_does_not_shorten_trains_below_what_calls_cost() -> None:
    sketch = NetworkSketch()
    sketch.output(sketch.chain(sketch.stream(), 2, cost_ns=10.0), QoS(deadline_ns=50_000))
    network = sketch.network()
    statistics = Statistics(network)
    statistics.cost_per_call_ns[:] = 5_000.0
    state = SchedulerState(network, None, statistics)
    assert state.auto_tuples == [500, 750]  # two calls of 5,000 ns for 20 ns a tuple; a quarter less one call for 10
    for _ in range(10):
        state.apply(MissedShares((1.0,)))
    assert state.auto_tuples == [500, 500]


def test_auto_does_not_shorten_trains_for_a_deadline_that_cannot_be_held() -> None:
    state = waiting_state(TrainRule("auto"), qos=QoS(deadline_ns=5))
    state.apply(MissedShares((1.0,)))
    assert state.auto_tuples == [AUTO_TUPLES]


def test_auto_makes_no_plan_of_seconds_of_a_backlog_that_no_deadline_bounds() -> None:
    sketch = NetworkSketch()
    sketch.output(sketch.box(sketch.stream(), cost_ns=200_000.0))
    network = sketch.network()
    statistics = Statistics(network)
    statistics.cost_per_call_ns[:] = 0.0
    assert SchedulerState(network, None, statistics).auto_tuples == [500]  # 100 ms


def test_auto_makes_no_long_plan_where_the_cost_of_tuples_is_taken_for_that_of_calls() -> None:
    """Trains of 40 at 200 us a tuple say as little about a call as about a tuple."""
    sketch = NetworkSketch()
    sketch.output(sketch.box(sketch.stream(), cost_ns=8_300.0), QoS(deadline_ns=50_000_000))
    network = sketch.network()
    statistics = Statistics(network)
    statistics.cost_per_call_ns[:], statistics.train_tuples[:], statistics.observed_calls[:] = 7_700_000.0, 40.0, 9
    [tuples] = SchedulerState(network, None, statistics).auto_tuples
    assert 40 <= tuples <= 130  # 26 ms if the tuples cost it all; 186 ms before


def test_measured_draws_costs_anew() -> None:
    sketch = NetworkSketch()
    sketch.output(sketch.box(sketch.stream(), cost_ns=10.0))
    network = sketch.network()
    statistics = Statistics(network)
    statistics.cost_per_call_ns[:] = 0.0
    state = SchedulerState(network, None, statistics)
    statistics.cost_per_tuple_ns[0] = 20.0
    assert state.facts.downstream_ns == [10.0]
    state.apply(StatisticsMoved())
    assert state.facts.downstream_ns == [20.0]
