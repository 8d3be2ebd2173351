"""The simulator beside the engine. How near they come is for a quiet machine; here, that both are really run."""

from __future__ import annotations

import pytest

from catalog.qos import QoS
from engine.simulate.at_rest import measure_overheads
from engine.simulate.calibrate import measure_costs
from engine.simulate.check import compare
from engine.simulate.experiment import Experiment
from engine.simulate.sketch import Sketch


def test_costs_and_overheads_are_measured() -> None:
    sketch = Sketch()
    sketch.output(sketch.box(sketch.stream(), cost_ns=100_000.0, selectivity=0.5))
    network = sketch.network()
    undeclared = measure_costs(network, rounds=2)
    assert undeclared.observed_calls[0] > 0
    assert undeclared.cost_per_tuple_ns[0] == 100_000.0  # what is declared wins
    assert undeclared.selectivity[0] == pytest.approx(0.5)
    overheads = measure_overheads(plans=200, reads=30)
    assert overheads.step_ns > 0 and overheads.claim_ns > 0 and overheads.plan_ns + overheads.call_ns > 0


def test_both_are_run_on_the_same_arrivals() -> None:
    sketch = Sketch()
    sketch.output(sketch.box(sketch.stream(), cost_ns=1_000_000.0), QoS(deadline_ns=500_000_000))
    network = sketch.network()
    experiment = Experiment(network, measure_costs(network, 1), ("fcfs",), (0.2,), duration_ns=400_000_000)
    [found] = compare(experiment)
    assert found.simulated.overall.tuples == found.simulated.arrived > 0, "the box lets everything through"
    [(tuples, p50_ns)] = found.engine.outputs
    assert tuples == found.simulated.arrived and p50_ns > 900_000, "a tuple takes a millisecond at least"
    assert found.simulated.overall.p50_ns > 900_000
    assert 0 <= found.engine.utility <= 1 and 0 <= found.engine.fed_ratio <= 1
