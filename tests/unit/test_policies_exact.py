"""Each policy against its paper: by hand, by brute force over all boxes, or by an inequality that the paper proves."""

from __future__ import annotations

from itertools import combinations, pairwise
from random import Random

import numpy as np
import pytest

from catalog.network import Network
from catalog.qos import QoS, QoSGraph
from catalog.stats import Statistics
from engine.simulate.sketch import NetworkSketch, SketchInput
from scheduler.batches import Batches, next_k, tasks_in_time
from scheduler.buckets import Buckets, make_table
from scheduler.calendar_queue import CalendarQueue
from scheduler.charts import envelope_slopes, line_statistics, lower_envelope, progress_chart
from scheduler.events import Claimed, Clock, Dispatched, Enqueued, Finished, StatisticsMoved
from scheduler.facts import add_graphs
from scheduler.plan import Plan
from scheduler.policies import make_index, nearest, policies, policy_infos, requirements
from scheduler.policies.random import mix
from scheduler.rates import best_branches
from scheduler.state import BatchRule, SchedulerSettings, SchedulerState

TIGHT = QoSGraph(((0.0, 1.0), (1e6, 1.0), (1e9, 0.0)))
LOOSE = QoSGraph(((0.0, 1.0), (4e9, 1.0), (5e9, 0.0)))


def follow(network: Network, name: str, settings: SchedulerSettings | None = None) -> SchedulerState:
    """A state that follows this policy, with costs a tuple only: a call costs nothing."""
    statistics = Statistics(network)
    statistics.cost_per_call_ns[:] = 0.0
    state = SchedulerState(network, settings or SchedulerSettings(unit="box"), statistics)
    state.follow(make_index(policies()[name]))
    return state


def choose(state: SchedulerState, name: str, now_ns: int) -> int | None:
    """The first box of what the policy decides."""
    state.apply(Clock(now_ns))
    plan = policies()[name](state, now_ns)
    return None if plan is None else plan.boxes[0]


def fill(state: SchedulerState, arc: int, first_ns: int, tuples: int = 1, last_ns: int | None = None) -> None:
    last_ns = first_ns if last_ns is None else last_ns
    state.apply(Enqueued((arc,), tuples, first_ns, (first_ns + last_ns) // 2, 0))


def run_alone(state: SchedulerState, plan: Plan) -> None:
    """Dispatch, take everything that the plan's boxes have, finish."""
    state.apply(Dispatched(plan))
    for box, _ in plan.claims:
        for a in state.network.boxes[box].in_arcs:
            arc = state.arcs[a]
            if arc.entries:
                state.apply(Claimed(a, arc.tuples, len(arc.entries)))
    state.apply(Finished(plan))


# -- P1: rates ------------------------------------------------------------------------------------------------------


def two_chains(random: Random) -> tuple[Network, list[tuple[float, float, float]]]:
    """Two chains of random costs and selectivities, and (S, C, T) of each by the paper's definitions."""
    sketch = NetworkSketch()
    facts = []
    for _ in range(2):
        tap = sketch.stream()
        s, c, t = 1.0, 0.0, 0.0
        for _ in range(random.randint(1, 4)):
            cost, selectivity = random.uniform(1e3, 1e6), random.uniform(0.05, 1.0)
            tap = sketch.box(tap, cost_ns=cost, selectivity=selectivity)
            c += s * cost
            t += cost
            s *= selectivity
        sketch.output(tap)
        facts.append((s, c, t))
    return sketch.network(), facts


@pytest.mark.parametrize("seed", range(30))
def test_hnr_is_equation_3_and_wins_the_exchange(seed: int) -> None:
    """Inequality 2: of two segments, the one that HNR runs first gives the smaller total slowdown."""
    network, facts = two_chains(Random(seed))
    state = follow(network, "hnr")
    heads = [b for b in range(len(network.boxes)) if not network.feeders[b]]
    for box, (s, c, t) in zip(heads, facts, strict=True):
        assert state.facts.normalized_rate[box] == pytest.approx(s / (c * t))
        assert state.facts.rate[box] == pytest.approx(s / c)
        assert state.facts.balanced_rate[box] == pytest.approx(s / (c * t**2))
        fill(state, network.boxes[box].in_arcs[0], 0)

    def total_slowdown(first: int) -> float:
        (s1, c1, t1), (s2, _, t2) = facts[first], facts[1 - first]
        return s1 * t1 / t1 + s2 * (c1 + t2) / t2

    chosen = choose(state, "hnr", 10)
    assert chosen is not None
    first = heads.index(chosen)
    assert total_slowdown(first) <= total_slowdown(1 - first) * (1 + 1e-12)


@pytest.mark.parametrize("seed", range(30))
def test_shared_boxes_add_the_branches_that_raise_the_rate(seed: int) -> None:
    """Greedy by rate equals the best of all subsets."""
    random = Random(seed)
    shared = random.uniform(0.1, 10)
    branches = [(random.uniform(0, 5), random.uniform(0.1, 10)) for _ in range(random.randint(1, 7))]
    gain, work = best_branches(shared, branches)
    subsets = [c for n in range(len(branches) + 1) for c in combinations(branches, n)]
    best = max(sum(g for g, _ in c) / (shared + sum(w for _, w in c)) for c in subsets)
    assert gain / work == pytest.approx(best)


def test_a_poor_branch_does_not_drag_down_what_it_shares() -> None:
    sketch = NetworkSketch()
    shared = sketch.box(sketch.stream(), cost_ns=10.0)
    sketch.output(sketch.box(shared, cost_ns=10.0))
    sketch.output(sketch.box(shared, cost_ns=100_000.0, selectivity=0.01))
    state = follow(sketch.network(), "hr")
    assert state.facts.rate[0] == pytest.approx(1 / 20)


def test_a_joined_tuple_takes_both_sides() -> None:
    sketch = NetworkSketch()
    left, right = sketch.box(sketch.stream(), cost_ns=3.0), sketch.box(sketch.stream(), cost_ns=4.0)
    sketch.output(sketch.box(left, right, cost_ns=5.0, kind="join"))
    sketch.output(sketch.box(left, right, cost_ns=5.0, kind="union"))
    assert follow(sketch.network(), "hnr").facts.ideal_ns == pytest.approx([12.0, 9.0])


def weighted_boxes(random: Random, name: str) -> tuple[SchedulerState, list[int]]:
    sketch = NetworkSketch()
    for _ in range(random.choice([3, 40])):
        sketch.output(sketch.chain(sketch.stream(), random.randint(1, 3), random.uniform(1e2, 1e7), 0.5))
    state = follow(sketch.network(), name)
    heads = [b for b in range(len(state.network.boxes)) if not state.network.feeders[b]]
    for box in random.sample(heads, max(1, len(heads) * 2 // 3)):
        fill(state, state.network.boxes[box].in_arcs[0], random.randrange(1_000_000))
    return state, [b for b in heads if state.waiting[b]]


@pytest.mark.parametrize("seed", range(20))
def test_lsf_takes_the_greatest_stretch(seed: int) -> None:
    state, waiting = weighted_boxes(Random(seed), "lsf")
    now_ns = 2_000_000
    chosen = choose(state, "lsf", now_ns)
    ideal = state.facts.box_ideal_ns
    assert chosen == min(waiting, key=lambda b: (-(now_ns - state.head_ns(b)) / ideal[b], b))


@pytest.mark.parametrize("seed", range(20))
def test_bsd_is_within_its_factor_of_the_best(seed: int) -> None:
    state, waiting = weighted_boxes(Random(seed), "bsd")
    now_ns = 2_000_000
    priority = {b: state.facts.balanced_rate[b] * (now_ns - state.head_ns(b)) for b in waiting}
    chosen = choose(state, "bsd", now_ns)
    assert chosen is not None and priority[chosen] >= max(priority.values()) / 2


# -- P2: charts -----------------------------------------------------------------------------------------------------


def test_the_first_example_of_chain() -> None:
    """Two operators of one unit each that leave 0.2 and nothing: two segments of slope 0.8 and 0.2."""
    chart = [(0.0, 1.0), (1.0, 0.2), (2.0, 0.0)]
    assert lower_envelope(chart) == [0, 1, 2]
    assert envelope_slopes(chart) == pytest.approx([0.8, 0.2])


def test_an_operator_above_the_envelope_shares_the_slope_of_its_segment() -> None:
    """The chart of the Chain paper's figure: the second operator descends most, so the first goes with it."""
    chart = [(0.0, 1.0), (1.0, 0.9), (2.0, 0.2), (4.0, 0.1), (5.0, 0.0)]
    assert lower_envelope(chart) == [0, 2, 4]
    assert envelope_slopes(chart) == pytest.approx([0.4, 0.4, 0.2 / 3, 0.2 / 3])


@pytest.mark.parametrize("seed", range(20))
def test_the_envelope_is_the_greatest_convex_function_below(seed: int) -> None:
    """At each corner no chord of two other points passes below; between corners the envelope lies below every point."""
    random = Random(seed)
    costs = [random.uniform(0.1, 5) for _ in range(random.randint(1, 8))]
    chart = progress_chart(costs, [random.uniform(0.01, 1.0) for _ in costs], [1.0] * len(costs))
    corners = lower_envelope(chart)
    assert corners[0] == 0 and corners[-1] == len(costs)
    xs, ys = [chart[c][0] for c in corners], [chart[c][1] for c in corners]
    for x, y in chart:
        assert y >= np.interp(x, xs, ys) - 1e-12
    slopes = [(a[1] - b[1]) / (b[0] - a[0]) for a, b in pairwise(zip(xs, ys, strict=True))]
    assert slopes == sorted(slopes, reverse=True)


def test_chain_runs_the_steepest_segment_and_ties_go_to_the_oldest() -> None:
    sketch = NetworkSketch()
    for selectivity in (0.9, 0.1, 0.1):
        first = sketch.box(sketch.stream(), cost_ns=100.0, selectivity=selectivity)
        sketch.output(sketch.box(first, cost_ns=1e6))
    state = follow(sketch.network(), "chain")
    for arc, arrival_ns in ((0, 1), (2, 9), (4, 5)):
        fill(state, arc, arrival_ns)
    assert choose(state, "chain", 10) == 4


def test_vpipe_statistics_are_equation_1() -> None:
    """1 feeds 2, 3 and 4; the line is 1, 2, 3, 4."""
    sketch = NetworkSketch()
    one = sketch.box(sketch.stream(), cost_ns=1.0)
    thetas = (0.5, 0.25, 0.1)
    for theta in thetas:
        sketch.output(sketch.box(one, cost_ns=8.0, selectivity=theta))
    network = sketch.network()
    l12, l13, l14 = 7.0, 5.0, 3.0
    flow = [0.0] * len(network.arcs)
    flow[network.streams[0].arcs[0]] = 10.0
    for arc, rate in zip(network.boxes[0].out_arcs[0], (l12, l13, l14), strict=True):
        flow[arc] = rate
    for box, theta, rate in zip(network.boxes[1:], thetas, (l12, l13, l14), strict=True):
        flow[box.out_arcs[0][0]] = rate * theta
    t2, t3, t4 = thetas
    expected = [
        (l12 * t2 + l13 + l14) / (l12 + l13 + l14),
        (l12 * t2 + l13 * t3 + l14) / (l12 * t2 + l13 + l14),
        (l12 * t2 + l13 * t3 + l14 * t4) / (l12 * t2 + l13 * t3 + l14),
    ]
    statistics = line_statistics(network, range(len(network.boxes)), [b.cost_ns or 0 for b in network.boxes], flow)
    assert [s for _, s in statistics[1:]] == pytest.approx(expected)
    assert statistics[1][0] == pytest.approx(8.0 * l12 / (l12 + l13 + l14))


# -- P0: slope and slack ---------------------------------------------------------------------------------------------


def qos_network(random: Random, apps: int) -> Network:
    """Chains with random graphs; some start with a box that two of them share."""
    sketch = NetworkSketch()

    def output(tap: SketchInput) -> None:
        edge = random.uniform(0, 1e9)
        third = (edge + random.uniform(2e9, 3e9), 0.0)
        graph = QoSGraph(((0.0, 1.0), (edge, 1.0), (edge + random.uniform(1e6, 1e9), random.uniform(0.1, 0.9)), third))
        sketch.output(tap, QoS(latency=random.choice([graph, TIGHT, LOOSE, None])))

    for _ in range(apps):
        tap = sketch.chain(sketch.stream(), random.randint(1, 3), random.uniform(1e3, 1e7))
        output(tap)
        if random.random() < 0.3:
            output(sketch.box(tap, cost_ns=1e6))
    return sketch.network()


def p_tuple(state: SchedulerState, box: int, now_ns: int) -> tuple[float, float]:
    """The paper's pair, straight from the graphs: minus the slope at eol, and the way to the next point."""
    utility, slack = 0.0, float("inf")
    for output, way_ns in state.facts.paths_ns[box].items():
        graph = state.network.outputs[output].qos.latency
        if graph is not None:
            eol = now_ns - state.mean_arrival_ns(box) + int(way_ns)
            utility -= graph.slope(eol)
            slack = min(slack, graph.next_critical(eol) - eol)
    return utility, slack


@pytest.mark.parametrize("seed", range(25))
def test_qos_takes_the_highest_p_tuple_as_time_goes_on(seed: int) -> None:
    """Against the definition, computed for every box: after arrivals, after runs, and when only time has passed."""
    random = Random(seed)
    network = qos_network(random, 12)
    state = follow(network, "qos")
    now_ns = 10**18
    for _ in range(60):
        now_ns += random.choice([0, 1_000, 10**6, 10**8, 10**9])
        if random.random() < 0.6:
            arc = random.choice([a for a in network.arcs if a.box is not None])
            fill(state, arc.number, now_ns - random.randrange(2 * 10**9), random.randint(1, 9), now_ns)
        chosen = choose(state, "qos", now_ns)
        waiting = [b for b in range(len(network.boxes)) if state.waiting[b]]
        if not waiting:
            assert chosen is None
            continue
        assert chosen is not None
        best = max(p_tuple(state, b, now_ns)[0] for b in waiting)
        utility, slack = p_tuple(state, chosen, now_ns)
        assert utility == pytest.approx(best, rel=1e-6, abs=1e-15)
        rivals = [p_tuple(state, b, now_ns) for b in waiting]
        nearest_slack = min(s for u, s in rivals if u == pytest.approx(best, rel=1e-6, abs=1e-15))
        assert slack == pytest.approx(nearest_slack, abs=2)
        if random.random() < 0.5:
            plan = policies()["qos"](state, now_ns)
            assert plan is not None
            run_alone(state, plan)


@pytest.mark.parametrize("grid", [1, 4, 20])
@pytest.mark.parametrize("seed", range(6))
def test_qos_buckets_takes_from_the_best_cell_as_time_goes_on(seed: int, grid: int) -> None:
    random = Random(seed)
    network = qos_network(random, 12)
    state = follow(network, "qos_buckets", SchedulerSettings(unit="box", grid=grid))
    now_ns = 10**18
    for _ in range(60):
        now_ns += random.choice([0, 1_000, 10**6, 10**8, 10**9])
        if random.random() < 0.6:
            arc = random.choice([a for a in network.arcs if a.box is not None])
            fill(state, arc.number, now_ns - random.randrange(2 * 10**9), random.randint(1, 9), now_ns)
        chosen = choose(state, "qos_buckets", now_ns)
        waiting = [b for b in range(len(network.boxes)) if state.waiting[b]]
        if not waiting:
            assert chosen is None
            continue
        index = state.index
        assert isinstance(index, Buckets) and chosen is not None
        fresh = Buckets(state, grid)  # sorted anew, by what is true now
        fresh.now_ns = now_ns
        for box in waiting:
            fresh.list(box)
        assert [index.urgency(b) for b in waiting] == [fresh.urgency(b) for b in waiting]
        assert index.urgency(chosen) == min(fresh.urgency(b) for b in waiting)
        if random.random() < 0.5:
            plan = policies()["qos_buckets"](state, now_ns)
            assert plan is not None
            run_alone(state, plan)


def test_the_cells_of_a_graph() -> None:
    """A flat second, then a second of loss: slack shrinks through the cells of the flat row, then of the steep one."""
    table = make_table(add_graphs([(QoSGraph(((0.0, 1.0), (1e9, 1.0), (2e9, 0.0))), 0.0)]), 2, 1e-9, 1e9)
    assert table.edges_ns == [500_000_000, 1_000_000_000, 1_500_000_000, 2_000_000_000]
    assert table.cells == [3, 2, 1, 0, 3]


def test_two_outputs_add_their_losses_and_the_nearer_point_counts() -> None:
    urgency = add_graphs([(TIGHT, 0.0), (QoSGraph(((0.0, 1.0), (5e8, 0.0))), 1e8)])
    loss, edge = urgency.at(200_000_000)
    assert loss == pytest.approx(1 / 999e6 + 1 / 5e8) and edge == 400_000_000


@pytest.mark.parametrize("seed", range(10))
def test_a_calendar_queue_gives_what_a_sorted_list_gives(seed: int) -> None:
    random = Random(seed)
    queue, plain, now_ns = CalendarQueue(), [], 0
    for number in range(3_000):
        if random.random() < 0.7:
            due_ns = now_ns + random.choice([0, 10, 10**4, 10**7, 10**10]) * random.randrange(10)
            queue.put(due_ns, number, 0)
            plain.append((due_ns, number, 0))
        else:
            now_ns += random.choice([1, 10**5, 10**8, 10**11])
            due = sorted(e for e in plain if e[0] <= now_ns)
            plain = [e for e in plain if e[0] > now_ns]
            assert queue.pop_due(now_ns) == due
    assert len(queue) == len(plain)


# -- P3 and P4 ------------------------------------------------------------------------------------------------------


def test_feedback_raises_the_output_that_does_badly() -> None:
    sketch = NetworkSketch()
    for graph in (LOOSE, TIGHT):
        sketch.output(sketch.box(sketch.stream(), cost_ns=10.0), QoS(latency=graph))
    state = follow(sketch.network(), "qos_feedback")
    fill(state, 0, 0)
    fill(state, 1, 1)
    assert choose(state, "qos_feedback", 2) == 0  # nothing is known: the oldest
    assert choose(state, "qos_feedback", 900_000_000) == 1  # the tight one has lost most of its use


def deadlines(*deadlines_ns: int) -> Network:
    sketch = NetworkSketch()
    for ns in deadlines_ns:
        sketch.output(sketch.box(sketch.stream(), cost_ns=1_000.0), QoS(deadline_ns=ns))
    return sketch.network()


def test_edf_takes_one_task_of_the_earliest_deadline() -> None:
    state = follow(deadlines(5_000, 1_000), "edf")
    fill(state, 0, 0, 3)
    fill(state, 1, 3_000, 3)
    plan = policies()["edf"](state, 4_000)
    state.apply(Clock(4_000))
    plan = policies()["edf"](state, 4_000)
    assert plan is not None and plan.boxes == (1,) and plan.takes == {1: 1}


def test_bts_takes_k_basic_batches() -> None:
    for k, tuples in ((1, 10), (2, 20), (100, 40)):
        rule = BatchRule(basic_ns=100, k=k)
        state = follow(deadlines(10**9), "bts", SchedulerSettings(batch=rule))
        for batch in range(4):
            fill(state, 0, batch * 105, 10)
        state.apply(Clock(1_000))
        plan = policies()["bts"](state, 1_000)
        assert plan is not None and plan.takes == {0: tuples} and not plan.expired


def test_s_of_q() -> None:
    """floor((dl - now - C_sched) / C'), C' = C1 + theta1 C2: 3,000 - 500 - 100 over 100 + .5 * 200."""
    assert tasks_in_time(3_000, 500, 100.0, 200.0) == 12
    assert tasks_in_time(3_000, 2_950, 100.0, 200.0) == 0


def test_bts1_drops_the_oldest_that_cannot_make_it() -> None:
    sketch = NetworkSketch()
    first = sketch.box(sketch.stream(), cost_ns=100.0, selectivity=0.5)
    sketch.output(sketch.box(first, cost_ns=200.0), QoS(deadline_ns=3_000))
    state = follow(sketch.network(), "bts1", SchedulerSettings(batch=BatchRule(basic_ns=1_000, step_ns=100)))
    fill(state, 0, 0, 30)
    state.apply(Clock(500))
    plan = policies()["bts1"](state, 500)
    assert plan is not None and plan.expired == ((0, 18),) and plan.takes == {0: 12}
    state.apply(Clock(10_000))
    plan = policies()["bts1"](state, 10_000)
    assert plan is not None and plan.expired == ((0, 30),) and not any((plan.takes or {}).values())


@pytest.mark.parametrize(
    ("k", "share", "before", "after"),
    [(1, 0.0, 0.0, 1), (5, 0.05, 0.05, 5), (5, 0.3, 0.1, 2), (5, 0.0, 0.2, 6), (2, 1.0, 0.0, 1), (9, 0.2, 0.2, 7)],
)
def test_the_controller_of_ats(k: int, share: float, before: float, after: int) -> None:
    """k - floor(1 dSDMR + 10 SDMR), never below 1."""
    assert next_k(k, 1.0, 10.0, share - before, share) == after


def test_ats_learns_from_deadlines_that_were_missed() -> None:
    state = follow(deadlines(1_000), "ats", SchedulerSettings(batch=BatchRule(k=8, interval_ns=1_000)))
    index = state.index
    assert isinstance(index, Batches)
    state.apply(Clock(0))
    for now_ns, late_ns in ((0, 100), (2_000, 500_000)):
        fill(state, 0, now_ns, 10)
        state.apply(Clock(now_ns))
        plan = policies()["ats"](state, now_ns)
        assert plan is not None
        state.apply(Dispatched(plan))
        state.apply(Claimed(0, 10, 1))
        state.apply(Clock(now_ns + late_ns))
        state.apply(Finished(plan))
    state.apply(Clock(10**9))
    assert index.share_missed == 1.0 and index.k == 1


# -- baselines and the list ------------------------------------------------------------------------------------------


def test_fcfs_takes_the_oldest_head() -> None:
    state = follow(deadlines(1, 1, 1), "fcfs")
    for arc, arrival_ns in ((0, 30), (1, 10), (2, 20)):
        fill(state, arc, arrival_ns)
    fill(state, 0, 5)  # behind the one that is there
    assert choose(state, "fcfs", 100) == 1


def test_random_is_even_and_repeats_itself() -> None:
    counts = np.bincount([mix(7, i) % 10 for i in range(10_000)])
    assert counts.min() > 850
    assert [mix(7, i) for i in range(5)] == [mix(7, i) for i in range(5)] != [mix(8, i) for i in range(5)]


def test_priorities_follow_the_statistics() -> None:
    sketch = NetworkSketch()
    for _ in range(2):
        sketch.output(sketch.box(sketch.stream(), cost_ns=100.0))
    network = sketch.network()
    statistics = Statistics(network)
    statistics.cost_per_call_ns[:] = 0.0
    state = SchedulerState(network, SchedulerSettings(unit="box"), statistics)
    state.follow(make_index(policies()["hr"]))
    fill(state, 0, 0)
    fill(state, 1, 1)
    assert choose(state, "hr", 5) == 0
    statistics.cost_per_tuple_ns[0] = 200.0
    state.apply(StatisticsMoved())
    assert choose(state, "hr", 5) == 1


def test_every_policy_says_when_to_use_it() -> None:
    for name, info in policy_infos().items():
        assert info.when and "\n" not in info.when, name
        assert not info.needs or info.instead in policy_infos(), name


def test_what_a_network_lacks_is_said_and_the_nearest_offered() -> None:
    plain, timed = deadlines(), deadlines(1_000)
    sketch = NetworkSketch()
    sketch.output(sketch.box(sketch.stream()))
    plain = sketch.network()
    assert "deadline" in requirements("ats", plain)[0] and nearest("ats", plain) == "fcfs"
    assert requirements("qos", timed) and nearest("qos", timed) == "fcfs"
    assert not requirements("ats", timed) and nearest("ats", timed) == "ats"
    assert not requirements("round_robin", plain)
