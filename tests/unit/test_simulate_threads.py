"""The threads of the daemon in the simulator, to the nanosecond; the knee; what expired."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from catalog.stats import Statistics
from engine.run.network_file import read_network
from engine.simulate.core import Simulation
from engine.simulate.experiment import Experiment, knee_rates
from engine.simulate.overheads import Overheads
from engine.simulate.sketch import NetworkSketch
from scheduler.policies import policies
from scheduler.state import SchedulerSettings
from scheduler.trains import TrainRule
from tests.unit.test_simulate import FREE, chains

PROMPT = """
http: {listen: "off"}
streams:
  s: {schema: {x: double}}
boxes:
  cut: {filter: s, where: "x > 0", selectivity: 1.0}
outputs:
  o: {from: cut}
"""
THREADS = Overheads(
    step_ns=100.0, claim_ns=10.0, plan_ns=20.0, call_ns=5.0, wake_ns=7.0, woken_ns=(1_000.0,), admit_ns=50.0,
    idle_path_ns=30.0,
)  # fmt: skip


def lone_tuple(
    text: str, overheads: Overheads, settings: SchedulerSettings | None = None, workers: int = 1
) -> Simulation:
    network = read_network(text)
    statistics = Statistics(network)
    statistics.cost_per_call_ns[:] = 1_000.0
    statistics.cost_per_tuple_ns[:] = 0.0
    trains = {0: (np.array([0]), np.array([1]))}
    run = Simulation(
        network,
        policies()["round_robin"],
        trains,
        statistics=statistics,
        settings=settings,
        overheads=overheads,
        workers=workers,
    )
    run.run()
    return run


def test_a_lone_tuple_takes_the_idle_fast_path_and_wakes_no_worker() -> None:
    run = lone_tuple(PROMPT, THREADS)
    assert run.recorders[0].quality().max_ns == 30 + 1_000 + 5
    assert run.busy_ns == 0 and run.caller_ns == 1_035 and run.storage.taken[0] == 1


WOKEN_NS = 7 + 1_000
"""To wake a thread that sleeps: the scheduler's, and then a worker."""


def test_any_other_tuple_wakes_the_scheduler_and_the_scheduler_wakes_a_worker() -> None:
    slow = PROMPT.replace('{filter: s, where: "x > 0", selectivity: 1.0}', "{universal: s}")
    for run in (
        lone_tuple(PROMPT, THREADS, SchedulerSettings(idle_fast_path=False)),
        lone_tuple(PROMPT, THREADS, SchedulerSettings(unit="box")),
        lone_tuple(slow, THREADS),
    ):
        assert run.recorders[0].quality().max_ns == 50 + 2 * WOKEN_NS + 100 + 10 + 20 + 1_000 + 5
        assert run.busy_ns > 0 and run.caller_ns == 0


def test_waking_takes_what_was_measured_as_often_as_it_was_seen() -> None:
    """Reads wake a worker each, long after another: a quarter of them waits four times as long."""
    network = read_network(PROMPT.replace('{filter: s, where: "x > 0", selectivity: 1.0}', "{universal: s}"))
    statistics = Statistics(network)
    statistics.cost_per_call_ns[:], statistics.cost_per_tuple_ns[:] = 1_000.0, 0.0
    trains = {0: (np.arange(400) * 100_000, np.ones(400, np.int64))}
    overheads = replace(THREADS, woken_ns=(1_000.0, 1_000.0, 1_000.0, 4_000.0))
    run = Simulation(network, policies()["round_robin"], trains, statistics=statistics, overheads=overheads)
    run.run()
    found = run.recorders[0].quality()
    quick_ns = 50 + 2 * WOKEN_NS + 100 + 10 + 20 + 1_000 + 5
    assert found.max_ns in (quick_ns + 3_000, quick_ns + 6_000)
    assert found.mean_ns == pytest.approx(quick_ns + 2 * 3_000 / 4, rel=0.05), "two threads are woken for each read"


BOTH = PROMPT.replace("outputs:", "  slow: {universal: s}\noutputs:\n  p: {from: slow}")


def test_a_worker_that_finds_the_lock_taken_leaves_its_plan_to_one_that_is_awake() -> None:
    """The scheduler decides at 1,057 and wakes two workers. Both ask at 2,071; the second sleeps until 4,206."""
    run = lone_tuple(BOTH, THREADS, workers=2)
    plan_ns = 100 + 10 + 20 + 1_000 + 5
    found = sorted(recorder.quality().max_ns for recorder in run.recorders)
    assert found == [2_071 + plan_ns, 2_071 + plan_ns + plan_ns]


def test_a_scheduler_that_finds_the_lock_taken_sleeps_once_more() -> None:
    """It is woken at 57 and asks at 1,057. The I/O thread has taken in its 22nd read of 25 until 1,107."""
    network = read_network(PROMPT)
    statistics = Statistics(network)
    statistics.cost_per_call_ns[:], statistics.cost_per_tuple_ns[:] = 1_000.0, 0.0
    run = Simulation(
        network,
        policies()["round_robin"],
        {0: (np.zeros(25, np.int64), np.ones(25, np.int64))},
        statistics=statistics,
        settings=SchedulerSettings(idle_fast_path=False),
        overheads=THREADS,
    )
    run.run()
    assert run.recorders[0].quality().max_ns == 1_107 + 1_000 + WOKEN_NS + 100 + 10 + 20 + 1_000 + 5


def test_a_read_behind_another_is_not_cold() -> None:
    network = read_network(PROMPT)
    statistics = Statistics(network)
    statistics.cost_per_call_ns[:], statistics.cost_per_tuple_ns[:] = 1_000.0, 0.0
    run = Simulation(
        network,
        policies()["round_robin"],
        {0: (np.array([1_000, 1_010]), np.array([1, 1]))},
        statistics=statistics,
        overheads=replace(THREADS, cold_ns=400.0),
    )
    run.run()
    found = run.recorders[0].quality()
    assert found.max_ns == 400 + 30 + 1_000 + 5
    assert found.mean_ns == found.max_ns - 200, "only the first of two came after a sleep"


def test_threads_that_work_beside_each_other_lose_what_sharing_says() -> None:
    network, statistics = chains(2, 1, 1e6)
    trains = {s: (np.array([0]), np.array([1])) for s in range(2)}
    shared = replace(FREE, sharing=0.5)
    run = Simulation(network, policies()["round_robin"], trains, statistics=statistics, workers=2, overheads=shared)
    run.run()
    assert run.now_ns == 1_500_000, "the second works beside the first"


def test_python_s_lock_is_held_by_one_at_a_time_and_work_on_tuples_by_all() -> None:
    network, statistics = chains(2, 1, 1e6)
    statistics.cost_per_call_ns[:] = 300.0
    trains = {s: (np.array([0]), np.array([1])) for s in range(2)}
    run = Simulation(network, policies()["round_robin"], trains, statistics=statistics, workers=2, overheads=FREE)
    run.run()
    assert run.now_ns == 300 + 300 + 1_000_000, "calls one after the other, tuples side by side"


def test_what_expired_counts_by_what_would_have_come_out() -> None:
    sketch = NetworkSketch()
    cut = sketch.box(sketch.stream(), selectivity=0.25)
    sketch.output(sketch.box(cut, selectivity=0.5))
    sketch.output(cut)
    network = sketch.network()
    run = Simulation(network, policies()["fcfs"], {}, overheads=FREE)
    run.storage.expired_counted[network.boxes[0].in_arcs[0]] = 80
    run.count_expired()
    assert [r.expired for r in run.recorders] == [10, 20]


def test_the_knee_is_where_all_workers_are_always_busy() -> None:
    """A tuple takes 1 ms of the box and, alone in its plan, half a millisecond beside it."""
    network, statistics = chains(1, 1, 1e6)
    settings = SchedulerSettings(train=TrainRule("tuples", 1))
    overheads = Overheads(step_ns=500_000.0, claim_ns=0.0, plan_ns=0.0, call_ns=0.0)
    experiment = Experiment(network, statistics, ("fcfs",), (1.0,), settings=settings, overheads=overheads)
    assert knee_rates(experiment).tolist() == pytest.approx([1e9 / 1.5e6], rel=0.02)


def test_the_knee_of_one_heavy_box_is_where_it_is_always_busy_however_many_workers_there_are() -> None:
    network, statistics = chains(1, 1, 1e6)
    experiment = Experiment(network, statistics, ("fcfs",), (1.0,), workers=4, overheads=FREE)
    assert knee_rates(experiment).tolist() == pytest.approx([1_000.0], rel=0.02)
