"""Preemption between operators in the simulator, to the nanosecond (P1 section 3.3)."""

from __future__ import annotations

import numpy as np
import pytest

from catalog.network import Network
from catalog.stats import Statistics
from engine.run.network_file import read_network
from engine.simulate.core import Simulation
from engine.simulate.overheads import Overheads
from engine.simulate.sketch import NetworkSketch
from scheduler.policies import policies
from scheduler.state import SchedulerSettings
from tests.unit.test_simulate import FREE

MS = 1_000_000


def slow_and_quick() -> Network:
    """b0, b1: a query of 1 ms a box. b2: one of 1 us."""
    sketch = NetworkSketch()
    sketch.output(sketch.chain(sketch.stream(), 2, 1e6))
    sketch.output(sketch.box(sketch.stream(), cost_ns=1e3))
    return sketch.network()


def run(
    network: Network,
    policy: str,
    times: tuple[list[int], ...],
    unit: str = "superbox",
    overheads: Overheads = FREE,
) -> Simulation:
    statistics = Statistics(network)
    statistics.cost_per_call_ns[:] = 0.0
    trains = {s: (np.array(at), np.ones(len(at), np.int64)) for s, at in enumerate(times)}
    simulation = Simulation(
        network, policies()[policy], trains, statistics=statistics, settings=SchedulerSettings(unit=unit),
        overheads=overheads,
    )  # fmt: skip
    simulation.run()
    assert simulation.is_done and simulation.storage.is_empty()
    return simulation


def latencies_ns(simulation: Simulation) -> list[float]:
    return [recorder.quality().mean_ns for recorder in simulation.recorders]


@pytest.mark.parametrize("policy", ["hr", "hnr"])
def test_a_quicker_query_runs_between_two_operators(policy: str) -> None:
    """The quick tuple comes at 0.5 ms. It waits for the end of b0, at 1 ms, and no longer; b1 runs behind it."""
    simulation = run(slow_and_quick(), policy, ([0], [MS // 2]))
    assert latencies_ns(simulation) == [2 * MS + 1_000, MS // 2 + 1_000]
    assert simulation.totals.plans == 3 and simulation.totals.calls == 3
    assert simulation.busy_ns == 2 * MS + 1_000 and simulation.storage.taken[1] == 1, "b1 took its tuple from a queue"


@pytest.mark.parametrize("policy", ["lsf", "bsd", "fcfs", "round_robin"])
def test_other_policies_run_their_plans_to_the_end(policy: str) -> None:
    simulation = run(slow_and_quick(), policy, ([0], [MS // 2]))
    assert latencies_ns(simulation) == [2 * MS, MS + MS // 2 + 1_000]
    assert simulation.totals.plans == 2


def test_the_slower_query_interrupts_nothing() -> None:
    simulation = run(slow_and_quick(), "hr", ([500], [0]))
    assert latencies_ns(simulation) == [2 * MS + 500, 1_000] and simulation.totals.plans == 2


def test_a_tuple_that_comes_during_the_last_operator_waits_for_it() -> None:
    simulation = run(slow_and_quick(), "hr", ([0], [MS + 1]))
    assert latencies_ns(simulation) == [2 * MS, MS - 1 + 1_000] and simulation.totals.plans == 2


def test_newer_tuples_of_an_interrupted_plan_stay_in_order() -> None:
    """Two slow tuples, two quick ones, each during a b0. Both slow ones come out, the first of them first."""
    simulation = run(slow_and_quick(), "hr", ([0, MS], [MS // 2, MS + MS // 2]))
    slow, quick = simulation.recorders
    assert slow.quality().tuples == quick.quality().tuples == 2
    assert simulation.totals.calls == 6 and quick.quality().max_ns < MS + 1_000 + 1


FILTERS = """
http: {listen: "off"}
streams: {s: {schema: {x: double}}, t: {schema: {x: double}}}
boxes:
  one: {filter: s, where: "x > 0", selectivity: 1.0, cost: 1ms}
  two: {filter: one, where: "x > 1", selectivity: 1.0, cost: 1ms}
  brief: {filter: t, where: "x > 0", selectivity: 1.0, cost: 1us}
outputs: {slow: {from: two}, quick: {from: brief}}
"""


def test_a_fused_chain_is_one_operator_and_a_line_has_none() -> None:
    """Two filters run as one pass on a worker; on a line (`unit: vpipe`) every box is an operator of its own."""
    network = read_network(FILTERS)
    assert latencies_ns(run(network, "hr", ([0], [MS // 2]))) == [2 * MS, MS + MS // 2 + 1_000]
    on_line = run(network, "hr", ([0], [MS // 2]), unit="vpipe")
    assert latencies_ns(on_line) == [2 * MS + 1_000, MS // 2 + 1_000]


def test_the_decision_costs_once_and_the_threads_hand_over() -> None:
    """With the daemon's threads and a step of 100 ns: both plans of the slow query pay for a decision, and the quick
    tuple still passes between its operators."""
    threads = Overheads(
        step_ns=100.0, claim_ns=10.0, plan_ns=20.0, call_ns=5.0, wake_ns=7.0, woken_ns=(1_000.0,), admit_ns=50.0,
        idle_path_ns=30.0,
    )  # fmt: skip
    simulation = run(slow_and_quick(), "hr", ([0], [MS // 2]), overheads=threads)
    slow_ns, quick_ns = latencies_ns(simulation)
    assert quick_ns < MS and 2 * MS < slow_ns < 2 * MS + 20_000
    assert simulation.totals.plans == 3 and simulation.totals.scheduler_ns == 300
    assert simulation.totals.calls == 3 and simulation.totals.worker_ns == 3 * 20 + 3 * 5
