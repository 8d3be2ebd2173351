"""``policy: auto`` against every fixed policy, on the quick set of ``bench auto``; and the same answer twice."""

from __future__ import annotations

import pytest

from catalog.qos import QoS, QoSGraph
from engine.lab.bench.auto.bench import AT_LEAST, run
from engine.lab.bench.harness import Options
from engine.run.declared_costs import declared_costs
from engine.simulate.experiment import Experiment, run_experiment
from engine.simulate.report import as_json, text
from engine.simulate.sketch import NetworkSketch
from scheduler.policies import policies

SECOND = 1_000_000_000


@pytest.mark.timeout(600)  # ten seconds of work, more on a busy machine
def test_auto_is_near_the_best_everywhere_and_ahead_of_each_over_all() -> None:
    results = list(run(Options(quick=True)))
    beside_the_best = [r for r in results if r.case.startswith(("P0", "P4", "demo"))]
    over_all = [r for r in results if r.case.startswith("whole set")]
    assert len(beside_the_best) == 3 and len(over_all) == len(policies())
    for result in beside_the_best:
        assert result.ratio is not None and result.ratio >= AT_LEAST, result
    for result in over_all:
        assert result.ratio is not None and result.ratio > 1.0, result


def test_a_simulation_says_what_it_chose_and_is_the_same_twice() -> None:
    sketch = NetworkSketch()
    for i in range(10):
        graph = QoSGraph(((0.0, 1.0), (1e6, 1.0), (1e9, 0.0)) if i % 2 else ((0.0, 1.0), (4e9, 1.0), (5e9, 0.0)))
        sketch.output(sketch.chain(sketch.stream(), 3, 1e6), QoS(graph, deadline_ns=int(graph.points[1][0])))
    network = sketch.network()
    experiment = Experiment(network, declared_costs(network), ("auto",), (1.2,), duration_ns=SECOND)
    first, second = run_experiment(experiment), run_experiment(experiment)
    assert as_json(experiment, first) == as_json(experiment, second)
    [run_] = first
    assert run_.choices[0].policy == "qos" and len(run_.choices) > 1, "the slope alone does not do here"
    assert run_.choices[1].policy in text(first) and run_.choices[1].reason in text(first)
