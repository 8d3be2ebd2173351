"""The figures of ``top`` and the page: no box is busier than one worker, and a cost does not flicker."""

from __future__ import annotations

import numpy as np
import pytest

from qos_monitor.means import BoxMeter, BusyShares

TICK_NS = 100_000_000


def column(value: float) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    return np.array([value])


def test_a_call_longer_than_a_tick_makes_no_box_busier_than_a_worker() -> None:
    """266 %: a call of 266 ms ends in a tick of 100 ms and reports all of its cost there."""
    shares = BusyShares(1)
    shown = [shares.fold(column(0), TICK_NS)[0]]
    for _ in range(40):
        shown += [shares.fold(column(spent), TICK_NS)[0] for spent in (0, 0, 2.66 * TICK_NS)]
    assert max(shown) <= 1.0
    assert np.mean(shown[-30:]) == pytest.approx(2.66 / 3, rel=0.05)  # what it really is


def test_a_share_follows_within_seconds() -> None:
    shares = BusyShares(1)
    for _ in range(50):
        shares.fold(column(TICK_NS), TICK_NS)
    assert shares.shares[0] == pytest.approx(1.0)
    for _ in range(60):
        shares.fold(column(0), TICK_NS)
    assert shares.shares[0] < 0.06


def test_costs_are_those_of_many_calls_and_stay_while_a_box_rests() -> None:
    meter, random, seen = BoxMeter(1), np.random.default_rng(7), []
    for tick in range(200):
        tuples = float(random.integers(1, 100))
        cost_ns = 5_000 + 1_000 * tuples + random.normal(0, 300) * tuples
        means = meter.fold(column(1), column(tuples), column(max(cost_ns, 0)), TICK_NS)
        if tick >= 100:
            seen.append(means.tuple_ns[0])
    assert min(seen) > 0.85 * max(seen)
    assert means.call_ns[0] == pytest.approx(means.tuple_ns[0] * means.call_tuples[0])
    rested = meter.fold(column(0), column(0), column(0), 60 * 10**9)
    assert rested.tuple_ns[0] == pytest.approx(means.tuple_ns[0])
    assert rested.busy[0] < 0.01
