"""What P1 and P2 schedule: segments from an operator on, with a selectivity for each input of a join, and preemption
between operators."""

from __future__ import annotations

from threading import Event

import numpy as np
import pytest

from catalog.stats import Statistics
from engine.run.core import Engine
from engine.run.network_file import read_network
from engine.simulate.sketch import SCHEMA, NetworkSketch
from scheduler.events import Claimed, Clock, Dispatched, Enqueued, Finished, StatisticsMoved
from scheduler.plan import Plan
from scheduler.policies import make_index, policies
from scheduler.rates import join_selectivities
from scheduler.state import SchedulerSettings, SchedulerState
from storage.train import Train, constant_ns


def follow(sketch: NetworkSketch, name: str, unit: str = "superbox", rates: tuple[float, ...] = ()) -> SchedulerState:
    """A state whose calls cost nothing, with these arrival rates."""
    network = sketch.network()
    statistics = Statistics(network)
    statistics.cost_per_call_ns[:] = 0.0
    statistics.rate_per_s[: len(rates)] = rates
    state = SchedulerState(network, SchedulerSettings(unit=unit), statistics)
    state.follow(make_index(policies()[name]))
    return state


def decide(state: SchedulerState, name: str, now_ns: int = 10) -> Plan:
    state.apply(Clock(now_ns))
    plan = policies()[name](state, now_ns)
    assert plan is not None
    return plan


def fill(state: SchedulerState, box: int, port: int = 0, arrival_ns: int = 0) -> None:
    state.apply(Enqueued((state.network.boxes[box].in_arcs[port],), 1, arrival_ns, arrival_ns, 0))


# -- P1: the segment E_x ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["hr", "hnr", "lsf", "bsd"])
def test_a_plan_is_the_segment_from_the_box_to_the_output(name: str) -> None:
    """b0 and b1 feed b2, which feeds b3. Tuples wait for b0 and b1; b0 is cheaper and older. E_0 is b0, b2, b3."""
    sketch = NetworkSketch()
    sides = [sketch.box(sketch.stream(), cost_ns=cost) for cost in (100.0, 1_000.0)]
    sketch.output(sketch.box(sketch.box(*sides, cost_ns=100.0), cost_ns=100.0))
    state = follow(sketch, name)
    fill(state, 0)
    fill(state, 1, arrival_ns=5)
    plan = decide(state, name)
    assert plan.boxes == (0, 2, 3) and [c.box for c in plan.claims] == [0]


def test_a_rate_rises_along_its_segment() -> None:
    """V_x = S_y / (c_x / s_x + C_y) < V_y = S_y / C_y: no segment is interrupted by what it would have run before."""
    sketch = NetworkSketch()
    tap = sketch.stream()
    for cost, selectivity in ((3.0, 0.5), (2.0, 0.25), (4.0, 1.0)):
        tap = sketch.box(tap, cost_ns=cost, selectivity=selectivity)
    sketch.output(tap)
    rates = follow(sketch, "hr").facts.rate
    assert rates == pytest.approx([0.125 / (3 + 0.5 * 2 + 0.125 * 4), 0.25 / (2 + 0.25 * 4), 1 / 4])
    assert rates == sorted(rates)


def slow_and_quick() -> NetworkSketch:
    """b0, b1: a query of 1 ms a box. b2: one of 1 us."""
    sketch = NetworkSketch()
    sketch.output(sketch.chain(sketch.stream(), 2, 1e6))
    sketch.output(sketch.box(sketch.stream(), cost_ns=1e3))
    return sketch


@pytest.mark.parametrize("name", ["hr", "hnr"])
def test_a_running_plan_hears_of_the_best_box_that_waits(name: str) -> None:
    """Rates of HR: b0 1/2000 us, b1 1/1000 us, b2 1/1 us. Once b2 is dispatched, nothing better waits."""
    state = follow(slow_and_quick(), name)
    fill(state, 0)
    slow = decide(state, name)
    state.apply(Dispatched(slow))
    state.apply(Claimed(state.network.boxes[0].in_arcs[0], 1, 1))
    facts = state.facts
    rates = facts.rate if name == "hr" else facts.normalized_rate
    assert slow.priorities == {0: rates[0], 1: rates[1]}
    slow.is_begun = True  # by a worker
    assert state.index is not None and state.index.may_interrupt, "its work is 2 ms"
    fill(state, 2)
    assert slow.rival == rates[2] > rates[1]
    quick = decide(state, name)
    state.apply(Dispatched(quick))
    assert quick.boxes == (2,) and slow.rival == rates[2], "it waits on the execution queue"
    quick.is_begun = True
    state.apply(Clock(20))
    assert slow.rival == 0.0
    state.apply(Finished(slow))
    assert not state.index.may_interrupt


@pytest.mark.parametrize("rival", [True, False])
def test_a_plan_ends_between_two_operators_when_it_is_outranked(rival: bool) -> None:
    """On the engine: while b0 delivers, a box of higher rate gets a tuple. The tuples of b0 wait for b1, in order, and
    run when the other has run."""
    sketch = NetworkSketch()
    first = sketch.box(sketch.stream(), cost_ns=1e6)
    sketch.output(first)  # so that the test can hold the plan between b0 and b1
    sketch.output(sketch.box(first, cost_ns=1e6))
    sketch.output(sketch.box(sketch.stream(), cost_ns=0))
    network = sketch.network()
    entered, leave = Event(), Event()
    order: list[str] = []

    def hold(train: Train) -> None:
        entered.set()
        assert leave.wait(60)

    outlets = [hold, lambda train: order.append("slow"), lambda train: order.append("quick")]
    settings = SchedulerSettings(unit="vpipe", idle_fast_path=False)  # b0 is shared: only a line runs it with b1
    engine = Engine(network, outlets, workers=1, policy="hr", settings=settings)
    engine.start()
    try:
        columns = (np.arange(1), np.zeros(1))
        assert engine.ingress.admit(0, Train(SCHEMA, columns, constant_ns(0, 1)))
        assert entered.wait(60)
        if rival:
            assert engine.ingress.admit(1, Train(SCHEMA, columns, constant_ns(0, 1)))
            engine.loop.drain_mailbox()
        leave.set()
        assert engine.drain(60)
    finally:
        leave.set()
        engine.stop()
    assert order == (["quick", "slow"] if rival else ["slow"])
    assert [engine.runtimes[b].calls for b in (0, 1)] == [1, 1]
    assert engine.storage.queues[network.boxes[1].in_arcs[0]].enqueued == (1 if rival else 0)
    assert all(q.residual == 0 and q.tuples == 0 for q in engine.storage.queues) and engine.storage.used_bytes == 0


# -- joins -----------------------------------------------------------------------------------------------------------


def test_the_selectivity_of_a_side_is_by_the_occupancy_of_the_other_window() -> None:
    """10 left and 90 right tuples a second, windows of 2 s: a left tuple finds 180, a right one 20. The mean of 0.5 is
    50 results a second over 10 * 180 + 90 * 20 pairs: s_J = 1/72. So S_L = 180/72 and S_R = 20/72."""
    assert join_selectivities(0.5, (10.0, 90.0), (2e9, 2e9)) == pytest.approx((2.5, 20 / 72))
    assert join_selectivities(0.5, (10.0, 90.0), (1, 0)) == pytest.approx((5.0, 0.0)), "only left tuples give results"
    assert join_selectivities(0.5, (0.0, 90.0), (1, 1)) is None


def joined() -> NetworkSketch:
    """b0 (left) and b1 (right), of 1 us, feed the join b2 of 1 us and selectivity 0.5; b3, of 1 us, follows."""
    sketch = NetworkSketch()
    sides = [sketch.box(sketch.stream(), cost_ns=1e3) for _ in range(2)]
    sketch.output(sketch.box(sketch.box(*sides, cost_ns=1e3, selectivity=0.5, kind="join"), cost_ns=1e3))
    return sketch


def test_rates_go_by_the_side_of_the_join() -> None:
    """S = 2.5 and 20/72 as above. From the left: S/C = 2.5 / (1 + 1 + 2.5) a us; from the right 20/72 / (2 + 20/72)."""
    state = follow(joined(), "hr", rates=(10.0, 90.0))
    assert state.facts.rate[:2] == pytest.approx([2.5 / 4_500, 20 / 72 / (2_000 + 20_000 / 72)])
    fill(state, 1)
    fill(state, 0, arrival_ns=5)
    assert decide(state, "hr").boxes[0] == 0
    left, right = state.network.boxes[2].in_arcs
    assert [state.facts.arc_rate[a] for a in (left, right)] == pytest.approx(
        [2.5 / 3_500, 20 / 72 / (1_000 + 20_000 / 72)]
    )


def test_chain_has_a_chart_for_each_input_of_a_join() -> None:
    """Tuples of one size, all boxes 1 us. From the left the chart is 1, 1, 2.5, 0 at 0, 1, 2, 4.5 us: one segment, of
    slope 1/4.5. From the right it is 1, 1, 20/72, 0: the first segment ends at the join, (1 - 20/72) / 2 = 0.361 a
    us, and the last box follows with its own slope."""
    state = follow(joined(), "chain", rates=(10.0, 90.0))
    left, right = (state.network.boxes[b].in_arcs[0] for b in (0, 1))
    on = state.facts.arc_segment
    assert on[left] is not None and on[left].boxes == (0, 2, 3)
    assert on[left].slope == pytest.approx(1 / 4_500)
    assert on[right] is not None
    whole = 1 / (2_000 + 20_000 / 72)
    assert on[right].slope == pytest.approx(max((1 - 20 / 72) / 2_000, whole))
    fill(state, 0)
    fill(state, 1, arrival_ns=5)
    assert decide(state, "chain").boxes[0] == 1, "the right one, although it is younger"


def test_measured_selectivities_of_inputs_replace_the_estimate() -> None:
    sketch = joined()
    state = follow(sketch, "chain", rates=(10.0, 90.0))
    statistics = state._statistics
    arcs = state.network.boxes[2].in_arcs
    statistics.observe_inputs(arcs, np.array([100, 900]), np.array([300, 90]), 10**8)
    assert [statistics.input_selectivity[a] for a in arcs] == pytest.approx([3.0, 0.1])
    state.apply(StatisticsMoved())
    assert [state.facts.input_factor[a] for a in arcs] == pytest.approx([6.0, 0.2])


NETWORK = """
http: {listen: "off"}
streams: {l: {schema: {n: int}}, r: {schema: {n: int}}}
boxes: {paired: {join: [l, r], on: "l.n = r.n", within: 1h}}
outputs: {o: {from: paired}}
"""


def test_a_join_counts_by_input_and_its_results_have_the_later_arrival() -> None:
    """P1: the slowdown of a joined tuple counts from the later of its two arrivals."""
    network = read_network(NETWORK)
    arrivals: list[int] = []
    engine = Engine(network, [lambda train: arrivals.extend(train.arrival_ns.tolist())], workers=1)
    engine.start()
    try:
        for stream, numbers, at in (("r", [1, 2, 2], 1_000), ("l", [2, 3], 5_000), ("r", [3], 3_000)):
            given = network.stream(stream)
            engine.ingress.admit(given.number, Train.from_pylists(given.schema, {"n": numbers}, at))
            assert engine.drain(60)
    finally:
        engine.stop()
    assert arrivals == [5_000, 5_000, 5_000]
    assert engine.runtimes[0].by_input == [(2, 2), (4, 1)], "two pairs by a left tuple, one by a right one"


# -- P2: Chain on the line -------------------------------------------------------------------------------------------


def test_a_segment_of_the_line_runs_whole_whichever_box_has_the_oldest_tuple() -> None:
    """Two inputs of a join. All of the line is one segment, so tuples for b0 and b1 are taken together, in the order of
    time, and the join gets both."""
    state = follow(joined(), "vpipe", unit="vpipe", rates=(10.0, 10.0))
    assert {s.boxes for s in state.facts.line_segment} == {(0, 1, 2, 3)}
    fill(state, 0, arrival_ns=7)
    fill(state, 1, arrival_ns=5)
    assert decide(state, "vpipe").boxes == (0, 1, 2, 3)


def test_the_chart_of_a_line_ends_at_nothing() -> None:
    """Chain lets the last operator leave nothing. On the line 0.9 -> 1: segments of the chart (0, 1), (1, 0.9), (1.9,
    0): one segment of slope 1/1.9."""
    sketch = NetworkSketch()
    sketch.output(sketch.box(sketch.box(sketch.stream(), cost_ns=1e3, selectivity=0.9), cost_ns=1e3))
    state = follow(sketch, "vpipe", rates=(10.0,))
    assert [s.slope for s in state.facts.line_segment] == pytest.approx([1 / 1_900] * 2)
