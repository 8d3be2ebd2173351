"""What the papers claim of their policies, on small workloads of their kind, in the simulator."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import pytest

from catalog.network import Network
from catalog.qos import QoS
from catalog.stats import Statistics
from engine.simulate.arrivals import Trains, arrivals
from engine.simulate.core import Simulation
from engine.simulate.experiment import capacity_rates
from engine.simulate.overheads import Overheads
from engine.simulate.quality import Quality, summary
from engine.simulate.sketch import NetworkSketch
from scheduler.policies import policies
from scheduler.state import BatchRule, SchedulerSettings
from scheduler.trains import TrainRule

SECOND = 1_000_000_000
FREE = Overheads(0.0, 0.0, 0.0, 0.0)


def run_all(
    names: Sequence[str], network: Network, trains: dict[int, Trains], settings: SchedulerSettings, costs: Overheads
) -> dict[str, tuple[Quality, Simulation]]:
    statistics = Statistics(network)
    statistics.cost_per_call_ns[:] = 0.0
    out = {}
    for name in names:
        run = Simulation(network, policies()[name], trains, statistics=statistics, settings=settings, overheads=costs)
        run.run()
        run.count_expired()
        out[name] = (summary(run.recorders), run)
    return out


@pytest.mark.parametrize("seed", [1, 3])
def test_p1_each_policy_is_best_at_what_it_is_for(seed: int) -> None:
    """Queries that differ sixteen-fold in cost and tenfold in selectivity, one stream in bursts, load 0.9."""
    random = Random(seed)
    sketch = NetworkSketch()
    stream = sketch.stream()
    for _ in range(24):
        cost_ns, selectivity = 2 ** random.randrange(5) * 2e5, random.uniform(0.1, 1.0)
        filtered = sketch.chain(stream, 2, cost_ns, selectivity)
        sketch.output(sketch.box(filtered, cost_ns=cost_ns))
    network = sketch.network()
    statistics = Statistics(network)
    statistics.cost_per_call_ns[:] = 0.0
    rate = float(capacity_rates(network, statistics, 1, FREE)[0]) * 0.9
    trains = {0: arrivals("bursty", seed, 0, rate, 20 * SECOND)}
    settings = SchedulerSettings(train=TrainRule("tuples", 1))
    found = run_all(("hr", "hnr", "lsf", "bsd", "chain", "round_robin"), network, trains, settings, FREE)
    quality = {name: q for name, (q, _) in found.items()}
    assert min(quality, key=lambda n: quality[n].mean_ns) == "hr"
    assert min(quality, key=lambda n: quality[n].slowdown_mean) == "hnr"
    assert min(quality, key=lambda n: quality[n].slowdown_max) == "lsf"
    assert min(quality, key=lambda n: quality[n].slowdown_l2) == "bsd"
    assert min(found, key=lambda n: found[n][1].storage.byte_ns) == "chain"


def test_p4_batches_beat_single_tasks_and_adapting_beats_batches() -> None:
    """100 queries with deadlines, a step that costs more than a task: missed with TAAT > BTS > ATS >= ATS1."""
    random = Random(1)
    sketch = NetworkSketch()
    for _ in range(100):
        tap = sketch.stream()
        for _ in range(random.randint(1, 3)):
            tap = sketch.box(tap, cost_ns=random.uniform(1e4, 2e5), selectivity=0.5)
        sketch.output(tap, QoS(deadline_ns=int(random.uniform(0.4, 2.0) * SECOND)))
    trains = {i: arrivals("poisson", 1, i, 50.0, 4 * SECOND) for i in range(100)}
    settings = SchedulerSettings(train=TrainRule("all"), batch=BatchRule(basic_ns=SECOND // 25, step_ns=500_000))
    costs = Overheads(500_000.0, 0.0, 0.0, 0.0)
    found = run_all(
        ("edf", "bts", "ats", "ats1"), trains=trains, network=sketch.network(), settings=settings, costs=costs
    )
    missed = {name: q.sdmr for name, (q, _) in found.items()}
    assert missed["edf"] > missed["bts"] > missed["ats"] >= missed["ats1"]
    steps = {name: run.totals.plans for name, (_, run) in found.items()}
    assert steps["edf"] > 2 * steps["bts"]


def test_p0_superboxes_hold_on_where_a_box_at_a_time_is_overloaded() -> None:
    """Figure 5: five trees at 0.9 of capacity, with overheads."""
    sketch = NetworkSketch()
    for _ in range(5):
        leaves = [sketch.box(sketch.stream(), cost_ns=1e5) for _ in range(3)]
        sketch.output(sketch.box(sketch.box(*leaves, cost_ns=1e5), cost_ns=1e5))
    network = sketch.network()
    statistics = Statistics(network)
    statistics.cost_per_call_ns[:] = 0.0
    rates = (capacity_rates(network, statistics, 1, FREE) * 0.85).tolist()
    trains = {s: arrivals("poisson", 2, s, rate, 2 * SECOND) for s, rate in enumerate(rates)}
    costs = Overheads(30_000.0, 10_000.0, 10_000.0, 5_000.0)
    latency = {}
    for unit in ("box", "superbox"):
        settings = SchedulerSettings(unit=unit, train=TrainRule("tuples", 4))
        latency[unit] = run_all(("round_robin",), network, trains, settings, costs)["round_robin"][0].mean_ns
    assert latency["superbox"] < latency["box"] / 2
