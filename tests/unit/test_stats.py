"""Box statistics: costs fitted from noisy ticks, followed when they move, never negative."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalog.catalog import Catalog
from catalog.stats import SEED_TUPLES, Statistics
from tests.unit.monitored import diamond

TICK_NS = 100_000_000
NETWORK = diamond()
BIG, SPLIT, BOTH = (NETWORK.box(name).number for name in ("big", "split", "both"))


class Source:
    """Ticks of one box with a cost of a + b*n and noise."""

    def __init__(self, seed: int = 0, noise: float = 0.2) -> None:
        self.stats = Statistics(NETWORK)
        self.rng = np.random.default_rng(seed)
        self.noise = noise

    def run(self, a: float, b: float, trains: list[int], ticks: int, calls: int = 20, times: float = 1.0) -> Statistics:
        for tick in range(ticks):
            n = trains[tick % len(trains)]
            noise = 1 + self.noise * self.rng.standard_normal() / np.sqrt(calls)
            self.tick(calls, calls * n, calls * (a + b * n) * noise * times)
        return self.stats

    def tick(self, calls: int, tuples: int, cost_ns: float) -> None:
        shape = len(NETWORK.boxes)
        out = np.zeros(self.stats.port_start[-1])
        out[self.stats.port_start[BIG]] = tuples // 2
        columns = np.zeros((3, shape))
        columns[:, BIG] = calls, tuples, cost_ns
        self.stats.observe_boxes(columns[0], columns[1], out, columns[2], TICK_NS)


def test_the_first_guess_is_what_the_user_declared() -> None:
    stats = Statistics(NETWORK)
    assert stats.cost_per_tuple_ns[BIG] == 2_000
    assert stats.selectivity[BIG] == 0.5
    assert stats.selectivity[SPLIT] == pytest.approx(1.0)
    assert stats.port_selectivity[stats.port_start[SPLIT]] == 0.5  # two ports, nothing known of either
    assert (stats.cost_per_call_ns > 0).all()
    assert stats.tuple_bytes[BIG] == 8 + 4 + 8 + 4


@pytest.mark.parametrize(("a", "b"), [(20_000, 50), (5_000, 0), (0, 50), (100_000, 2_000), (1_000, 1)])
def test_both_parts_are_found(a: float, b: float) -> None:
    stats = Source().run(a, b, [1, 10, 100, 1_000], 60)
    for n in (1, 100, 1_000):
        assert stats.call_cost_ns(BIG, n) == pytest.approx(a + b * n, rel=0.25, abs=200)


def test_one_tick_is_enough_for_a_rough_idea() -> None:
    stats = Source(noise=0).run(30_000, 200, [500], 1)
    assert stats.call_cost_ns(BIG, 500) == pytest.approx(130_000, rel=0.1)


def test_trains_of_one_size_keep_the_sum_right_for_ever() -> None:
    stats = Source().run(20_000, 50, [100], 2_000)
    assert stats.call_cost_ns(BIG, 100) == pytest.approx(25_000, rel=0.15)
    assert np.isfinite(stats.cost_per_call_ns).all()


@pytest.mark.parametrize("factor", [10.0, 0.1, 3.0])
def test_a_new_cost_is_followed_within_seconds(factor: float) -> None:
    source = Source()
    source.run(20_000, 50, [1, 10, 100, 1_000], 60)
    stats = source.run(20_000 * factor, 50 * factor, [1, 10, 100, 1_000], 30)
    for n in (1, 1_000):
        assert stats.call_cost_ns(BIG, n) == pytest.approx(factor * (20_000 + 50 * n), rel=0.35)


def test_one_outlier_moves_little() -> None:
    source = Source()
    stats = source.run(20_000, 50, [1, 10, 100, 1_000], 60)
    before = stats.call_cost_ns(BIG, 100)
    source.run(20_000, 50, [100], 1, times=100)
    assert stats.call_cost_ns(BIG, 100) < 1.5 * before
    source.run(20_000, 50, [1, 10, 100, 1_000], 12)
    assert stats.call_cost_ns(BIG, 100) == pytest.approx(before, rel=0.25)


@given(
    st.lists(
        st.tuples(st.integers(0, 1_000), st.integers(0, 10**6), st.integers(0, 10**10), st.integers(0, 10**10)),
        min_size=1,
        max_size=40,
    )
)
def test_nothing_makes_a_cost_negative_or_lost(ticks: list[tuple[int, int, int, int]]) -> None:
    source = Source()
    for calls, tuples, cost_ns, _ in ticks:
        source.tick(calls, tuples, cost_ns)
    for column in (source.stats.cost_per_call_ns, source.stats.cost_per_tuple_ns, source.stats.selectivity):
        assert np.isfinite(column).all()
        assert (column >= 0).all()


def test_selectivity_is_a_ratio_of_sums_by_port() -> None:
    stats = Statistics(NETWORK)
    start = stats.port_start[SPLIT]
    for came in (10_000, 1):  # a tick of one tuple does not outvote one of ten thousand
        out = np.zeros(stats.port_start[-1])
        out[start] = came // 10
        out[start + 1] = came - came // 10
        came_by_box = np.where(np.arange(3) == SPLIT, came, 0)
        stats.observe_boxes(came_by_box > 0, came_by_box, out, came_by_box * 100, TICK_NS)
    assert stats.port_selectivity[start] == pytest.approx(0.1, abs=0.002)
    assert stats.port_selectivity[start + 1] == pytest.approx(0.9, abs=0.002)
    assert stats.selectivity[SPLIT] == pytest.approx(1.0, abs=0.002)
    assert stats.selectivity[BIG] == 0.5, "an idle box keeps what it had"


def test_a_window_that_emits_while_nothing_comes_in_still_counts() -> None:
    stats = Statistics(NETWORK)
    start, idle = stats.port_start[BIG], np.zeros(3)
    out = np.zeros(stats.port_start[-1])
    stats.observe_boxes(np.eye(3)[BIG], 1_000 * np.eye(3)[BIG], out, idle, TICK_NS)
    silent = stats.selectivity[BIG]
    out[start] = 100
    stats.observe_boxes(idle, idle, out, idle, TICK_NS)
    assert silent < 0.02
    assert stats.selectivity[BIG] == pytest.approx(0.1, abs=0.02)
    assert SEED_TUPLES < 100, "a first guess must not outweigh a tick"


def test_the_arrival_rate_follows_and_starts_at_what_it_sees() -> None:
    stats = Statistics(NETWORK)
    stats.observe_streams(np.array([1_000]), TICK_NS)
    assert stats.rate_per_s[0] == pytest.approx(10_000)
    for _ in range(50):
        stats.observe_streams(np.array([200]), TICK_NS)
    assert stats.rate_per_s[0] == pytest.approx(2_000, rel=0.05)
    stats.observe_streams(np.array([10**9]), 0)
    assert stats.rate_per_s[0] == pytest.approx(2_000, rel=0.05), "no time passed: nothing can be said"


def test_tuple_bytes_are_learned_from_what_waits() -> None:
    stats = Statistics(NETWORK)
    for _ in range(40):
        stats.observe_tuple_bytes(np.array([10, 0, 0]), np.array([900, 0, 0]))
    assert stats.tuple_bytes[0] == pytest.approx(90, rel=0.02)
    assert stats.tuple_bytes[2] == 24


def test_the_effective_cost_shares_the_call_among_its_tuples() -> None:
    stats = Source(noise=0).run(50_000, 100, [500], 40)
    assert stats.effective_cost_ns()[BIG] == pytest.approx(200, rel=0.1)


def test_a_box_that_a_plan_relieves_does_not_become_dearer_by_its_short_trains() -> None:
    known = Source(noise=0).run(50_000, 100, [500, 50], 80)
    known.kept_share[BIG], known.train_tuples[BIG] = 0.1, 50
    assert known.unshed_cost_ns()[BIG] == pytest.approx(200, rel=0.15), "as in trains of 500"


def test_a_new_network_keeps_what_was_learned_under_the_same_name() -> None:
    catalog = Catalog(NETWORK)
    source = Source()
    source.stats = catalog.stats
    learned = source.run(20_000, 50, [1, 100], 30)
    catalog.stats.observe_streams(np.array([500]), TICK_NS)
    fresh = catalog.replace(diamond())
    assert fresh.stats is not learned
    assert fresh.stats.call_cost_ns(BIG, 7) == learned.call_cost_ns(BIG, 7)
    assert fresh.stats.port_selectivity.tolist() == learned.port_selectivity.tolist()
    assert fresh.stats.rate_per_s[0] == pytest.approx(5_000)
    fresh.stats.cost_per_call_ns[BIG] = 1.0
    assert learned.cost_per_call_ns[BIG] != 1.0, "copied, not shared"
