"""The demo's network under every policy, on the real engine: the same rows come out of every output."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from time import time_ns
from typing import Any

import pytest

from catalog.network import Network
from engine.run.core import Engine
from engine.run.network_file import read_network
from engine.simulate.sample_tuples import as_train, sample
from scheduler.policies import policies
from scheduler.state import SchedulerSettings
from scheduler.trains import TrainRule
from storage.train import Train, constant_ns

DEMO = Path(__file__).resolve().parents[2] / "configs" / "demo.yaml"
HOUR_NS = 3_600 * 10**9


@cache
def demo() -> Network:
    return read_network(DEMO, {})


@cache
def market(stream: str) -> Train:
    """Tuples that reach every output."""
    known = demo().stream(stream)
    return as_train(known, sample(known, 3))


def run(policy: str, settings: SchedulerSettings) -> list[list[Any]]:
    """Rows by output, sorted: no order is promised between the inputs of a union."""
    network = demo()
    got: list[list[Any]] = [[] for _ in network.outputs]
    engine = Engine(
        network, [lambda t, out=out: out.extend(t.to_rows()) for out in got], policy=policy, settings=settings
    )
    future_ns = time_ns() + HOUR_NS  # so that no deadline is missed on a busy machine, and nothing dropped for it
    engine.start()
    try:
        for seed in range(12):
            for stream in network.streams:
                made = market(stream.name).slice(100 * seed, 100 * seed + 1 + seed * 7)
                made.arrival_ns = constant_ns(future_ns, made.count)
                assert engine.ingress.admit(stream.number, made, timeout_s=10.0)
        assert engine.drain(30.0)
    finally:
        engine.stop()
    return [sorted(out, key=repr) for out in got]


@cache
def expected() -> list[list[Any]]:
    return run("round_robin", SchedulerSettings())


@pytest.mark.parametrize("name", ["auto", *sorted(policies())])
def test_same_rows_under_every_policy(name: str) -> None:
    assert all(expected()), "every output has rows"
    assert run(name, SchedulerSettings()) == expected()
    assert run(name, SchedulerSettings("box", "min_cost", TrainRule("tuples", 5))) == expected()
    assert run(name, SchedulerSettings("superbox", "min_latency", TrainRule("fraction", 0.5))) == expected()
