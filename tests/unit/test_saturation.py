"""Joins in the simulator, whose work grows by the square of the load, and the rate at which an engine is full."""

from __future__ import annotations

import numpy as np
import pytest

from catalog.network import Network
from catalog.stats import Statistics
from engine.run.network_file import read_network
from engine.simulate.core import Simulation
from engine.simulate.experiment import Experiment, knee_rates
from engine.simulate.overheads import Overheads
from engine.simulate.partners import JoinPartners, partners_of
from engine.simulate.saturation import saturation_rates
from engine.simulate.storage import SimulatedTrain
from scheduler.policies import policies

FREE = Overheads(step_ns=0.0, claim_ns=0.0, plan_ns=0.0, call_ns=0.0)
MS = 1_000_000
JOIN = """
http: {listen: "off"}
engine: {workers: 1}
streams:
  fast: {schema: {ts: timestamp, k: string}, time: ts}
  slow: {schema: {ts: timestamp, k: string}, time: ts}
boxes:
  pairs: {join: [fast, slow], on: "l.k = r.k", within: {before: 40ms, after: 20ms}, select: {k: "l.k"}}
  priced: {universal: pairs, cost: 50us}
outputs:
  out: {from: priced, qos: {deadline: 1s}}
"""
FAST, SLOW = 9_000.0, 1_000.0


def joined() -> tuple[Network, Statistics]:
    """At 9,000 and 1,000 rows a second there are 50,000 pairs: a quarter of a worker."""
    network = read_network(JOIN, {})
    statistics = Statistics(network)
    statistics.cost_per_call_ns[:] = 0.0
    statistics.cost_per_tuple_ns[:] = [1.0, 5_000.0]
    statistics.rate_per_s[:] = [FAST, SLOW]
    statistics.selectivity[0] = statistics.port_selectivity[0] = 5.0
    return network, statistics


@pytest.mark.parametrize("scale", [0.5, 1.0, 2.0])
def test_pairs_grow_by_the_square_of_the_load(scale: float) -> None:
    network, statistics = joined()
    times = np.arange(0, 2_000 * MS, 10 * MS)
    trains = {s: (times, np.full(len(times), round(r * scale / 100))) for s, r in enumerate((FAST, SLOW))}
    run = Simulation(network, policies()["fcfs"], trains, statistics=statistics, overheads=FREE)
    run.execution.is_counted = True
    run.run()
    came, made = run.came_tuples, run.execution.counts.out[0]
    assert made == pytest.approx(2.0 * 50_000 * scale**2, rel=0.1), (came, made)


@pytest.mark.parametrize(("side", "met"), [(0, (40, 20)), (1, (20, 40))])
def test_a_tuple_meets_the_band_before_and_behind_it(side: int, met: tuple[int, int]) -> None:
    partners = JoinPartners(1.0, 40 * MS, 20 * MS)
    for at in range(200):  # a tuple of the other side in each millisecond
        partners.pairs(1 - side, SimulatedTrain(1, at * MS, at * MS, at * MS))
    made = partners.pairs(side, SimulatedTrain(10, 100 * MS, 100 * MS, 100 * MS))
    assert made == pytest.approx(10 * sum(met), rel=0.1)
    edge = partners.pairs(side, SimulatedTrain(10, 0, 0, 0))
    assert edge == pytest.approx(10 * met[1], rel=0.25), "nothing came before"


def test_only_inner_joins_of_inputs_with_known_rates_make_pairs() -> None:
    network, statistics = joined()
    assert list(partners_of(network, statistics)) == [0]
    statistics.rate_per_s[:] = 0.0
    assert not partners_of(network, statistics)
    outer = read_network(JOIN.replace("within:", "type: left, within:"), {})
    statistics.rate_per_s[:] = [FAST, SLOW]
    assert not partners_of(outer, statistics)


def test_a_join_is_full_at_twice_the_rate_at_which_it_uses_a_quarter() -> None:
    network, statistics = joined()
    experiment = Experiment(network, statistics, ("fcfs",), (1.0,), overheads=FREE)
    assert float(saturation_rates(experiment).sum()) == pytest.approx(20_000, rel=0.08)


def test_where_a_row_costs_the_same_at_any_load_saturation_is_the_knee() -> None:
    network = read_network(
        'http: {listen: "off"}\nstreams: {s: {schema: {v: double}}}\nboxes: {b: {universal: s, cost: 1ms}}\n'
        "outputs: {o: {from: b}}\n",
        {},
    )
    statistics = Statistics(network)
    statistics.cost_per_call_ns[:] = 0.0
    experiment = Experiment(network, statistics, ("fcfs",), (1.0,), workers=4, overheads=FREE)
    assert knee_rates(experiment).tolist() == pytest.approx([1_000.0], rel=0.02)
    assert saturation_rates(experiment).tolist() == pytest.approx([1_000.0], rel=0.08)
