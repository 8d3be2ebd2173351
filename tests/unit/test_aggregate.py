"""The aggregate box, one promise at a time."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from catalog.errors import BindError
from catalog.schema import Schema
from engine.operators.boxes.aggregate import Aggregate
from engine.operators.boxes.base import LOST_TIME, Tally
from engine.operators.windows import windows
from storage.train import NO_WATERMARK, Train

SCHEMA = Schema.of(ts="timestamp", k="string?", v="double?", n="bigint?")
SECOND = 10**9


class Bench:
    """One box, driven by hand."""

    def __init__(self, schema: Schema = SCHEMA, time: str | None = "ts", **parameters: Any) -> None:
        parameters = {"bounds": []} | parameters
        self.box = Aggregate(Aggregate.parameters_model.model_validate(parameters))
        self.input = schema
        self.schema, self.late_schema = self.box.bind((schema,), (time,))
        self.state: Any = self.box.new_state()
        self.tally = Tally()
        self.out: list[Train] = []
        self.late: list[Train] = []

    def emit(self, port: int, train: Train) -> None:
        train.verify()
        (self.late if port else self.out).append(train)

    def feed(self, arrival_ns: int | list[int] = 0, **columns: list[Any]) -> None:
        count = len(next(iter(columns.values())))
        data = {f.name: columns.get(f.name, [None] * count) for f in self.input}
        self.box.run(self.state, 0, Train.from_pylists(self.input, data, arrival_ns), self.emit, self.tally)

    def advance(self, watermark_ns: int) -> None:
        self.box.advance(self.state, watermark_ns, self.emit, self.tally)

    def tick(self, now_ns: int) -> None:
        self.box.tick(self.state, now_ns, self.emit, self.tally)

    def rows(self) -> list[tuple[Any, ...]]:
        rows = [row for train in self.out for row in train.to_rows()]
        self.out.clear()
        return rows


def bench(select: dict[str, str], window: str = "10ns", **more: Any) -> Bench:
    return Bench(**({"window": {"tumbling": window}, "select": select} | more))


# -- results -----------------------------------------------------------------------------------------------------------


def test_a_window_comes_out_when_the_watermark_reaches_its_end_and_not_before() -> None:
    b = bench({"n": "count(*)"})
    b.feed(ts=[1, 9])
    b.advance(9)
    assert b.rows() == []
    b.advance(10)
    assert b.rows() == [(2,)]


def test_the_bounds_and_the_event_time_of_a_result() -> None:
    b = bench({"n": "count(*)"}, window="10ns", by=["k"], bounds=["window_start", "window_end", "window_time"])
    assert b.schema.names == ("k", "window_start", "window_end", "window_time", "n")
    assert b.box.time_out(("ts",)) == ("window_time", "ts")
    b.feed(ts=[-3], k=["a"])
    b.advance(0)
    assert b.rows() == [("a", -10, 0, -1, 1)]


def test_select_may_take_the_bounds_by_another_name_and_compute_with_the_keys() -> None:
    b = bench({"at": "window_time", "key": "upper(k)", "width": "count(*) * 2"}, by=["k"])
    assert b.box.time_out(("ts",)) == ("at", "ts")
    b.feed(ts=[3], k=["a"])
    b.advance(50)
    assert b.rows() == [("a", 9, "A", 2)]


def test_without_window_time_there_is_no_event_time_downstream() -> None:
    assert bench({"n": "count(*)"}).box.time_out(("ts",)) == (LOST_TIME, "ts")


def test_a_result_arrived_with_the_newest_tuple_in_it() -> None:
    b = bench({"n": "count(*)"}, by=["k"])
    b.feed(arrival_ns=[5, 9, 7], ts=[1, 2, 3], k=["a", "b", "a"])
    b.feed(arrival_ns=6, ts=[1], k=["b"])
    b.advance(10)
    [train] = b.out
    assert dict(zip(train.to_pylist(0), train.arrival_ns.tolist(), strict=True)) == {"a": 7, "b": 9}


def test_without_a_time_field_the_arrival_decides() -> None:
    b = Bench(time=None, window={"tumbling": "10ns"}, select={"n": "count(*)"}, bounds=["window_start"])
    b.feed(arrival_ns=[3, 12, 15], ts=[100, 100, 100])
    b.advance(20)
    assert b.rows() == [(0, 1), (10, 2)]


def test_having_knows_aggregates_keys_and_results() -> None:
    b = bench({"n": "count(*)"}, by=["k"], having="n > 1 and max(v) < 5 and k <> 'c'")
    b.feed(ts=[1] * 7, k=["a", "b", "b", "c", "c", "d", "d"], v=[1.0, 1.0, 2.0, 1.0, 1.0, 9.0, 1.0])
    b.advance(10)
    assert b.rows() == [("b", 2)]


def test_the_sum_of_integers_is_null_where_it_does_not_fit_and_that_is_counted() -> None:
    b = bench({"total": "sum(n)", "mean": "avg(n)"}, by=["k"])
    big = 2**62
    b.feed(ts=[1] * 6, k=["a", "a", "b", "b", "b", "c"], n=[big, big, big, big, -1, -(2**63)])
    b.advance(10)
    assert sorted(b.rows()) == [
        ("a", None, float(big)),
        ("b", 2**63 - 1, (2 * big - 1) / 3),
        ("c", -(2**63), -float(2**63)),
    ]
    assert b.tally.null_errors == 1


def test_deviations_keep_their_digits_far_from_zero() -> None:
    b = bench({"s": "stddev(v)"})
    values = [1e9 + x for x in (4.0, 7.0, 13.0, 16.0)]
    for value in values:
        b.feed(ts=[1], v=[value])
    b.advance(10)
    assert b.rows()[0][0] == pytest.approx(30**0.5, rel=1e-12)


def test_lists_are_written_as_a_cast_writes() -> None:
    schema = Schema.of(ts="timestamp", d="double", t="boolean", f="float")
    b = Bench(
        schema,
        window={"tumbling": "1h"},
        select={"d": "string_agg(d, ';')", "t": "string_agg(t, '')", "at": "concat_ws(',', collect_list(ts))"},
    )
    b.feed(ts=[0, 1_500_000_000], d=[1e10, 0.5], t=[True, False], f=[1.0, 2.0])
    b.advance(3_600 * SECOND)
    assert b.rows() == [("1.0E10;0.5", "truefalse", "1970-01-01 00:00:00,1970-01-01 00:00:01.5")]


@pytest.mark.parametrize("kind", ["string", "bigint", "double"])
def test_approximate_distinct_counts_stay_within_their_error(kind: str) -> None:
    """Three standard errors of 4.6 %, at every size from exact to large; the same in any number of trains."""
    schema = Schema.of(ts="timestamp", x=kind)
    for count in (0, 1, 7, 300, 1_500, 40_000):
        b = Bench(schema, window={"tumbling": "10ns"}, select={"d": "approx_count_distinct(x)", "n": "count(*)"})
        values: list[Any] = [f"v{i}" for i in range(count)] if kind == "string" else [i * 7 for i in range(count)]
        for part in (values, values[: count // 2]):
            if part:
                b.feed(ts=[1] * len(part), x=part)
        b.advance(10)
        for estimate, _ in b.rows():
            assert estimate == pytest.approx(count, rel=3 * 0.046, abs=1)


def test_of_equal_times_the_first_and_the_last_to_arrive_count_in_any_number_of_trains() -> None:
    b = bench({"one": "first(n)", "other": "last(n)", "all": "string_agg(n, ' ')"}, by=["k"])
    numbers = list(range(1_000))
    for part in (numbers[:500], numbers[500:501], numbers[501:]):
        b.feed(ts=[5] * len(part), k=["even" if n % 2 == 0 else "odd" for n in part], n=part)
    b.advance(10)
    even, odd = " ".join(map(str, numbers[::2])), " ".join(map(str, numbers[1::2]))
    assert sorted(b.rows()) == [("even", 0, 998, even), ("odd", 1, 999, odd)]


# -- late, dead --------------------------------------------------------------------------------------------------------


def test_late_tuples_leave_by_their_own_port_as_they_came() -> None:
    b = bench({"n": "count(*)"})
    b.advance(25)
    b.feed(ts=[19, 20, 3], k=["x", "y", None])
    assert b.late_schema == SCHEMA
    [train] = b.late
    assert train.to_rows() == [(19, "x", None, None), (3, None, None, None)]
    assert train.watermark_ns == NO_WATERMARK
    assert (b.tally.late, b.tally.absorbed) == (2, 1)


def test_a_tuple_late_for_some_of_its_windows_counts_in_the_others() -> None:
    b = Bench(window={"sliding": "20ns", "advance": "10ns"}, select={"n": "count(*)"}, bounds=["window_start"])
    b.advance(20)  # [0, 20) is closed
    b.feed(ts=[15])
    b.advance(100)
    assert b.rows() == [(10, 1)]


def test_a_session_is_closed_for_a_tuple_when_the_watermark_is_a_gap_ahead_of_it() -> None:
    b = Bench(window={"session": "10ns"}, select={"n": "count(*)"}, bounds=["window_start", "window_end"])
    b.advance(100)
    b.feed(ts=[90, 91])
    assert b.tally.late == 1
    b.advance(101)
    assert b.rows() == [(91, 101, 1)]


def test_times_that_no_window_reaches_are_dead() -> None:
    b = bench({"n": "count(*)"}, window="1h")
    b.feed(ts=[2**63 - 1, 0, -(2**63)])
    assert (b.tally.dead, b.tally.absorbed) == (2, 1)


# -- real time ---------------------------------------------------------------------------------------------------------


def test_a_quiet_window_comes_out_after_its_timeout_and_its_stragglers_are_late() -> None:
    b = bench({"n": "count(*)"}, timeout="5s", bounds=["window_start"])
    assert b.box.needs_clock
    b.feed(ts=[1, 11])
    b.tick(0)
    b.feed(ts=[12])
    b.tick(4 * SECOND)
    b.tick(5 * SECOND - 1)
    assert b.rows() == []
    b.tick(5 * SECOND)  # the first window had its last tuple before the first tick
    assert b.rows() == [(0, 1)]
    b.feed(ts=[5])
    assert b.tally.late == 1
    b.tick(9 * SECOND)
    assert b.rows() == [(10, 2)]


def test_a_quiet_session_comes_out_and_one_that_goes_on_does_not() -> None:
    b = Bench(window={"session": "10ns"}, by=["k"], select={"n": "count(*)"}, timeout="5s")
    b.feed(ts=[3, 8], k=["a", "b"])
    b.tick(0)
    b.feed(ts=[17], k=["b"])
    b.tick(5 * SECOND)
    assert b.rows() == [("a", 1)]
    b.tick(10 * SECOND)
    assert b.rows() == [("b", 2)]


def test_a_quiet_key_of_a_window_by_count_comes_out_unfinished_and_is_forgotten() -> None:
    b = Bench(window={"count": 3, "advance": 2}, by=["k"], select={"n": "count(*)"}, timeout="5s")
    b.feed(ts=[1, 2, 3, 4, 5], k=["a", "a", "a", "a", "b"])
    assert b.rows() == [("a", 3)]
    b.tick(0)
    b.feed(ts=[6], k=["b"])
    b.tick(5 * SECOND)
    assert b.rows() == [("a", 2)]
    b.feed(ts=[7, 8], k=["a", "b"])
    assert b.rows() == [("b", 3)]
    b.tick(10 * SECOND)
    b.tick(15 * SECOND)
    assert sorted(b.rows()) == [("a", 1), ("b", 1)]
    assert all(groups.live == 0 for groups in b.state.tables())


def test_a_box_without_timeout_asks_for_no_clock() -> None:
    assert not bench({"n": "count(*)"}).box.needs_clock


# -- memory ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["string", "bigint"])
@pytest.mark.parametrize("window", [{"session": "1s"}, {"tumbling": "1s"}, {"sliding": "4s", "advance": "1s"}])
def test_keys_leave_nothing_behind(kind: str, window: dict[str, str]) -> None:
    """100,000 keys, ten thousand a second: the state is as large at the end as after the first windows."""
    b = Bench(
        Schema.of(ts="timestamp", k=kind), window=window, by=["k"], select={"n": "count(*)", "d": "count(distinct ts)"}
    )
    sizes: list[int] = []
    for second in range(10):
        keys: list[Any] = list(range(second * 10_000, second * 10_000 + 10_000))
        b.feed(ts=[second * SECOND] * len(keys), k=[f"key {n}" for n in keys] if kind == "string" else keys)
        b.advance(second * SECOND)
        b.out.clear()
        sizes.append(b.box.state_nbytes(b.state))
    assert max(sizes[5:]) <= 1.5 * max(sizes[:6])
    b.advance(100 * SECOND)
    b.advance(101 * SECOND)
    assert b.box.state_nbytes(b.state) < 0.1 * max(sizes)
    assert b.state.keys.count <= 1  # NULL's number stays


@pytest.mark.parametrize("by", [["k"], ["n"], ["k", "n"]])
def test_numbers_are_used_again_without_mixing_keys_up(by: list[str]) -> None:
    """Keys come and go over windows; a number that was another key's a moment ago must not bring its values along."""
    b = bench({"total": "sum(v)", "kinds": "count(distinct v)"}, by=by)
    rng = np.random.default_rng(1)
    for window in range(200):
        keys = rng.integers(window, window + 30, 20)
        b.feed(ts=[window * 10] * 20, k=[f"k{i}" for i in keys], n=[int(i) for i in keys], v=[float(i) for i in keys])
        b.advance(window * 10 + 10)
        b.advance(window * 10 + 11)  # forgets the keys of this window
        names = {"k": lambda i: f"k{i}", "n": int}
        want = [(*(names[f](i) for f in by), float(i) * int((keys == i).sum()), 1) for i in set(keys.tolist())]
        assert sorted(b.rows()) == sorted(want)


def test_slots_that_move_together_keep_their_groups() -> None:
    """Few of many groups are left while their window goes on: the table shrinks under it."""
    b = bench({"n": "count(*)"}, by=["k"])
    b.feed(ts=[1] * 5_000, k=[f"k{i}" for i in range(5_000)])
    b.feed(ts=[11] * 3, k=["a", "b", "c"])
    size = b.box.state_nbytes(b.state)
    for watermark_ns in (12, 13):
        b.advance(watermark_ns)
    assert len(b.rows()) == 5_000
    assert b.box.state_nbytes(b.state) < 0.1 * size
    b.feed(ts=[14] * 3, k=["c", "b", "d"])
    b.advance(20)
    assert sorted(b.rows()) == [("a", 1), ("b", 2), ("c", 2), ("d", 1)]


def test_a_window_goes_on_when_the_slots_under_it_move() -> None:
    b = bench({"n": "count(*)"})
    b.feed(ts=list(range(0, 50_000, 10)))
    b.feed(ts=[60_001])
    b.advance(60_000)
    b.advance(60_001)  # of 5,001 groups one is left: it moves
    b.feed(ts=[60_002])
    assert len(b.rows()) == 5_000
    b.advance(60_010)
    assert b.rows() == [(2,)]


def test_keys_that_move_are_still_timed() -> None:
    b = Bench(window={"count": 2}, by=["k"], select={"n": "count(*)"}, timeout="5s")
    many = [f"k{i}" for i in range(5_000)]
    b.feed(ts=[0] * 10_003, k=[*many, "a", "b", "c", *many])
    assert len(b.rows()) == 5_000
    b.advance(1)
    assert b.state.keys.count < 100
    b.tick(0)
    b.tick(5 * SECOND)
    assert sorted(b.rows()) == [("a", 1), ("b", 1), ("c", 1)]


def test_keys_that_move_as_windows_close_are_still_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Windows by count close while tuples come in: the keys of those tuples may get new numbers in the middle of it."""
    monkeypatch.setattr(windows, "_LARGE", 0)
    b = Bench(window={"count": 2}, by=["k"], select={"n": "count(*)"}, timeout="5s")
    many = [f"k{i}" for i in range(5_000)]
    b.feed(ts=[0] * 10_001, k=[*many, *many, "a"])
    assert len(b.rows()) == 5_000
    assert b.state.keys.count < 100
    b.tick(0)
    b.tick(5 * SECOND)
    assert b.rows() == [("a", 1)]


def test_values_kept_for_a_median_go_with_their_windows() -> None:
    b = Bench(window={"sliding": "4s", "advance": "1s"}, select={"m": "median(v)"})
    sizes: list[int] = []
    for second in range(60):
        b.feed(ts=[second * SECOND] * 2_000, v=[float(i) for i in range(2_000)])
        b.advance(second * SECOND)
        sizes.append(b.box.state_nbytes(b.state))
    assert max(sizes) <= 3 * sizes[5]


# -- what is refused ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("parameters", "word"),
    [
        ({"select": {"x": "sum(k)"}}, "sum"),
        ({"select": {"x": "v + 1"}}, "neither inside an aggregate nor grouped by"),
        ({"by": ["nowhere"]}, "no field nowhere"),
        ({"having": "count(*)"}, "boolean"),
        ({"window": {"session": "1s"}, "emit": "update"}, "tumbling and sliding"),
        ({"window": {"sliding": "1h", "advance": "7ns"}}, "million panes"),
        ({"select": {"x": "approx_count_distinct(v, 0.001)"}}, "error between"),
    ],
)
def test_binding_says_what_is_wrong(parameters: dict[str, Any], word: str) -> None:
    with pytest.raises(BindError, match=word):
        Bench(**({"window": {"tumbling": "1s"}, "select": {"n": "count(*)"}} | parameters))


def test_a_lost_event_time_is_refused() -> None:
    with pytest.raises(BindError, match="lost"):
        Bench(time=LOST_TIME, window={"tumbling": "1s"}, select={"n": "count(*)"})


@pytest.mark.parametrize(
    "window",
    [
        {},
        {"tumbling": "1s", "session": "1s"},
        {"sliding": "10s"},
        {"sliding": "1s", "advance": "2s"},
        {"tumbling": "1s", "advance": "1s"},
        {"count": 0},
        {"count": 10, "advance": 11},
        {"session": "1s", "offset": "1s"},
        {"tumbling": 5},
    ],
)
def test_windows_that_mean_nothing_are_refused(window: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="1 validation error"):
        Aggregate.parameters_model.model_validate({"window": window, "select": {"n": "count(*)"}})
