"""Windows that are dropped key by key: whole, by the share, evenly in time; and the record of what is missing."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from engine.run.network_file import read_network
from load_shedder.apply.keyed_pick import STAYS_NS, KeyedPick
from load_shedder.record.book import LossBook
from load_shedder.record.key_groups import KEY_GROUPS, KeyedLosses
from load_shedder.record.losses import ArcLosses, WindowGrid

MS = 10**6
SECOND = WindowGrid(1_000 * MS, 1_000 * MS, 0)


class Drive:
    """A pick that sees a train every 10 ms, of rows spread over key groups by these weights."""

    def __init__(self, weights: Any, grid: WindowGrid = SECOND, span_ns: int = 1_000 * MS) -> None:
        self.pick = KeyedPick([grid], span_ns)
        self.weights = np.array(weights, np.float64) / np.sum(weights)
        self.places = np.linspace(0, KEY_GROUPS - 1, len(self.weights)).astype(np.intp)
        self.random = np.random.default_rng(1)
        self.now_ns = 0
        self.rows: list[tuple[int, int, bool]] = []  # window, group, whether it went

    def run(self, seconds: float, share: float) -> float:
        """Return the share of the tuples that went."""
        went = count = 0
        for _ in range(round(seconds * 100)):
            groups = self.places[self.random.choice(len(self.weights), 100, p=self.weights)]
            times = np.full(100, self.now_ns)
            gone = self.pick.pick(times, groups, share, self.now_ns)
            went, count = went + int(gone.sum()), count + 100
            window = self.now_ns // SECOND.size_ns
            self.rows += [(window, g, bool(f)) for g, f in zip(groups.tolist(), gone.tolist(), strict=True)]
            self.now_ns += 10 * MS
        return went / count

    def fates(self) -> dict[tuple[int, int], set[bool]]:
        found: dict[tuple[int, int], set[bool]] = {}
        for window, group, gone in self.rows:
            found.setdefault((window, group), set()).add(gone)
        return found


@pytest.mark.parametrize("share", [0.1, 0.5, 0.85])
@pytest.mark.parametrize("keys", [1, 3, 20, 256])
def test_whole_windows_of_some_keys_go_and_the_share_holds(share: float, keys: int) -> None:
    drive = Drive(np.ones(keys))
    assert drive.run(30, share) == pytest.approx(share, abs=0.03)
    assert all(len(fate) == 1 for fate in drive.fates().values())


def test_the_share_holds_where_one_key_has_most_of_the_tuples() -> None:
    assert Drive([0.6, *([0.4 / 30] * 30)]).run(40, 0.3) == pytest.approx(0.3, abs=0.04)


def test_the_work_that_is_left_is_even_and_so_are_the_windows_of_a_key() -> None:
    drive = Drive(np.ones(64))
    by_second = [drive.run(1, 0.6) for _ in range(30)]
    assert max(by_second) - min(by_second) < 0.05
    kept = {g: [w for (w, group), fate in drive.fates().items() if group == g and fate == {False}] for g in (0, 255)}
    for windows in kept.values():
        assert len(windows) == pytest.approx(12, abs=2)
        assert max(np.diff(sorted(windows))) <= 5


def test_a_share_that_rises_and_stays_takes_effect_within_the_window() -> None:
    drive = Drive(np.ones(64), WindowGrid(60_000 * MS, 60_000 * MS, 0), 60_000 * MS)
    drive.run(1, 0.2)
    drive.run(2 * STAYS_NS / 1e9, 0.7)
    assert drive.run(1, 0.7) == pytest.approx(0.7, abs=0.03)
    assert drive.run(1, 0.1) == pytest.approx(0.7, abs=0.03)  # a group that is gone stays gone


def test_a_peak_of_the_share_costs_no_window_that_has_begun() -> None:
    drive = Drive(np.ones(64))
    drive.run(1.3, 0.3)
    drive.run(0.2, 0.95)
    assert drive.run(0.4, 0.3) == pytest.approx(0.3, abs=0.03)


def test_nothing_new_goes_when_the_plan_ends() -> None:
    drive = Drive(np.ones(64))
    drive.run(1.5, 0.8)
    assert drive.run(0.5, 0.0) == pytest.approx(0.8, abs=0.03)
    assert drive.pick.is_open(drive.now_ns)
    assert drive.run(2, 0.0) == 0.0
    assert not drive.pick.is_open(drive.now_ns)


def test_a_window_of_another_key_group_lacks_nothing() -> None:
    losses = ArcLosses(100, True, [], ("k",))
    losses.note(np.array([150, 160, 420]), np.array([True, False, True]), np.array([7, 8, 9]))
    starts, groups = np.array([100, 100, 400, 400, 0]), np.array([7, 8, 7, 9, 7])
    asked: list[tuple[str, ...]] = []

    def groups_of(fields: Any) -> Any:
        asked.append(tuple(fields))
        return groups

    assert losses.spoiled(starts, starts + 100, groups_of).tolist() == [True, False, False, True, False]
    assert asked == [("k",)]
    assert losses.spoiled(starts, starts + 100).tolist() == [True, True, True, True, False]
    again = ArcLosses(100, True, [], ("k",))
    again.restore(losses.snapshot())
    assert again.snapshot() == losses.snapshot()
    again.forget(400)
    assert again.spoiled(starts, starts + 100, groups_of).tolist() == [False, False, False, True, False]


def test_however_many_cells_there_are_no_window_of_a_key_is_missed() -> None:
    random = np.random.default_rng(3)
    losses = KeyedLosses(10)
    times, groups = random.integers(0, 200_000, 5_000), random.integers(0, 4, 5_000)
    for at in range(0, 5_000, 100):
        losses.add(times[at : at + 100], groups[at : at + 100])
    starts = np.repeat(np.arange(0, 200_000, 100), 4)
    asked = np.tile(np.arange(4), 2_000)
    missing = np.zeros((2_000, 4), np.bool_)
    missing[times // 100, groups] = True
    assert not (missing.reshape(-1) & ~losses.spoiled(starts, starts + 100, asked)).any()


STREAM = "s: {schema: {ts: timestamp, k: string, j: int, v: bigint}, time: ts}"
WINDOW = "window: {tumbling: 1s}, select: {n: 'count(*)'}"
CASES = {
    "by its key": (f"b: {{aggregate: s, {WINDOW}, by: [k]}}", ("k",)),
    "no key": (f"b: {{aggregate: s, {WINDOW}}}", ()),
    "behind a filter": (f"f: {{filter: s, where: v > 1}}\n  b: {{aggregate: f, {WINDOW}, by: [k, j]}}", ("j", "k")),
    "by the fields that all have": (
        f"b: {{aggregate: s, {WINDOW}, by: [k, j]}}\n  c: {{aggregate: s, {WINDOW}, by: [k]}}",
        ("k",),
    ),
    "renamed": (f"m: {{map: s, select: {{ts: ts, k: 'k || k'}}}}\n  b: {{aggregate: m, {WINDOW}, by: [k]}}", ()),
    "an approximate one beside it": (
        f"b: {{aggregate: s, {WINDOW}, by: [k]}}\n  c: {{aggregate: s, {WINDOW}, by: [k], approximate: true}}",
        (),
    ),
    "one behind the other": (
        f"b: {{aggregate: s, {WINDOW}, by: [k]}}\n  c: {{aggregate: b, {WINDOW}, by: [k]}}",
        (),
    ),
    "results before the end": (f"b: {{aggregate: s, {WINDOW}, by: [k], emit: update}}", ()),
}


@pytest.mark.parametrize("case", CASES)
def test_where_windows_may_go_key_by_key(case: str) -> None:
    boxes, fields = CASES[case]
    lines = [line.split(":")[0].strip() for line in boxes.splitlines()]
    outputs = "\n  ".join(f"o{i}: {{from: {box}}}" for i, box in enumerate(lines))
    boxes = "u: {filter: s, where: 'v >= 0'}\n  " + boxes.replace(": s,", ": u,")
    network = read_network(f"streams:\n  {STREAM}\nboxes:\n  {boxes}\noutputs:\n  {outputs}\n", {})
    book = LossBook(network, lambda box, port: 1.0, lambda train, names: np.zeros(train.count, np.intp))
    arc = next(a.number for a in network.arcs if a.name == "s->u")
    losses = book.of_arc(arc)
    assert losses is not None
    assert losses.fields == fields
    assert (book.key_groups(arc) is not None) == bool(fields)
