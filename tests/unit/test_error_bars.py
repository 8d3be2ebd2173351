"""Confidence intervals of approximate aggregates: coverage against the truth, which plain Python computes."""

from __future__ import annotations

from collections import defaultdict
from random import Random

import numpy as np
import pytest

from catalog.errors import NetworkError
from engine.operators.windows.error_bars import count_bounds, mean_bounds, quantile_of, student
from engine.run.network_file import read_network
from tests.unit.shed_harness import SECOND, shedder

NET = """
streams: {s: {schema: {ts: timestamp, k: int, v: double, w: double?}, time: ts, overload: shed}}
boxes:
  %s
  a: {aggregate: %s, window: {tumbling: 1s}, by: [k], bounds: [window_start], approximate: {confidence: 95%%},
      select: {n: count(*), filled: count(w), total: sum(v), mean: avg(v), top: max(v), twice: 2 * sum(v)}}
outputs: {out: {from: a, qos: {lossy: 50%%}}}
"""
DIRECT, FILTERED = ("", "s"), ("f: {filter: s, where: v > 20}", "f")


def rows_of(windows: int, each: int, seed: int) -> dict[str, list[object]]:
    random = Random(seed)
    found: dict[str, list[object]] = {"ts": [], "k": [], "v": [], "w": []}
    for i in range(windows * each):
        found["ts"].append(i * SECOND // each)
        found["k"].append(random.choice((0, 0, 0, 1, 1, 2)))
        found["v"].append(random.uniform(0, 100))
        found["w"].append(None if random.random() < 0.3 else random.uniform(0, 1))
    return found


def truth(columns: dict[str, list[object]], least: float) -> dict[tuple[int, int], tuple[float, ...]]:
    groups: dict[tuple[int, int], list[tuple[float, bool]]] = defaultdict(list)
    for ts, k, v, w in zip(*columns.values(), strict=True):
        if v > least:  # type: ignore[operator]
            groups[(ts // SECOND, k)].append((v, w is not None))  # type: ignore[operator,index,arg-type]
    return {
        key: (len(g), sum(w for _, w in g), sum(v for v, _ in g), sum(v for v, _ in g) / len(g))
        for key, g in groups.items()
    }


@pytest.mark.parametrize(("boxes", "least"), [(DIRECT, -1.0), (FILTERED, 20.0)], ids=["direct", "behind_a_filter"])
@pytest.mark.parametrize("share", [0.3, 0.85])
def test_intervals_hold_the_truth_in_94_of_100_windows(boxes: tuple[str, str], least: float, share: float) -> None:
    columns = rows_of(150, 400, seed=7)
    with shedder(NET % boxes) as engine:
        engine.shed({f"s->{'a' if boxes is DIRECT else 'f'}": ("random", share)})
        engine.feed("s", columns, watermark="ts")
        engine.close()
        names = engine.network.outputs[0].schema.names
        results = [dict(zip(names, row, strict=True)) for row in engine.rows["out"]]
    expected = truth(columns, least)
    assert len(results) > 400 and {r["share_seen"] < 1 for r in results} == {True}
    for at, name in enumerate(("n", "filled", "total", "mean")):
        held = [
            r[f"{name}_low"] - 1e-9 <= expected[r["window_start"] // SECOND, r["k"]][at] <= r[f"{name}_high"] + 1e-9
            for r in results
            if r[f"{name}_low"] is not None
        ]
        assert np.mean(held) >= 0.94, f"{name}: {np.mean(held):.3f} of {len(held)}"
        assert len(held) > 0.95 * len(results)


def test_without_drops_low_and_high_are_the_value() -> None:
    with shedder(NET % DIRECT) as engine:
        engine.feed("s", rows_of(3, 50, seed=1), watermark="ts")
        engine.close()
        names = engine.network.outputs[0].schema.names
        results = [dict(zip(names, row, strict=True)) for row in engine.rows["out"]]
    assert results
    for r in results:
        for name in ("n", "filled", "total", "mean"):
            assert r[f"{name}_low"] == pytest.approx(r[name]) == pytest.approx(r[f"{name}_high"])


def test_only_plain_counts_sums_and_means_have_an_interval() -> None:
    names = read_network(NET % DIRECT, {}).outputs[0].schema.names
    assert [n for n in names if n.endswith("_low")] == ["n_low", "filled_low", "total_low", "mean_low"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("{confidence: 95%%}", "{confidence: 100%%}"), "below 100%"),
        (("{n: count(*)", "{n_low: max(v), n: count(*)"), "n_low: rename yours"),
        (("{n: count(*), filled: count(w), total: sum(v), mean: avg(v), ", "{"), "none has an interval"),
    ],
)
def test_what_cannot_be_is_refused_by_name(change: tuple[str, str], message: str) -> None:
    with pytest.raises(NetworkError, match=message):
        read_network(NET.replace(*change).replace(", twice: 2 * sum(v)", "") % DIRECT, {})


def test_the_bounds_by_known_values() -> None:
    z = quantile_of(0.95)
    assert z == pytest.approx(1.959964, abs=1e-6)
    assert student(z, np.array([11.0]))[0] == pytest.approx(2.228, abs=0.002)  # from a table: 10 degrees of freedom
    low, high = count_bounds(np.array([50.0]), np.array([0.5]), z)
    assert low[0] < 100 < high[0] and high[0] - low[0] == pytest.approx(2 * z * np.sqrt(50 * 0.5) / 0.5, rel=0.1)
    low, high = mean_bounds(np.array([30.0]), np.array([5.0]), np.array([29.0]), np.array([0.01]), z)
    assert (high - low)[0] / 2 == pytest.approx(2.045 * np.sqrt(0.99 / 30), rel=0.01)
