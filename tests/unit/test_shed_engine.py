"""Masks on every kind of arc of a running engine: what one arc drops its sibling keeps, and every tuple is counted."""

from __future__ import annotations

from threading import Event, Thread
from time import sleep
from typing import Any

import pytest

from catalog.describe import find_tap_place
from engine.run.network_file import read_network
from load_shedder.shed_plan import NOTHING_SHED
from scheduler.state import SchedulerSettings
from storage.train import Train
from tests.unit.shed_harness import Shedder, shedder

CHAIN = """
streams: {s: {schema: {n: bigint, v: double?, k: string?}}}
boxes:
  a: {filter: s, where: "n >= 0"}
  b: {map: a, add: {twice: "n * 2"}}
  c: {filter: b, where: "twice >= 0"}
  other: {filter: a, where: "n >= 0"}
outputs:
  straight: {from: s}
  c_out: {from: c}
  also: {from: c}
  other_out: {from: other}
"""
COUNT = 10_000
N: dict[str, list[Any]] = {"n": list(range(COUNT)), "v": [1.0] * COUNT, "k": ["x"] * COUNT}


def numbers(s: Shedder, output: str) -> list[int]:
    return [row[0] for row in s.rows[output]]


EVERYTHING = {"straight", "c_out", "also", "other_out"}
ARCS = {
    "s->straight": {"straight"},
    "s->a": {"c_out", "also", "other_out"},
    "a->b": {"c_out", "also"},
    "b->c": {"c_out", "also"},
    "a->other": {"other_out"},
    "c->c_out": {"c_out"},
    "c->also": {"also"},
}


@pytest.mark.parametrize("unit", ["superbox", "box"])
@pytest.mark.parametrize("arc", ARCS)
@pytest.mark.parametrize("size", [1, 997])
def test_an_arc_loses_its_share_and_its_siblings_nothing(arc: str, size: int, unit: str) -> None:
    feed = {name: column[: 500 * size] for name, column in N.items()} if size == 1 else N
    count = len(feed["n"])
    with shedder(CHAIN, settings=SchedulerSettings(unit=unit)) as s:  # type: ignore[arg-type]
        s.shed({arc: ("random", 0.4)})
        s.feed("s", feed, size)
        s.close()
        gone = s.dropped(arc)
        assert gone.keys() == {"shed"}
        assert gone["shed"] == pytest.approx(0.4 * count, abs=8)
        for output in EVERYTHING:
            lost = gone["shed"] if output in ARCS[arc] else 0
            assert len(set(numbers(s, output))) == count - lost == len(numbers(s, output))
            assert numbers(s, output) == sorted(numbers(s, output))


def test_the_same_tuples_go_in_trains_of_any_size() -> None:
    found = []
    for size in (1, 100, 1_000):
        with shedder(CHAIN, workers=1) as s:
            s.shed({"s->straight": ("random", 0.3)})
            s.feed("s", {name: column[:1_000] for name, column in N.items()}, size)
            s.close()
            found.append(numbers(s, "straight"))
    assert found[0] == found[1] == found[2]


@pytest.mark.parametrize(("share", "left"), [(0.0, COUNT), (1.0, 0)])
def test_nothing_and_everything(share: float, left: int) -> None:
    with shedder(CHAIN) as s:
        s.shed(dict.fromkeys(ARCS, ("random", share)))
        s.feed("s", N)
        s.close()
        assert [len(s.rows[o]) for o in sorted(EVERYTHING)] == [left] * 4


def test_without_a_plan_the_chain_is_fused_again_and_nothing_more_is_dropped() -> None:
    with shedder(CHAIN, workers=1) as s:
        boxes = tuple(s.network.box(name).number for name in ("b", "c"))
        whole = [type(step).__name__ for step in s.engine.pool.executable(boxes).steps]
        s.shed({"b->c": ("random", 0.5)})
        s.feed("s", N)
        assert s.engine.drain(10)
        assert [type(step).__name__ for step in s.engine.pool.executable(boxes).steps] == ["SingleStep"] * 2
        executable = s.engine.pool.executable(boxes)
        s.shed({"b->c": ("random", 0.1)})
        assert s.engine.pool.executable(boxes) is executable, "only a share moved"
        s.engine.shed(NOTHING_SHED)
        assert [type(step).__name__ for step in s.engine.pool.executable(boxes).steps] == whole == ["FusedStep"]
        before = s.dropped("b->c")
        s.feed("s", N)
        s.close()
        assert s.dropped("b->c") == before


def test_plans_that_come_and_go_all_the_time_lose_no_tuple_uncounted() -> None:
    """A hundred times as often as the monitor would."""
    with shedder(CHAIN, workers=2) as s:
        ended = Event()

        def flip() -> None:
            at = 0
            while not ended.is_set():
                arcs = [a for i, a in enumerate(ARCS) if (at >> i) & 1]
                s.shed(dict.fromkeys(arcs, ("random", at % 11 / 10)))
                at += 37
                sleep(0.001)

        thread = Thread(target=flip)
        thread.start()
        for _ in range(20):
            s.feed("s", N, 313)
        ended.set()
        thread.join()
        s.close()
        gone = {arc: sum(s.dropped(arc).values()) for arc in ARCS}
        total = 20 * COUNT
        assert len(s.rows["straight"]) == total - gone["s->straight"]
        assert len(s.rows["other_out"]) == total - gone["s->a"] - gone["a->other"]
        through = total - gone["s->a"] - gone["a->b"] - gone["b->c"]
        assert len(s.rows["c_out"]) == through - gone["c->c_out"]
        assert len(s.rows["also"]) == through - gone["c->also"]
        assert sum(gone.values()) > 0


def test_who_watches_an_arc_sees_what_is_put_on_it() -> None:
    with shedder(CHAIN, workers=1) as s:
        seen = {"b->c": 0, "a->b": 0}

        def watch(name: str) -> Any:
            def count(train: Train) -> None:
                seen[name] += train.count

            return count

        for name in seen:
            place = find_tap_place(s.network, name)
            assert place is not None
            s.engine.taps.register(place, watch(name))
        s.shed({"b->c": ("random", 0.5)})
        s.feed("s", N)
        s.close()
        assert seen == {"a->b": COUNT, "b->c": COUNT - s.dropped("b->c")["shed"]}


# -- by value --------------------------------------------------------------------------------------------

VALUED = """
streams: {{s: {{schema: {{n: bigint, v: double?, k: string?}}}}}}
boxes: {{m: {{map: s, {map}}}}}
outputs:
  one: {{from: m, qos: {{{one}}}}}
  two: {{from: m, qos: {{{two}}}}}
"""
PASS = "add: {w: 'v + 1'}"


def semantic(one: str, two: str = "lossy: 10%", fields: str = PASS, share: float = 0.5, **feed: Any) -> Shedder:
    with shedder(VALUED.format(map=fields, one=one, two=two), workers=1) as s:
        s.shed({"s->m": ("semantic", share)})
        s.feed("s", N | feed, 100)
        s.close()
    return s


def test_what_is_not_preferred_goes_first() -> None:
    s = semantic("prefer: 'v >= 3'", v=[float(i % 10) for i in range(COUNT)], share=0.3)
    assert s.dropped("s->m") == {"semantic": pytest.approx(0.3 * COUNT, abs=30)}
    assert sum(row[1] >= 3 for row in s.rows["one"]) > 0.69 * COUNT


def test_null_and_nan_are_worth_nothing() -> None:
    values = [None if i % 10 == 0 else float("nan") if i % 10 == 1 else 50.0 for i in range(COUNT)]
    s = semantic("value: {v: [[0, 0], [100, 1]]}", v=values, share=0.2)
    left = [row[1] for row in s.rows["one"]]
    assert sum(v == 50.0 for v in left) > 0.79 * COUNT


def test_a_preference_about_strings() -> None:
    s = semantic(
        "prefer: \"k like 'hot%'\"", k=[None if i % 5 == 0 else f"hot{i % 7}" for i in range(COUNT)], share=0.2
    )
    assert sum(row[2] is not None for row in s.rows["one"]) > 0.79 * COUNT


def test_of_several_outputs_the_utilities_are_added() -> None:
    values = [float(i % 3) for i in range(COUNT)]  # 0: nobody's, 1: one's, 2: both's
    s = semantic("prefer: 'v >= 1'", "prefer: 'v >= 2'", v=values, share=0.5)
    left = [sum(row[1] == v for row in s.rows["one"]) for v in (0.0, 1.0, 2.0)]
    assert left[0] < 100
    assert left[1] == pytest.approx(COUNT / 6, rel=0.1)
    assert left[2] > COUNT / 3 - 50


def test_a_field_that_means_something_else_behind_the_box_is_not_judged_before_it() -> None:
    s = semantic("prefer: 'v >= 3'", fields="select: {n: n, v: '10 - v'}", v=[float(i % 10) for i in range(COUNT)])
    assert s.dropped("s->m").keys() == {"shed"}
    arcs = {a.name: a.number for a in s.network.arcs}
    assert s.engine.shedding.valuations.semantic_arcs == {arcs["m->one"]}


# -- arcs into joins -------------------------------------------------------------------------------------


def test_an_inner_join_gives_a_part_of_its_pairs() -> None:
    text = """
    streams:
      l: {schema: {ts: timestamp, n: bigint}, time: ts}
      r: {schema: {ts: timestamp, n: bigint}, time: ts}
    boxes: {j: {join: [l, r], on: "l.n = r.n", within: 1s}}
    outputs: {out: {from: j}}
    """
    columns = {"ts": [i * 1_000_000 for i in range(COUNT)], "n": list(range(COUNT))}
    with shedder(text) as s:
        s.shed({"l->j.0": ("random", 0.5), "r->j.1": ("random", 0.2)})
        for start in range(0, COUNT, 500):
            part = {k: v[start : start + 500] for k, v in columns.items()}
            s.feed("l", part, 100, "ts")
            s.feed("r", part, 100, "ts")
        s.close()
        assert s.dropped("l->j.0")["shed"] == pytest.approx(COUNT / 2, abs=8)
        assert len(s.rows["out"]) == pytest.approx(0.4 * COUNT, rel=0.1)
        assert all(row[1] == row[3] for row in s.rows["out"])


def test_a_value_that_is_seen_only_after_the_last_box_is_a_warning_with_its_place() -> None:
    text = (
        "streams: {{s: {{schema: {{n: bigint, v: double}}, overload: {overload}}}}}\nboxes: {{m: {{map: s, {map}}}}}\n"
    )
    text += "outputs:\n  one: {{from: m, qos: {{lossy: 50%, prefer: 'v >= 3'}}}}\n"

    def warned(overload: str, fields: str) -> list[tuple[str, int]]:
        network = read_network(text.format(overload=overload, map=fields), {})
        return [(w.place, w.line) for w in network.warnings if "at random" in w.message]

    assert warned("shed", "select: {v: '10 - v'}") == [("outputs.one.qos.prefer", 4)]
    assert warned("shed", "add: {w: '10 - v'}") == []
    assert warned("block", "select: {v: '10 - v'}") == []
