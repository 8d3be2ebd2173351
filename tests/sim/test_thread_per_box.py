"""The baseline engine, one thread a box, gives the same rows as the scheduler."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from engine.lab.figures.thread_per_box import ThreadPerBox
from engine.run.core import Engine
from engine.simulate.sketch import SCHEMA, NetworkSketch
from storage.train import Train, constant_ns
from tests.property.policy_networks import SHAPES, random_network


def rows(make: Callable[[Any, Any], Any], shape: str) -> list[list[int]]:
    """Return the results by output, sorted, because a union has no order between its inputs."""
    network = random_network(shape, 1, cost_ns=0.0)
    got: list[list[int]] = [[] for _ in network.outputs]
    engine = make(network, [lambda t, out=out: out.extend(t.columns[0].tolist()) for out in got])
    engine.start()
    try:
        for number in range(30):
            stream = number % len(network.streams)
            columns = (np.arange(number * 10, number * 10 + 10), np.zeros(10))
            admit = engine.feed if isinstance(engine, ThreadPerBox) else engine.ingress.admit
            admit(stream, Train(SCHEMA, columns, constant_ns(0, 10)))
            assert engine.drain(20.0)
    finally:
        engine.stop()
    return [sorted(out) for out in got]


@pytest.mark.parametrize("shape", SHAPES)
def test_same_rows_as_the_engine(shape: str) -> None:
    """Feed one train at a time: a box that drops every other tuple goes by their order, which threads may change."""
    assert rows(ThreadPerBox, shape) == rows(lambda n, o: Engine(n, o, workers=1), shape)


def test_a_full_queue_blocks_its_feeder_and_loses_nothing() -> None:
    sketch = NetworkSketch()
    sketch.output(sketch.chain(sketch.stream(), 3, cost_ns=0.0))
    got: list[int] = []
    engine = ThreadPerBox(sketch.network(), [lambda t: got.extend(t.columns[0].tolist())], queue_trains=2)
    engine.start()
    try:
        for number in range(200):
            engine.feed(0, Train(SCHEMA, (np.array([number]), np.zeros(1)), constant_ns(0, 1)))
        assert engine.drain(20.0)
    finally:
        engine.stop()
    assert got == list(range(200))
    assert [r.tuples_in for r in engine.box_readings()] == [200, 200, 200]
