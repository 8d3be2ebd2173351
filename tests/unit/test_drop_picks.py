"""The picks: the share holds, the same tuples go whatever the trains, the least useful ones go first."""

from __future__ import annotations

import numpy as np
import pytest

from load_shedder.apply.picks import RandomPick, ValuePick, WindowPick
from load_shedder.record.losses import WindowGrid

SHARES = [0.0, 0.01, 0.25, 0.5, 0.777, 0.99, 1.0]


@pytest.mark.parametrize("share", SHARES)
@pytest.mark.parametrize("size", [1, 7, 10_000])
def test_a_random_pick_drops_the_share_to_a_few_tuples(share: float, size: int) -> None:
    pick = RandomPick(7)
    gone = sum(int(pick.pick(size, share).sum()) for _ in range(20_000 // size))
    assert gone == pytest.approx(share * (20_000 // size * size), abs=8)


def test_the_same_tuples_go_whatever_the_trains() -> None:
    whole = RandomPick(3).pick(1_000, 0.3)
    pick = RandomPick(3)
    ones = np.concatenate([pick.pick(n, 0.3) for n in [1, 1, 5, 93, 1, 899]])
    assert np.array_equal(whole, ones)
    assert not np.array_equal(whole, RandomPick(4).pick(1_000, 0.3))


@pytest.mark.parametrize("period", [2, 3, 4, 8, 16, 64])
def test_no_period_of_the_input_meets_one_of_the_pick(period: int) -> None:
    gone = RandomPick(1).pick(64_000, 0.5)
    by_phase = [gone[phase::period].mean() for phase in range(period)]
    assert min(by_phase) > 0.4
    assert max(by_phase) < 0.6


@pytest.mark.parametrize("share", SHARES)
@pytest.mark.parametrize("size", [1, 100, 5_000])
def test_the_values_of_least_utility_go_first_and_the_share_holds(share: float, size: int) -> None:
    random = np.random.default_rng(5)
    worth = random.random(20_000)
    pick = ValuePick(1)
    gone = np.concatenate([pick.pick(worth[at : at + size], share) for at in range(0, 20_000, size)])
    assert gone.mean() == pytest.approx(share, abs=0.01)
    settled = slice(10_000, None)
    if 0.0 < share < 1.0:
        assert worth[settled][gone[settled]].max() < share + 0.05
        assert worth[settled][~gone[settled]].min() > share - 0.05


def test_the_threshold_follows_values_that_drift() -> None:
    random = np.random.default_rng(5)
    pick = ValuePick(1)
    for low in (0.0, 0.5, 0.2):
        for _ in range(200):
            gone = pick.pick(low + random.random(100) / 2, 0.5)
        assert gone.mean() == pytest.approx(0.5, abs=0.15)


def test_two_values_only_and_the_share_between_them() -> None:
    """``prefer`` knows 0 and 1: of the preferred ones none goes while others are left."""
    random = np.random.default_rng(5)
    pick, worth = ValuePick(1), (random.random(50_000) < 0.3).astype(np.float64)
    gone = np.concatenate([pick.pick(worth[at : at + 500], 0.6) for at in range(0, 50_000, 500)])
    assert gone.mean() == pytest.approx(0.6, abs=0.005)
    assert worth[gone].sum() < 0.01 * gone.sum()


# -- windows ---------------------------------------------------------------------------------------------


def picked(grid: WindowGrid, times_ns: list[int], share: float, span_ns: int) -> np.ndarray:
    pick = WindowPick([grid], span_ns)
    pick.pick(np.array([-(10**15)]), share)  # something came long before
    return pick.pick(np.array(times_ns), share)


@pytest.mark.parametrize("share", SHARES)
def test_windows_go_whole_and_by_the_share(share: float) -> None:
    times = np.arange(0, 100_000, 3)
    gone = picked(WindowGrid(100, 100, 0), times.tolist(), share, 100)
    windows = times // 100
    shares = np.array([gone[windows == w].mean() for w in range(1_000)])
    assert set(np.unique(shares)) <= {0.0, 1.0}
    assert shares.mean() == pytest.approx(share, abs=0.01)


def test_a_larger_share_drops_all_that_a_smaller_one_does() -> None:
    times = list(range(0, 100_000, 50))
    small, large = (picked(WindowGrid(100, 100, 0), times, share, 100) for share in (0.3, 0.6))
    assert not (small & ~large).any()
    assert small.any()


def test_a_tuple_goes_only_when_all_windows_that_it_is_in_do() -> None:
    grid, span_ns = WindowGrid(10, 40, 3), 160
    pick = WindowPick([grid], span_ns)
    pick.pick(np.array([-(10**15)]), 0.5)
    times = np.arange(5_000)
    gone = pick.pick(times, 0.5)
    assert 0.2 < gone.mean() < 0.5
    for t in times.tolist():
        starts = [s for s in range(3 - 400, 5_010, 10) if s <= t < s + 40]
        assert len(starts) == 4
        assert gone[t] == all(pick.decide(s // span_ns, 0.5) for s in starts)


def test_a_window_that_has_begun_is_finished_as_it_began() -> None:
    pick = WindowPick([WindowGrid(100, 100, 0)], 100)
    assert not pick.pick(np.array([510, 520]), 1.0).any()  # it was under way
    assert pick.pick(np.array([530, 610, 710]), 1.0).tolist() == [False, True, True]
    assert pick.pick(np.array([640, 740, 840]), 0.0).tolist() == [True, True, False]
    assert pick.pick(np.array([860, 910]), 1.0).tolist() == [False, True]
    assert pick.is_open(1_000)
    assert not pick.is_open(2_000)
