"""The pair rate of a join, measured while the join lags behind, while plans drop and while tuples expire."""

from __future__ import annotations

import numpy as np
import pytest

from engine.run.network_file import read_network
from qos_monitor.pairs import PairMeter

NETWORK = """
http: {listen: "off"}
streams:
  fast: {schema: {k: string, v: double}}
  slow: {schema: {k: string, v: double}}
boxes:
  pairs: {join: [fast, slow], on: "l.k = r.k", within: 50ms, select: {v: "l.v"}}
outputs:
  found: {from: pairs}
"""
TICK_NS, CHANCE = 100_000_000, 0.002


def measured(speed: float, ticks: int = 100, expired: float = 0.0) -> float:
    """A join that is through with ``speed`` of the time that passes in each tick, under a plan that changes every
    second. A share of the waiting tuples expires. Return pairs over what met."""
    network = read_network(NETWORK)
    inputs = [a.number for a in network.arcs if a.box is not None]
    meter, done_ticks = PairMeter(network), 0.0
    came: list[np.ndarray] = []
    met = made = 0.0
    for tick in range(ticks):
        kept = np.array([[1.0, 1.0], [0.1, 1.0], [0.5, 0.3]][tick // 10 % 3])
        came.append(np.array([900.0, 100.0]) * kept)
        before, done_ticks = int(done_ticks), done_ticks + speed
        through = came[before : int(done_ticks)]
        made += sum(CHANCE * float(((1 - expired) * tuples).prod()) / 0.1 for tuples in through)
        passed, waiting, joined, gone = (np.zeros(len(network.arcs)) for _ in range(4))
        passed[inputs] = came[-1]
        waiting[inputs] = sum(came[int(done_ticks) :], np.zeros(2))
        joined[inputs] = (1 - expired) * sum(through, np.zeros(2))
        gone[inputs] = expired * sum(through, np.zeros(2))
        met += float(meter.fold(passed, waiting, joined, gone, TICK_NS)[0])
    return made / met


@pytest.mark.parametrize("speed", [1.0, 0.5, 0.25])
def test_a_join_that_lags_behind_makes_the_same_pairs_of_what_met(speed: float) -> None:
    assert measured(speed) == pytest.approx(CHANCE, rel=0.02)


def test_what_expired_on_the_queue_has_met_nothing() -> None:
    assert measured(0.5, expired=0.5) == pytest.approx(CHANCE, rel=0.02)


def test_a_join_that_stands_still_is_not_remembered_for_ever() -> None:
    network = read_network(NETWORK)
    meter, full = PairMeter(network), np.full(len(network.arcs), 1e6)
    for _ in range(2_000):
        meter.fold(np.ones(len(network.arcs)), full, np.zeros(len(full)), np.zeros(len(full)), TICK_NS)
    assert len(meter._meters[0].ticks) <= 600
