"""``policy: auto`` on the real engine: it follows what is chosen between two steps, says so, and no tuple is lost."""

from __future__ import annotations

import logging
from time import time_ns

import pytest

from catalog.network import Network
from catalog.qos import QoS, QoSGraph
from catalog.readings import LatencyReading
from catalog.stats import Statistics
from engine.daemon.autopilot import BASE_NS, Autopilot
from engine.run.core import Engine
from engine.run.network_file import read_network
from engine.simulate.chooser import Chooser
from engine.simulate.samples import make_train
from engine.simulate.sketch import SCHEMA, NetworkSketch
from engine.simulate.what_if import Snapshot, WhatIf
from scheduler.choice import Forecast
from storage.train import Train

SECOND = 1_000_000_000


def network() -> Network:
    sketch = NetworkSketch()
    for i in range(6):
        graph = QoSGraph(((0.0, 1.0), (1e6, 1.0), (1e9, 0.0)) if i % 2 else ((0.0, 1.0), (4e9, 1.0), (5e9, 0.0)))
        sketch.output(sketch.chain(sketch.stream(), 2, 1_000.0), QoS(graph, deadline_ns=int(graph.points[1][0])))
    return sketch.network()


class Judge(WhatIf):
    """Prefers another policy each time, and keeps what it was asked."""

    def __init__(self) -> None:
        self.asked: list[Snapshot] = []

    def forecasts(self, snapshot: Snapshot, *_: object) -> list[Forecast]:  # type: ignore[override]
        self.asked.append(snapshot)
        return [Forecast(("hr", "bts", "lsf")[len(self.asked) % 3], 0.9, 1e6)]


def test_the_engine_follows_and_loses_nothing(caplog: pytest.LogCaptureFixture) -> None:
    net, out = network(), [0] * 6

    def outlet(number: int):  # type: ignore[no-untyped-def]
        def take(train: Train) -> None:
            out[number] += train.count

        return take

    statistics = Statistics(net)
    statistics.rate_per_s[:] = 100.0
    engine = Engine(net, [outlet(i) for i in range(6)], workers=1, policy="auto", statistics=statistics)
    clock, came_out = [time_ns()], [0]

    def latencies() -> list[LatencyReading]:
        """Ever more tuples, all of them worthless: a reason to look each time."""
        came_out[0] += 10
        return [LatencyReading(tuples=came_out[0], utility_sum=0.0)]

    pilot = Autopilot(engine, statistics, latencies, lambda: clock[0])
    judge = Judge()
    pilot.chooser = Chooser(net, judge, clock[0])
    assert engine.readings.scheduler().policy == "qos", "before anything is known, the network decides"
    engine.start()
    try:
        for round_ in range(6):
            for stream in range(6):
                assert engine.ingress.admit(stream, make_train(SCHEMA, 500, seed=round_))
            clock[0] += 20 * SECOND
            with caplog.at_level(logging.INFO, "aurorad.scheduler"):
                pilot.tick()
        assert engine.drain(30.0)
    finally:
        engine.stop()
    assert out == [3_000] * 6
    reading = engine.readings.scheduler()
    assert reading.asked == "auto" and reading.changes == pilot.chooser.changes == 6
    assert reading.policy == pilot.chooser.choice.policy and reading.reason == pilot.chooser.choice.reason
    assert sum("instead of" in r.message for r in caplog.records) == 6, "one line for each change"
    assert all(s.now_ns == BASE_NS and s.rates_per_s == (100.0,) * 6 for s in judge.asked)
    assert all(0 <= w.first_ns <= w.mean_ns <= BASE_NS for s in judge.asked for w in s.waiting)


def test_before_the_first_tuple_there_is_nothing_to_look_at() -> None:
    net = network()
    engine = Engine(net, [lambda train: None] * 6, workers=1, policy="auto")
    clock, judge = [time_ns()], Judge()
    statistics = Statistics(net)
    pilot = Autopilot(engine, statistics, list, lambda: clock[0])
    pilot.chooser = Chooser(net, judge, clock[0])
    clock[0] += 100 * SECOND
    pilot.tick()
    statistics.rate_per_s[:] = 1.0
    pilot.tick()
    assert not judge.asked, "and the first second says little"
    clock[0] += 2 * SECOND
    pilot.tick()
    assert len(judge.asked) == 1


def test_a_real_forecast_on_a_real_engine() -> None:
    """Nothing is planted here: a look from start to end, as the daemon takes it."""
    net = network()
    statistics = Statistics(net)
    statistics.rate_per_s[:] = 50.0
    engine = Engine(net, [lambda train: None] * 6, workers=1, policy="auto", statistics=statistics)
    clock = [time_ns()]
    late = [LatencyReading(tuples=10, utility_sum=5.0)] * 6
    pilot = Autopilot(engine, statistics, lambda: late, lambda: clock[0])
    clock[0] += 3 * SECOND
    pilot.tick()
    assert pilot.chooser.looks == 1 and not pilot.chooser.is_due(clock[0])
    assert pilot.chooser.choice.policy == "qos", "there is next to no load: nothing to be gained"


def test_a_policy_that_gives_less_is_left_again(caplog: pytest.LogCaptureFixture) -> None:
    net = network()
    statistics = Statistics(net)
    statistics.rate_per_s[:] = 100.0
    engine = Engine(net, [lambda train: None] * 6, workers=1, policy="auto", statistics=statistics)
    clock, worth = [time_ns()], [0.8]
    tuples, utility = 0, 0.0

    def latencies() -> list[LatencyReading]:
        nonlocal tuples, utility
        tuples, utility = tuples + 10, utility + 10 * worth[0]
        return [LatencyReading(tuples=tuples, utility_sum=utility)] * 6

    pilot = Autopilot(engine, statistics, latencies, lambda: clock[0])
    pilot.chooser = Chooser(net, Judge(), clock[0])
    with caplog.at_level(logging.INFO, "aurorad.scheduler"):
        for _ in range(60):
            clock[0] += SECOND // 10
            pilot.tick()
            worth[0] = 0.8 if engine.choice.policy == "qos" else 0.6
    assert engine.choice.policy == "qos" and engine.choice.reason.startswith("measured")
    assert engine.readings.scheduler().decided_by == "measured"
    assert any("policy qos instead of bts: measured: utility 0.800 before, 0.600" in r.message for r in caplog.records)


def test_without_reason_it_computes_nothing() -> None:
    net, clock, judge = network(), [time_ns()], Judge()
    statistics = Statistics(net)
    statistics.rate_per_s[:] = 100.0
    engine = Engine(net, [lambda train: None] * 6, workers=1, policy="auto", statistics=statistics)
    well = [LatencyReading(tuples=10, utility_sum=10.0)] * 6
    pilot = Autopilot(engine, statistics, lambda: well, lambda: clock[0])
    pilot.chooser = Chooser(net, judge, clock[0], first_looks=0)
    for _ in range(10):
        clock[0] += 5 * SECOND
        pilot.tick()
    assert not judge.asked


def test_the_network_file_may_ask_for_it() -> None:
    text = (
        'http: {listen: "off"}\nscheduler: {policy: auto}\nstreams:\n  s: {schema: {x: int}}\n'
        'boxes:\n  a: {filter: s, where: "x > 1"}\noutputs:\n  o: {from: a}\n'
    )
    assert read_network(text).config.scheduler.policy == "auto"
