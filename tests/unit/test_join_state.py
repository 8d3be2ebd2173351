"""What a join holds: no more than its bands, whatever the keys; and its answers at a size where chunks merge."""

from __future__ import annotations

from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest

from catalog.schema import Schema, Type
from engine.operators.boxes.base import Tally
from engine.operators.boxes.dedup import Dedup
from engine.operators.boxes.join import Join
from engine.operators.boxes.latest import Latest
from engine.operators.expressions import Vector
from engine.operators.state.keys import key_table
from storage.strings import StringPool
from storage.train import Train, constant_ns
from tests.property.box_harness import END, Driver, bound, train_of

LEFT = Schema.of(ts="timestamp", k="bigint", x="double")
RIGHT = Schema.of(ts="timestamp", k="bigint", y="double")
TEXT = Schema.of(ts="timestamp", k="string")


def numbers(schema: Schema, ts: Any, k: Any, v: Any) -> Train:
    columns = (np.asarray(ts, np.int64), np.asarray(k, np.int64), np.asarray(v, np.float64))
    return Train(schema, columns, constant_ns(0, len(columns[0])))


def ignore(port: int, train: Train) -> None:
    pass


@pytest.mark.parametrize("type", ["inner", "full"])
def test_large_against_duckdb(type: str) -> None:
    random = np.random.default_rng(3)
    count, within = 40_000, 3_000
    sides = []
    for _ in range(2):
        ts = np.sort(random.integers(0, 400_000, count)) + random.integers(-50, 50, count)
        sides.append((ts, random.integers(0, 700, count), random.random(count)))
    box = bound(Join, (LEFT, RIGHT), ("ts", "ts"), on="l.k = r.k", within=f"{within}ns", type=type)
    driver = Driver(box, (LEFT, RIGHT), ("ts", "ts"), restart=17)
    cuts = np.sort(random.integers(0, count, 25))
    peak = 0
    for parts in zip(*(np.split(np.arange(count), cuts) for _ in range(2)), strict=True):
        for port, part in enumerate(parts):
            train = numbers((LEFT, RIGHT)[port], *(column[part] for column in sides[port]))
            newest = int(sides[port][0][: part[-1] + 1].max()) if len(part) else -(2**62)
            driver.feed(port, train.with_watermark(newest - 100))
        peak = max(peak, *(held.store.count for held in driver.state.sides))
    driver.end()
    with duckdb.connect() as db:
        for name, side in zip(("lt", "rt"), sides, strict=True):
            db.register(name, pa.table(dict(zip(("ts", "k", "v"), side, strict=True))))
        sums = "count(*), sum(l.v), sum(r.v), sum(l.v * r.v)"
        on = f"l.k = r.k and abs(l.ts - r.ts) <= {within}"
        total, xs, ys, both = db.execute(f"select {sums} from lt l {type} join rt r on {on}").fetchall()[0]
    got = [np.concatenate([t.columns[i] for t in driver.out[0]]) for i in (2, 5)]
    valid = [
        np.concatenate([np.ones(t.count, bool) if (m := t.null_mask(i)) is None else m for t in driver.out[0]])
        for i in (2, 5)
    ]
    assert len(got[0]) == total
    assert np.isclose(got[0][valid[0]].sum(), xs) and np.isclose(got[1][valid[1]].sum(), ys)
    assert np.isclose((got[0] * got[1])[valid[0] & valid[1]].sum(), both)
    assert peak < count / 2  # rows whose band has passed are gone
    assert all(held.index.live == 0 for held in driver.state.sides)


@pytest.mark.parametrize("within", ["100us", "40us", "3us"])  # all chunks lie in the band, or some, or parts of them
def test_few_keys_in_long_chunks(within: str) -> None:
    """Few keys are searched for in long chunks again and again, keys that no row has, and NULLs."""
    random = np.random.default_rng(5)
    box = bound(Join, (LEFT, RIGHT), ("ts", "ts"), on="l.k = r.k", within=within)
    state, tally = box.new_state(), Tally()
    out: list[Train] = []
    held, asked = [], []
    for block in range(20):
        ts = block * 5_000 + np.sort(random.integers(0, 5_000, 2_000))
        held.append((ts, random.integers(0, 500, 2_000), random.random(2_000)))
        asked.append((ts[::700], np.array([3, 499, 70_000 + block]), np.zeros(3)))
        box.run(state, 0, numbers(LEFT, *held[-1]), ignore, tally)
        box.run(state, 1, numbers(RIGHT, *asked[-1]), lambda port, train: out.append(train), tally)
        if block == 9:
            box.advance(state, int(ts[0]), ignore, tally)
    reach = int(within[:-2]) * 1_000
    expected = []
    for block, (ts, keys, _) in enumerate(asked):
        times, others = (np.concatenate([h[i] for h in held[: block + 1]]) for i in (0, 1))
        for t, key in zip(ts, keys, strict=True):
            expected += times[(others == key) & (abs(times - t) <= reach)].tolist()
    assert sorted(t for train in out for t in train.columns[0].tolist()) == sorted(expected)


def test_keys_that_have_passed_leave_nothing() -> None:
    """200,000 keys, each seen once on each side, and strings at that."""
    schemas = (TEXT, TEXT)
    box = bound(Join, schemas, ("ts", "ts"), on="l.k = r.k", within="1us")
    state, tally = box.new_state(), Tally()
    sizes = []
    for block in range(100):
        pool = StringPool(f"key {block} {i}" for i in range(2_000))
        ts = block * 2_000 + np.arange(2_000)
        train = Train(TEXT, (ts, np.arange(2_000, dtype=np.int32)), constant_ns(0, 2_000), pools=(None, pool))
        box.run(state, 0, train, ignore, tally)
        box.run(state, 1, train, ignore, tally)
        box.advance(state, int(ts[-1]), ignore, tally)
        sizes.append(box.state_nbytes(state))
    assert max(sizes[50:]) <= 1.5 * max(sizes[:50])  # it does not grow with the keys that were
    box.advance(state, END, ignore, tally)
    assert box.state_nbytes(state) < max(sizes)
    assert all(held.index.live == 0 for held in state.sides)
    assert tally.absorbed == 400_000 and tally.late == 0


@pytest.mark.parametrize(("kind", "parameters"), [(Dedup, {"within": "1us"}), (Latest, {"forget": "1us"})])
def test_keyed_boxes_forget(kind: Any, parameters: dict[str, str]) -> None:
    box = bound(kind, (TEXT,), ("ts",), by=["k"], **parameters)
    state, tally = box.new_state(), Tally()
    sizes = []
    for block in range(100):
        pool = StringPool(f"key {block} {i}" for i in range(2_000))
        ts = block * 2_000 + np.arange(2_000)
        train = Train(TEXT, (ts, np.arange(2_000, dtype=np.int32)), constant_ns(0, 2_000), pools=(None, pool))
        box.run(state, 0, train, ignore, tally)
        box.advance(state, int(ts[-1]), ignore, tally)
        sizes.append(box.state_nbytes(state))
    assert max(sizes[50:]) <= 1.5 * max(sizes[:50])
    box.advance(state, END, ignore, tally)
    assert box.state_nbytes(state) < max(sizes) / 4


def test_asof_keeps_one_row_a_key() -> None:
    box = bound(Join, (LEFT, RIGHT), ("ts", "ts"), on="l.k = r.k", asof=True)
    state, tally = box.new_state(), Tally()
    for block in range(200):
        ts = block * 1_000 + np.arange(1_000)
        box.run(state, 1, numbers(RIGHT, ts, np.arange(1_000) % 50, ts), ignore, tally)
        box.advance(state, int(ts[-1]), ignore, tally)
    held = state.sides[1]
    assert held.index.live < 10_000 and held.store.count < 20_000  # of 200,000
    out: list[Train] = []
    box.run(state, 0, numbers(LEFT, [200_500], [7], [1.0]), ignore, tally)
    box.advance(state, 200_501, lambda port, train: out.append(train), tally)
    assert out[0].to_rows() == [(200_500, 7, 1.0, 199_957, 7, 199_957.0)]


def test_late_tuples_are_counted_and_not_joined() -> None:
    box = bound(Join, (LEFT, RIGHT), ("ts", "ts"), on="l.k = r.k", within="10ns", type="full")
    driver = Driver(box, (LEFT, RIGHT), ("ts", "ts"))
    driver.feed(0, train_of(LEFT, [(100, 1, 1.0)], 100))
    driver.feed(1, train_of(RIGHT, [(99, 1, 2.0)], 100))
    driver.feed(1, train_of(RIGHT, [(99, 1, 3.0), (100, 1, 4.0)], 101))
    driver.end()
    assert sorted(r[5] for r in driver.rows()) == [2.0, 4.0]
    assert (driver.tally.late, driver.tally.absorbed) == (1, 3)


def test_a_hot_key_comes_out_in_portions() -> None:
    box = bound(Join, (LEFT, RIGHT), ("ts", "ts"), on="l.k = r.k", within="1ns")
    driver = Driver(box, (LEFT, RIGHT), ("ts", "ts"))
    rows = 400
    driver.feed(0, numbers(LEFT, np.zeros(rows), np.ones(rows), np.arange(rows)))
    driver.feed(1, numbers(RIGHT, np.zeros(rows), np.ones(rows), np.arange(rows)))
    assert sum(t.count for t in driver.out[0]) == rows * rows
    assert max(t.count for t in driver.out[0]) <= 65_536


@pytest.mark.parametrize("edge", [-(2**63), 2**63 - 1])
def test_bands_at_the_ends_of_time_do_not_wrap(edge: int) -> None:
    box = bound(Join, (LEFT, RIGHT), ("ts", "ts"), on="l.k = r.k", within="100ns")
    driver = Driver(box, (LEFT, RIGHT), ("ts", "ts"))
    near = edge + 50 if edge < 0 else edge - 50
    driver.feed(0, numbers(LEFT, [edge], [1], [1.0]))
    driver.feed(1, numbers(RIGHT, [near, -edge - 1, 0], [1, 1, 1], [2.0, 3.0, 4.0]))
    assert [r[5] for r in driver.rows()] == [2.0]


def test_strings_of_many_pools_are_one_string() -> None:
    """Each train has a pool of its own, as after a restart of every sender."""
    box = bound(Join, (TEXT, TEXT), ("ts", "ts"), on="l.k = r.k", within="1s", select={"a": "l.k", "b": "r.k"})
    driver = Driver(box, (TEXT, TEXT), ("ts", "ts"), restart=5)
    for i in range(30):
        driver.feed(i % 2, train_of(TEXT, [(i, f"k{j}") for j in range(i % 7, 7)]))
    rows = driver.rows()
    assert rows and all(a == b for a, b in rows)


def test_asof_keeps_what_a_tuple_at_the_watermark_needs() -> None:
    box = bound(Join, (LEFT, RIGHT), ("ts", "ts"), on="l.k = r.k", asof=True)
    driver = Driver(box, (LEFT, RIGHT), ("ts", "ts"))
    driver.feed(1, train_of(RIGHT, [(10, 1, 1.0), (12, 1, 2.0)], 11))
    driver.feed(0, train_of(LEFT, [(5, 1, 0.0)], 11))
    driver.feed(1, train_of(RIGHT, [(12, 2, 3.0)], 11))  # is merged with the others: what is superseded goes
    driver.feed(0, train_of(LEFT, [(11, 1, 0.0), (12, 1, 0.0)], 12))
    driver.end()
    assert [row[5] for row in driver.rows()] == [1.0, 2.0]


def test_a_key_is_forgotten_exactly_when_it_says() -> None:
    schema = Schema.of(ts="timestamp", k="string", v="int")
    for watermark_ns, expected in ((14, 1), (15, 2)):
        driver = Driver(bound(Latest, (schema,), ("ts",), by=["k"], forget="5ns"), (schema,), ("ts",))
        driver.feed(0, train_of(schema, [(10, "a", 1)], watermark_ns))
        driver.feed(0, train_of(schema, [(15, "a", 1)]))
        assert len(driver.rows()) == expected


def test_every_nan_is_one_key_and_both_zeros() -> None:
    bits = np.array([0x7FF8_0000_0000_0000, 0x7FF8_0000_0000_0001, -0x8_0000_0000_0000, 0, -(2**63)], np.int64)
    table = key_table([Type.DOUBLE], null_is_key=False)
    assert table.numbers([Vector(bits.view(np.float64))], 5).tolist() == [0, 0, 0, 1, 1]
