"""The simulator beside the engine. How near they come is for a quiet machine; here, that both are really run."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from catalog.qos import QoS
from engine.run.declared_costs import declared_costs
from engine.run.network_file import read_network
from engine.simulate.check import KnownCosts, compare, split_by_time
from engine.simulate.experiment import Experiment, draw, knee_rates
from engine.simulate.measure_costs import LONG, SHORT, costs_between, measure_costs
from engine.simulate.measure_overheads import measure_overheads
from engine.simulate.sketch import NetworkSketch


def test_costs_and_overheads_are_measured() -> None:
    sketch = NetworkSketch()
    sketch.output(sketch.box(sketch.stream(), cost_ns=100_000.0, selectivity=0.5))
    network = sketch.network()
    undeclared = measure_costs(network, rounds=2)
    assert undeclared.observed_calls[0] > 0
    assert undeclared.cost_per_tuple_ns[0] == 100_000.0  # what is declared wins
    assert undeclared.selectivity[0] == pytest.approx(0.5)
    overheads = measure_overheads(plans=200, reads=30)
    assert overheads.step_ns > 0 and overheads.claim_ns > 0 and overheads.plan_ns + overheads.call_ns > 0


def test_costs_are_those_of_reads_as_long_as_they_come() -> None:
    network = read_network(
        """
http: {listen: "off"}
streams: {s: {schema: {x: double}}}
boxes: {b: {universal: s, call_cost: 2ms, selectivity: 0.5}, c: {universal: b}}
outputs: {o: {from: c}}
"""
    )
    halves = measure_costs(network, rounds=1, read_tuples=[2.5])
    assert halves.cost_per_call_ns[0] > 1.5e6, "found by measuring: only a tuple's is declared"
    assert 1 < halves.observed_calls[0] <= SHORT + len(LONG), "a call for each read, until one takes too long"
    assert costs_between(halves, halves).cost_per_call_ns.tolist() == halves.cost_per_call_ns.tolist()


def test_slices_are_the_whole() -> None:
    times, counts = np.arange(0, 1_000, 7), np.arange(143)
    parts = split_by_time({0: (times, counts), 1: (times[:0], counts[:0])}, 4)
    assert [int(p[0][0][0]) for p in parts] == [0, 4, 0, 4], "each begins at 0"
    assert np.concatenate([p[0][1] for p in parts]).tolist() == counts.tolist()
    assert all(int(p[0][0][-1]) < 250 for p in parts[:3]) and not any(len(p[1][0]) for p in parts)


def test_both_are_run_on_the_same_arrivals() -> None:
    sketch = NetworkSketch()
    sketch.output(sketch.box(sketch.stream(), cost_ns=1_000_000.0), QoS(deadline_ns=500_000_000))
    network = sketch.network()
    experiment = Experiment(network, declared_costs(network), ("fcfs",), (0.2,), duration_ns=400_000_000)
    known = KnownCosts(measure_costs(network, 1), measure_overheads(plans=200, reads=30))
    shares: list[float] = []
    [found] = compare(experiment, lambda policy, load, share: shares.append(share), lambda *_: known, slices=2)
    assert shares == [0.0, 0.5, 1.0]
    [pair] = found.every_output
    times, counts = draw(
        experiment, knee_rates(replace(experiment, statistics=known.statistics, overheads=known.overheads)) * 0.2, 0.2
    )[0]
    assert len(times) > 0 and pair.tuples == int(counts.sum()), "the box lets everything through, in every slice"
    assert pair.engine_ns > 900_000 and pair.simulated_ns > 900_000, "a tuple takes a millisecond at least"
    assert 0 <= found.engine_utility <= 1 and 0 <= found.fed_ratio <= 1
    assert found.simulated_utility == pytest.approx(1.0)
