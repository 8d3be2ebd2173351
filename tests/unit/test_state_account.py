"""The state of boxes counts in the memory budget, together with the queues."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from catalog.build import build_network
from catalog.schema import Schema
from engine.operators.boxes import box_kinds
from engine.run.core import Engine
from storage.train import END_WATERMARK, Train

STREAM = "streams: {s: {schema: {ts: timestamp, k: bigint, v: double}, time: ts, overload: %s}}\n"
BOXES = {
    "aggregate": "{aggregate: s, window: {tumbling: 1h}, by: [k], select: {n: 'count(*)'}}",
    "distinct": "{aggregate: s, window: {tumbling: 1h}, select: {n: 'count(distinct k)'}}",
    "session": "{aggregate: s, window: {session: 1h}, by: [k], select: {n: 'count(*)'}}",
    "dedup": "{dedup: s, by: [k], within: 1h}",
    "latest": "{latest: s, by: [k]}",
    "top": "{top: s, n: 1, of: v, by: [k], window: {tumbling: 1h}}",
    "join": "{join: [s, s], on: 'l.k = r.k', within: 1h, select: {k: l.k}}",
    "bsort": "{bsort: s, slack: 1h}",
    "resample": "{resample: [s, s], on: 'l.k = r.k', within: 1h, fields: [v]}",
    "union": "{union: [s, s], order: time}",
}


def engine_of(kind: str, *, memory_bytes: int = 2**30, overload: str = "block") -> Engine:
    text = STREAM % overload + f"boxes: {{b: {BOXES[kind]}}}\noutputs: {{o: {{from: b, qos: {{deadline: 1h}}}}}}\n"
    return Engine(build_network(text, box_kinds()), [lambda train: None], workers=1, memory_bytes=memory_bytes)


def train_of(schema: Schema, first: int, count: int, watermark_ns: int | None = None) -> Train:
    numbers = np.arange(first, first + count)
    train = Train(schema, (numbers, numbers, numbers.astype(np.float64)), numbers)
    return train if watermark_ns is None else train.with_watermark(watermark_ns)


@pytest.fixture(params=BOXES)
def running(request: pytest.FixtureRequest) -> Iterator[Engine]:
    engine = engine_of(request.param)
    engine.start()
    yield engine
    engine.stop()


def test_every_box_with_state_counts_its_bytes_and_gives_them_back(running: Engine) -> None:
    stream = running.network.streams[0]
    for i in range(10):
        running.ingress.admit(0, train_of(stream.schema, 10_000 * i, 10_000))
    assert running.drain(60)
    held = running.storage.state_bytes
    assert held >= 8 * 100_000, "at least eight bytes for each of 100,000 tuples"
    assert held == pytest.approx(running.readings.boxes()[0].state_bytes, rel=0.5)
    running.ingress.admit(0, Train.empty(stream.schema, END_WATERMARK))
    assert running.drain(60)
    runtime = running.runtimes[0]
    runtime.box.trim(runtime.state)
    runtime.measure()
    if runtime.node.kind != "latest":  # which never forgets
        assert running.storage.state_bytes < held / 4
    assert running.storage.used_bytes == 0


def test_with_state_beyond_the_budget_the_edge_takes_one_train_at_a_time() -> None:
    """State alone does not close the edge, because only new tuples close windows. A train on a queue closes it until
    its plan has ended."""
    engine = engine_of("distinct", memory_bytes=2**20)
    schema = engine.network.streams[0].schema
    engine.start()
    try:
        for i in range(200):
            assert engine.ingress.admit(0, train_of(schema, 1_000 * i, 1_000), timeout_s=60)
            assert engine.drain(60) and engine.storage.has_room
            if engine.storage.state_bytes >= 2**20:
                break
        else:
            pytest.fail("the state never reached the budget")
        with engine.loop.paused():
            assert engine.ingress.admit(0, train_of(schema, 10**6, 1_000), timeout_s=60)
            assert not engine.storage.has_room
        assert engine.ingress.wait_for_room(0, 60)
    finally:
        engine.stop()
