"""A box of a superbox runs once for all that its feeders have left (P0's min cost), and nothing is lost by it."""

from __future__ import annotations

import numpy as np
import pytest

from catalog.network import Network
from engine.lab.figures.p0_06 import figure_4
from engine.run.core import Engine
from engine.simulate.samples import make_train
from engine.simulate.sketch import SCHEMA, NetworkSketch
from scheduler.state import SchedulerSettings
from scheduler.trains import TrainRule
from storage.train import Train, constant_ns


def run(network: Network, traversal: str) -> tuple[Engine, list[int]]:
    """One tuple on every stream, all there before anything is decided."""
    got: list[int] = []
    settings = SchedulerSettings(traversal=traversal, train=TrainRule("all"))
    engine = Engine(network, [lambda t: got.extend(t.columns[0].tolist())], workers=1, settings=settings)
    engine.start()
    try:
        with engine.loop.paused():
            for stream in network.streams:
                columns = (np.array([stream.number]), np.zeros(1))
                engine.ingress.admit(stream.number, Train(SCHEMA, columns, constant_ns(0, 1)))
        assert engine.drain(20.0)
    finally:
        engine.stop()
    return engine, sorted(got)


@pytest.mark.parametrize(("traversal", "calls"), [("min_cost", 6), ("min_latency", 15)])
def test_figure_4_takes_as_many_calls_as_the_paper_says(traversal: str, calls: int) -> None:
    engine, got = run(figure_4(cost_ns=0.0, call_ns=0.0), traversal)
    assert got == list(range(6))
    assert sum(r.calls for r in engine.readings.boxes()) == calls
    assert sum(r.tuples_in for r in engine.readings.boxes()) == 15


def test_long_trains_are_not_copied_together() -> None:
    sketch = NetworkSketch()
    stream = sketch.stream()
    sketch.output(sketch.box(sketch.box(stream, cost_ns=0), sketch.box(stream, cost_ns=0), cost_ns=0, name="root"))
    got: list[Train] = []
    engine = Engine(sketch.network(), [got.append], workers=1)
    engine.start()
    try:
        engine.ingress.admit(0, make_train(SCHEMA, 10_000, seed=0))
        assert engine.drain(20.0)
    finally:
        engine.stop()
    assert [t.count for t in got] == [10_000, 10_000]
