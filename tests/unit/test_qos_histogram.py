"""The latency recorder against numpy: exact where it promises exactness, within two per cent where it does not."""

from __future__ import annotations

from itertools import pairwise
from threading import Thread

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalog.qos import QoS, QoSGraph
from qos_monitor.histogram import SLOT_NS, SLOTS, STANDARD_BOUNDS_NS, BucketGrid, LatencyRecorder, merge_bounds, runs
from storage.train import constant_ns

GRAPH = QoSGraph(((0.0, 1.0), (7_654_321.0, 0.9), (1e8, 0.5), (1e9, 0.0)))
QOS = QoS(latency=GRAPH, deadline_ns=7_654_321)
NOW = 50_000 * SLOT_NS

Latencies = npt.NDArray[np.int64]


def recorded(latency_ns: Latencies, qos: QoS = QOS) -> LatencyRecorder:
    recorder = LatencyRecorder(qos)
    for part in np.array_split(latency_ns, 7):
        recorder.record(NOW - part, NOW)
    return recorder


@pytest.mark.parametrize("spread", [0.01, 0.5, 2.0, 4.0])
@pytest.mark.parametrize("middle", [5_000, 300_000, 20_000_000, 3_000_000_000])
def test_quantiles_are_within_two_per_cent(middle: int, spread: float) -> None:
    rng = np.random.default_rng(middle)
    latency_ns = np.clip(np.exp(rng.normal(np.log(middle), spread, 50_000)), 2_000, 2e12).astype(np.int64)
    reading = recorded(latency_ns).reading(NOW)
    p50, p99, p999 = np.percentile(latency_ns, [50, 99, 99.9])
    assert reading.p50_ns == pytest.approx(p50, rel=0.02)
    assert reading.p99_ns == pytest.approx(p99, rel=0.02)
    # Between two neighbours far out in the tail numpy interpolates; any value between them is as right.
    low, high = np.percentile(latency_ns, 99.9, method="lower"), np.percentile(latency_ns, 99.9, method="higher")
    assert 0.98 * low <= reading.p999_ns <= 1.02 * high
    assert low <= p999 <= high
    assert reading.mean_ns == pytest.approx(latency_ns.mean())
    assert reading.window_max_ns == reading.max_ns == latency_ns.max()


def test_counts_at_the_breakpoints_are_exact() -> None:
    rng = np.random.default_rng(3)
    near = [b + d for b in (*STANDARD_BOUNDS_NS, 7_654_321, 10**8, 10**9) for d in (-1, 0, 1)]
    latency_ns = np.concatenate([np.array(near), rng.integers(0, 2 * 10**9, 20_000)])
    histogram = recorded(latency_ns).reading(NOW).histogram
    assert 7_654_321 in histogram.bounds
    expected = [int((latency_ns <= b).sum()) for b in histogram.bounds]
    assert np.cumsum(histogram.counts).tolist() == [*expected, len(latency_ns)]
    assert histogram.total == len(latency_ns)
    assert histogram.sum == pytest.approx(latency_ns.sum())


def test_utility_and_misses_are_those_of_the_graph() -> None:
    latency_ns = np.random.default_rng(4).integers(0, 2 * 10**9, 5_000)
    reading = recorded(latency_ns).reading(NOW)
    utilities = np.interp(latency_ns, [0, 7_654_321, 1e8, 1e9], [1, 0.9, 0.5, 0])
    assert reading.utility_sum == pytest.approx(utilities.sum())
    assert reading.window_utility == pytest.approx(utilities.mean())
    assert reading.missed == reading.window_missed == int((latency_ns > 7_654_321).sum())


def test_slowdown_counts_by_the_ideal_time_of_the_moment() -> None:
    recorder = LatencyRecorder(QoS())
    recorder.ideal_ns = 1_000.0
    recorder.record(constant_ns(NOW - 5_000, 10), NOW)
    recorder.ideal_ns = 2_000.0
    recorder.record(np.array([NOW - 4_000, NOW - 8_000]), NOW)
    reading = recorder.reading(NOW)
    slowdowns = [5.0] * 10 + [2.0, 4.0]
    assert reading.slowdown_sum == pytest.approx(sum(slowdowns))
    assert reading.slowdown_square_sum == pytest.approx(sum(s * s for s in slowdowns))
    assert reading.slowdown_max == 5.0
    assert reading.window_utility == 1.0  # no graph asks for nothing
    assert reading.missed == 0


@given(st.lists(st.tuples(st.integers(-5, 3 * 10**12), st.integers(1, 50)), min_size=1, max_size=30))
def test_a_train_with_one_stamp_and_a_train_with_many_are_counted_alike(parts: list[tuple[int, int]]) -> None:
    one_by_one, together = LatencyRecorder(QOS), LatencyRecorder(QOS)
    for latency_ns, count in parts:
        one_by_one.record(constant_ns(NOW - latency_ns, count), NOW)
    together.record(np.concatenate([np.full(count, NOW - latency_ns) for latency_ns, count in parts]), NOW)
    a, b = one_by_one.reading(NOW), together.reading(NOW)
    assert a.histogram.counts == b.histogram.counts
    assert (a.tuples, a.missed, a.max_ns) == (b.tuples, b.missed, b.max_ns)
    assert (a.p50_ns, a.p99_ns) == (b.p50_ns, b.p99_ns)
    assert a.utility_sum == pytest.approx(b.utility_sum)
    assert a.slowdown_sum == pytest.approx(b.slowdown_sum)


def test_the_window_slides_and_the_total_stays() -> None:
    recorder = LatencyRecorder(QOS)
    recorder.record(constant_ns(NOW - 10**9, 100), NOW)
    later = NOW + (SLOTS - 1) * SLOT_NS
    recorder.record(constant_ns(later - 10**6, 100), later)
    assert recorder.reading(later).window_tuples == 200
    later += SLOT_NS
    reading = recorder.reading(later)
    assert reading.window_tuples == 100
    assert reading.window_max_ns == 10**6
    assert reading.tuples == 200
    recorder.record(constant_ns(later - 2_000, 1), later)  # takes over the slot of the first second
    assert recorder.reading(later).tuples == 201
    assert recorder.reading(later).max_ns == 10**9
    assert recorder.reading(later + 100 * SLOT_NS).window_tuples == 0
    assert recorder.reading(later + 100 * SLOT_NS).p99_ns == 0.0
    assert recorder.quantiles((0.0, 1.0)) == pytest.approx((2_000, 10**9), rel=0.02)


def test_an_empty_train_is_nothing() -> None:
    recorder = LatencyRecorder(QOS)
    recorder.record(constant_ns(0, 0), NOW)
    assert recorder.reading(NOW).tuples == 0


def test_two_workers_at_once_lose_nothing() -> None:
    recorder = LatencyRecorder(QOS)

    def deliver(seed: int) -> None:
        rng = np.random.default_rng(seed)
        for i in range(300):
            now = NOW + i * SLOT_NS // 40
            recorder.record(constant_ns(now - 10**6, 10), now)
            recorder.record(now - rng.integers(0, 10**9, 10), now)

    threads = [Thread(target=deliver, args=(seed,)) for seed in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    reading = recorder.reading(NOW + 8 * SLOT_NS)
    assert reading.tuples == reading.histogram.total == 2 * 300 * 20


@given(st.lists(st.integers(1, 10**11), min_size=1, max_size=6, unique=True))
def test_bounds_hold_the_breakpoints_and_never_share_a_cell(breakpoints: list[int]) -> None:
    xs = sorted(breakpoints)
    graph = QoSGraph(tuple((float(x), 1.0 - i / len(xs)) for i, x in enumerate(xs)))
    bounds = merge_bounds(STANDARD_BOUNDS_NS, graph)
    assert list(bounds) == sorted(set(bounds))
    for x in xs:
        assert any(abs(b - x) <= max(0.04 * x, 1_024) for b in bounds)
    if all(b > 1.07 * a + 1_024 for a, b in pairwise(xs)):
        assert set(xs) <= set(bounds)
    BucketGrid(bounds)  # asserts one bound a cell


@given(st.lists(st.integers(0, 3), min_size=1, max_size=40))
def test_runs(values: list[int]) -> None:
    array = np.array(values, np.int64)
    heads, lengths = runs(array)
    assert np.repeat(heads, lengths).tolist() == values
    assert (np.diff(heads) != 0).all()
