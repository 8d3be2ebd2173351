"""The train's verbs against plain Python lists."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalog.schema import Field, Schema, Type
from storage.strings import MAX_ENTRIES, StringInterner, StringPool
from storage.train import NO_WATERMARK, Train, constant_ns

SCHEMA = Schema.of(n="bigint", x="double?", s="string?", b="boolean")

rows = st.lists(
    st.tuples(
        st.integers(-(2**63), 2**63 - 1),
        st.none() | st.floats(allow_nan=False),
        st.none() | st.text(max_size=4),
        st.booleans(),
    ),
    max_size=30,
)


def train_of(given_rows: list[tuple[Any, ...]], arrival_ns: int | list[int] = 7) -> Train:
    columns = {name: [row[i] for row in given_rows] for i, name in enumerate(SCHEMA.names)}
    train = Train.from_pylists(SCHEMA, columns, arrival_ns)
    train.verify()
    return train


@given(rows)
def test_rows_go_in_and_come_out(given_rows: list[tuple[Any, ...]]) -> None:
    assert train_of(given_rows).to_rows() == given_rows


@given(rows, st.randoms(use_true_random=False))
def test_where_keeps_what_the_mask_says(given_rows: list[tuple[Any, ...]], random: Any) -> None:
    mask = [random.random() < 0.5 for _ in given_rows]
    kept = train_of(given_rows).where(np.array(mask, np.bool_))
    kept.verify()
    assert kept.to_rows() == [row for row, keep in zip(given_rows, mask, strict=True) if keep]


def test_where_shares_the_train_when_all_pass() -> None:
    train = train_of([(1, 2.0, "a", True)])
    assert train.where(np.array([True])) is train


@given(st.tuples(rows, rows, rows))
def test_concat_of_different_pools(parts: tuple[list[tuple[Any, ...]], ...]) -> None:
    joined = Train.concat([train_of(part, arrival) for arrival, part in enumerate(parts)])
    joined.verify()
    assert joined.to_rows() == [row for part in parts for row in part]
    assert joined.arrival_ns.tolist() == [arrival for arrival, part in enumerate(parts) for _ in part]


@given(rows, st.integers(0, 30))
def test_split_gives_head_and_rest(given_rows: list[tuple[Any, ...]], count: int) -> None:
    head, rest = train_of(given_rows).with_watermark(99).split(count)
    head.verify()
    rest.verify()
    assert (head.to_rows(), rest.to_rows()) == (given_rows[:count], given_rows[count:])
    assert (head.watermark_ns, rest.watermark_ns) == (NO_WATERMARK, 99)


def test_select_and_with_column() -> None:
    train = train_of([(1, None, "a", True), (2, 0.5, None, False)])
    assert train.select(["s", "n"]).to_rows() == [("a", 1), (None, 2)]
    more = train.with_column(Field("d", Type.DOUBLE), np.array([1.5, 2.5]))
    more.verify()
    assert more.schema.names == ("n", "x", "s", "b", "d")
    replaced = more.with_column(Field("x", Type.INT), np.array([8, 9], np.int32))
    replaced.verify()
    assert replaced.to_pydict() == {"n": [1, 2], "x": [8, 9], "s": ["a", None], "b": [True, False], "d": [1.5, 2.5]}


def test_a_constant_arrival_costs_eight_bytes_and_stays_constant() -> None:
    train = Train(Schema.of(a="int"), (np.arange(1000, dtype=np.int32),), constant_ns(5, 1000))
    assert train.nbytes == 4000
    kept = train.take(np.arange(0, 1000, 2))
    assert kept.arrival_ns.strides == (0,) and kept.arrival_ns.tolist() == [5] * 500
    twice = train.take(np.repeat(np.arange(1000), 2))
    assert twice.count == 2000 and set(twice.arrival_ns.tolist()) == {5}


@pytest.mark.parametrize("broken", ["dtype", "length", "code", "null"])
def test_verify_finds_what_is_wrong(broken: str) -> None:
    train = train_of([(1, None, "a", True), (2, 0.5, None, False)])
    columns, valid = list(train.columns), list(train.valid or ())
    if broken == "dtype":
        columns[0] = columns[0].astype(np.int32)
    elif broken == "length":
        columns[1] = columns[1][:1]
    elif broken == "code":
        columns[2] = columns[2] + 5
    else:
        valid[3] = np.array([True, False])
    bad = Train(SCHEMA, tuple(columns), train.arrival_ns, valid=tuple(valid), pools=train.pools)
    with pytest.raises(AssertionError):
        bad.verify()


def test_a_pool_turns_over_when_it_is_full() -> None:
    interner = StringInterner()
    first = interner.fresh()
    first.encode([str(i) for i in range(MAX_ENTRIES)])
    second = interner.fresh()
    assert second is not first and interner.rotations == 1
    assert first.values[41] == "41" and len(second) == 0


def test_lookup_runs_once_for_each_distinct_string() -> None:
    pool = StringPool(["a", "bb"])
    seen: list[str] = []

    def lengths(strings: Any) -> Any:
        seen.extend(strings)
        return np.array([len(s) for s in strings])

    assert pool.lookup("len", lengths)[np.array([1, 0, 1])].tolist() == [2, 1, 2]
    pool.code("ccc")
    assert pool.lookup("len", lengths)[np.array([2, 0])].tolist() == [3, 1]
    assert seen == ["a", "bb", "ccc"]
