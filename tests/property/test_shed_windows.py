"""Aggregates under shedding, against an oracle over the full input: every window that comes out is exact, or says which
share it saw and is right about it. Plans come and go while tuples flow, in any order and of any share."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Any

import numpy as np
import pytest

from load_shedder.shed_plan import NOTHING_SHED
from storage.train import Train
from tests.unit.shed_harness import Shedder, shedder

MS = 10**6
SEEDS = range(6)

STREAM = "s: {schema: {ts: timestamp, k: string, v: bigint}, time: ts}"
SELECT = "select: {n: 'count(*)', total: 'sum(v)'}, bounds: [window_start, window_end]"

WINDOWS = {
    "tumbling": ("{tumbling: 100ms}", 100, 100, 0),
    "offset": ("{tumbling: 100ms, offset: 30ms}", 100, 100, 30),
    "sliding": ("{sliding: 200ms, advance: 50ms}", 200, 50, 0),
    "uneven": ("{sliding: 100ms, advance: 30ms, offset: 10ms}", 100, 30, 10),
}


class Input:
    """Tuples nearly in order, and the answer over all of them."""

    def __init__(self, seed: int, count: int = 20_000) -> None:
        random = np.random.default_rng(seed)
        times = np.sort(random.integers(0, 8_000 * MS, count)) + random.integers(0, 20 * MS, count)
        self.columns: dict[str, Any] = {
            "ts": times.tolist(),
            "k": random.choice(["a", "b", "c"], count).tolist(),
            "v": random.integers(-100, 100, count).tolist(),
        }

    def answer(self, size: int, advance: int, offset: int, keep: Any = lambda v: True) -> dict[Any, tuple[int, int]]:
        """By plain Python: count and sum of each key and window."""
        found: dict[Any, list[int]] = defaultdict(lambda: [0, 0])
        rows = zip(*self.columns.values(), strict=True)
        for ts, k, v in rows:
            if not keep(v):
                continue
            last = (ts - offset * MS) // (advance * MS)
            start = last * advance * MS + offset * MS
            while start + size * MS > ts:
                found[k, start][0] += 1
                found[k, start][1] += v
                start -= advance * MS
        return {key: (n, total) for key, (n, total) in found.items()}


def feed_under_plans(s: Shedder, given: Input, seed: int, arcs: list[str], manner: Any, span_ns: int) -> None:
    """A random plan, or none, before each few trains; the watermark follows 20 ms behind."""
    random = np.random.default_rng(seed + 1_000)
    at, count = 0, len(given.columns["ts"])
    high = 0
    while at < count:
        if random.random() < 0.2:
            assert s.engine.drain(20)  # else the boxes may be far behind, and see few of the plans
        if random.random() < 0.15 * min(
            1.0, 100 * MS / max(1, span_ns)
        ):  # a span that never sees a whole plan drops nothing
            s.engine.shed(NOTHING_SHED)
        elif random.random() < 0.5:
            s.shed(
                {arc: (manner, float(random.choice([0.1, 0.5, 0.9, 1.0, random.random()]))) for arc in arcs}, span_ns
            )
        size = int(random.choice([1, 10, 300]))
        part = {k: v[at : at + size] for k, v in given.columns.items()}
        high = max(high, *part["ts"])
        stream = s.network.streams[0]
        train = Train.from_pylists(stream.schema, part, 1).with_watermark(high - 20 * MS)
        assert s.engine.ingress.admit(stream.number, train, timeout_s=20)
        at += size
        if random.random() < 0.05:
            s.engine.refresh_losses()
    s.close()


def by_window(rows: list[tuple[Any, ...]]) -> dict[Any, tuple[int, int]]:
    assert max(Counter((row[0], row[1]) for row in rows).values(), default=1) == 1, "a window came out twice"
    return {(row[0], row[1]): (row[3], row[4]) for row in rows}


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize("manner", ["windows", "random"])
def test_every_window_that_comes_out_is_exact(window: str, seed: int, manner: str) -> None:
    """Also under a plan that is wrong to drop at random there: then hardly any window comes out, but none is wrong."""
    text, size, advance, offset = WINDOWS[window]
    network = f"""
    streams: {{{STREAM}}}
    boxes:
      f: {{filter: s, where: "v >= -90"}}
      agg: {{aggregate: f, window: {text}, by: [k], {SELECT}}}
    outputs: {{out: {{from: agg}}}}
    """
    given = Input(seed)
    with shedder(network, workers=1 + seed % 2) as s:
        span = s.network.box("agg").box.under_loss()
        feed_under_plans(s, given, seed, ["s->f"] if seed % 2 else ["s->f", "f->agg"], manner, int(span))
        truth, found = given.answer(size, advance, offset, lambda v: v >= -90), by_window(s.rows["out"])
        assert {key: truth[key] for key in found} == found
        assert sum(sum(s.dropped(a).values()) for a in ("s->f", "f->agg")) > 0
        assert len(found) < len(truth)
        if manner == "windows":
            assert len(found) > 0.1 * len(truth)
            withheld = s.engine.shedding.book.boxes[s.network.box("agg").number].withheld
            assert withheld <= len(truth) - len(found)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("window", WINDOWS)
def test_the_share_that_a_window_saw_is_exact(window: str, seed: int) -> None:
    text, size, advance, offset = WINDOWS[window]
    network = f"""
    streams: {{{STREAM}}}
    boxes:
      m: {{map: s, add: {{w: "v + 1"}}}}
      agg: {{aggregate: m, window: {text}, by: [k], approximate: true, {SELECT}}}
    outputs: {{out: {{from: agg}}}}
    """
    given = Input(seed)
    with shedder(network, workers=1 + seed % 2) as s:
        assert s.network.box("agg").box.under_loss() == "approximate"
        feed_under_plans(s, given, seed, [["s->m"], ["m->agg"], ["s->m", "m->agg"]][seed % 3], "random", 0)
        truth = given.answer(size, advance, offset)
        all_of: Counter[int] = Counter()
        seen: Counter[int] = Counter()
        for (_, start), (n, _) in truth.items():
            all_of[start] += n
        for row in s.rows["out"]:
            seen[row[1]] += row[3]
        shares = {row[1]: row[5] for row in s.rows["out"]}
        assert shares == {start: pytest.approx(seen[start] / all_of[start]) for start in seen}
        assert min(shares.values()) < 0.9


@pytest.mark.parametrize("seed", SEEDS)
def test_behind_a_filter_the_share_is_that_of_where_it_was_dropped(seed: int) -> None:
    network = f"""
    streams: {{{STREAM}}}
    boxes:
      f: {{filter: s, where: "v >= 0"}}
      agg: {{aggregate: f, window: {{tumbling: 100ms}}, by: [k], approximate: true, {SELECT}}}
    outputs: {{out: {{from: agg}}}}
    """
    given = Input(seed)
    with shedder(network, workers=1) as s:
        s.shed({"s->f": ("random", 0.5)})
        s.feed("s", {k: v[:1_000] for k, v in given.columns.items()}, 100)
        s.feed("s", {k: v[1_000:] for k, v in given.columns.items()}, 100)
        s.close()
        truth = given.answer(100, 100, 0, lambda v: v >= 0)
        estimate = sum(row[3] / row[5] for row in s.rows["out"])
        assert estimate == pytest.approx(sum(n for n, _ in truth.values()), rel=0.03)


@pytest.mark.parametrize("seed", SEEDS)
def test_windows_of_windows_and_several_readers_of_one_arc(seed: int) -> None:
    """The second aggregate reads the first one's results: it must not take windows for whole that lack some of them."""
    network = f"""
    streams: {{{STREAM}}}
    boxes:
      fine: {{aggregate: s, window: {{sliding: 60ms, advance: 20ms}}, by: [k], select: {{n: "count(*)"}}}}
      coarse: {{aggregate: fine, window: {{tumbling: 200ms, offset: 50ms}}, by: [k],
               select: {{total: "sum(n)", rows: "count(*)"}}, bounds: [window_start]}}
      best: {{top: s, n: 1, of: v, by: [k], window: {{tumbling: 100ms}}}}
    outputs: {{out: {{from: coarse}}, best_out: {{from: best}}}}
    """
    given = Input(seed)
    results: list[dict[str, set[Any]]] = []
    for drops in (False, True):
        with shedder(network, workers=1) as s:
            if drops:
                feed_under_plans(s, given, seed, ["s->fine", "s->best"], "windows", 200 * MS)
                assert sum(s.dropped("s->fine").values()) > 0
            else:
                feed_under_plans(s, given, seed, [], "windows", 0)
            results.append({name: {row[:4] for row in rows} for name, rows in s.rows.items()})
    whole, shed = results
    for name in ("out", "best_out"):
        assert shed[name] <= whole[name], name
        assert 0 < len(shed[name]) < len(whole[name])


@pytest.mark.parametrize("seed", SEEDS)
def test_sessions_near_a_missing_tuple_do_not_come_out(seed: int) -> None:
    network = f"""
    streams: {{{STREAM}}}
    boxes: {{agg: {{aggregate: s, window: {{session: 3ms}}, by: [k], {SELECT}}}}}
    outputs: {{out: {{from: agg}}}}
    """
    given = Input(seed, 4_000)
    found = []
    for share in (0.0, 0.02):
        with shedder(network, workers=1) as s:
            s.shed({"s->agg": ("random", share)})
            s.feed("s", given.columns, 100)
            s.close()
            found.append(set(s.rows["out"]))
    assert found[1] < found[0]
    assert len(found[1]) > 0.5 * len(found[0])
