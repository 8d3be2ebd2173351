"""What is missing, by event time: a window that lacks a tuple is always known, a few too many may be."""

from __future__ import annotations

import numpy as np
import pytest

from load_shedder.record.losses import CELLS_AT_MOST, ArcLosses


def dropped(losses: ArcLosses, times: list[int]) -> None:
    losses.note(np.array(times), np.ones(len(times), np.bool_))


def spoiled(losses: ArcLosses, *windows: tuple[int, int]) -> list[bool]:
    found = losses.spoiled(np.array([w[0] for w in windows]), np.array([w[1] for w in windows]))
    return [bool(f) for f in found]


def test_a_window_is_spoiled_where_something_is_missing_and_nowhere_else() -> None:
    losses = ArcLosses(100, True, [])
    assert spoiled(losses, (0, 100)) == [False]
    dropped(losses, [150, 170, 420])
    windows = [(0, 100), (100, 200), (200, 300), (400, 500), (100, 150), (171, 420), (0, 10_000), (420, 421)]
    assert spoiled(losses, *windows) == [False, True, False, True, False, False, True, True]


def test_times_below_zero_are_times() -> None:
    losses = ArcLosses(100, True, [])
    dropped(losses, [-150])
    assert spoiled(losses, (-200, -100), (-100, 0)) == [True, False]


@pytest.mark.parametrize("seed", range(5))
def test_however_many_cells_there_are_no_spoiled_window_is_missed(seed: int) -> None:
    random = np.random.default_rng(seed)
    losses = ArcLosses(10, True, [])
    times = random.integers(0, 10_000_000, 30_000)
    for part in np.array_split(times, 50):
        dropped(losses, part.tolist())
    assert len(losses._cells) <= CELLS_AT_MOST
    starts = np.arange(0, 10_000_000, 100)
    missing = np.zeros(starts.shape[0], np.bool_)
    missing[times // 100] = True
    found = losses.spoiled(starts, starts + 100)
    assert not (missing & ~found).any()


def test_what_no_window_needs_is_forgotten() -> None:
    losses = ArcLosses(100, True, [(50, 0)])
    dropped(losses, [10, 110, 210])
    losses.forget(200)
    assert spoiled(losses, (0, 200), (200, 300)) == [False, True]
    assert losses.panes[50, 0].dropped == {4: 1}


def test_it_goes_through_plain_data() -> None:
    losses = ArcLosses(100, True, [(50, 0)])
    losses.note(np.array([10, 110, 115]), np.array([True, False, True]))
    again = ArcLosses(100, True, [(50, 0)])
    again.restore(losses.snapshot())
    assert again.snapshot() == losses.snapshot()
    assert spoiled(again, (0, 100), (110, 115), (110, 116)) == [True, False, True]
    assert (again.panes[50, 0].kept, again.panes[50, 0].dropped) == ({2: 1}, {0: 1, 2: 1})
