"""Trains to bytes and back: every type, NULLs, pools, arrivals, watermarks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from catalog.schema import Schema
from storage.encode import EncodingError, TrainReader, _layout, encode_train
from storage.strings import StringPool
from storage.train import NO_WATERMARK, Train, constant_ns

SCHEMA = Schema.of(
    flag="boolean?", small="int?", big="bigint", ratio="float", value="double?", name="string?", venue="string",
    ts="timestamp",
)  # fmt: skip
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "flag": st.none() | st.booleans(),
    "small": st.none() | st.integers(-(2**31), 2**31 - 1),
    "big": st.integers(-(2**63), 2**63 - 1),
    "ratio": st.floats(width=32, allow_nan=False),
    "value": st.none() | st.floats(allow_nan=False),
    "name": st.none() | st.text(max_size=8),
    "venue": st.sampled_from(["N", "P", "Q"]),
    "ts": st.integers(0, 2**62),
}


def round_trip(train: Train, reader: TrainReader | None = None) -> Train:
    data = b"".join(bytes(p) for p in encode_train(train))
    assert len(data) % 8 == 0
    back = (reader or TrainReader()).decode(data, train.schema)
    back.verify()
    return back


@given(
    rows=st.lists(st.fixed_dictionaries(VALUES), max_size=20),
    arrivals=st.lists(st.integers(0, 2**62), min_size=20, max_size=20),
    same=st.booleans(),
    watermark_ns=st.just(NO_WATERMARK) | st.integers(-(2**62), 2**62),
)
@settings(max_examples=100)
def test_every_train_comes_back(rows: list[dict[str, Any]], arrivals: list[int], same: bool, watermark_ns: int) -> None:
    data = {n: [r[n] for r in rows] for n in SCHEMA.names}
    train = Train.from_pylists(SCHEMA, data, arrivals[0] if same else arrivals[: len(rows)])
    back = round_trip(train.with_watermark(watermark_ns))
    assert back.to_pydict() == data
    assert back.arrival_ns.tolist() == train.arrival_ns.tolist()
    assert back.watermark_ns == watermark_ns
    assert (back.arrival_ns.strides[0] == 0) == ((same and len(rows) != 1) or not rows)  # one stamp needs no trick


@given(count=st.integers(1, 200), same=st.booleans(), strided=st.booleans())
@settings(max_examples=50)
def test_what_is_put_together_from_the_columns_is_what_arrow_writes(count: int, same: bool, strided: bool) -> None:
    """Arrow writes the first train of a length; ours for the trains after it must be equal byte for byte."""
    schema = Schema.of(flag="boolean", small="int", big="bigint", ratio="float", venue="string")
    step = 2 if strided else 1
    values = np.arange(count * step) * 7 % 11
    columns = (values > 4, values.astype(np.int32), values, values.astype(np.float32), (values % 3).astype(np.int32))
    pools = (None, None, None, None, StringPool(["N", "P", "Q"]))
    arrivals = constant_ns(5, count) if same else np.arange(count)
    train = Train(schema, tuple([c[::step] for c in columns]), arrivals, pools=pools)
    _layout.cache_clear()
    first, second = (b"".join(bytes(p) for p in encode_train(train)) for _ in range(2))
    assert first == second
    assert round_trip(train).to_pydict() == train.to_pydict()


def test_a_column_is_not_copied() -> None:
    values = np.arange(10_000)
    train = Train(Schema.of(v="bigint"), (values,), constant_ns(0, 10_000))
    encode_train(train)
    assert any(np.shares_memory(np.frombuffer(p, np.uint8), values) for p in encode_train(train) if len(p))


def test_of_a_large_pool_only_what_is_used_is_written() -> None:
    pool = StringPool(f"symbol {i}" for i in range(60_000))
    schema = Schema.of(a="string", b="string")
    codes = np.array([59_999, 7, 7, 123], np.int32)
    train = Train(schema, (codes, codes[::-1].copy()), constant_ns(1, 4), pools=(pool, pool))
    assert sum(len(p) for p in encode_train(train)) < 2_000
    back = round_trip(train)
    assert back.to_pydict() == train.to_pydict()
    assert back.pools[0] is back.pools[1]
    assert back.pools[0] is not None and len(back.pools[0]) == 3


def test_two_pools_among_three_columns_stay_apart() -> None:
    left, right = StringPool(["x", "y"]), StringPool(["y", "x"])
    schema = Schema.of(a="string", b="string", c="string")
    codes = np.array([0, 1], np.int32)
    train = Train(schema, (codes, codes, codes), constant_ns(0, 2), pools=(left, right, left))
    assert round_trip(train).to_rows() == [("x", "y", "x"), ("y", "x", "y")]


def test_the_same_pool_comes_back_as_one_object_and_a_grown_one_does_not() -> None:
    reader, pool, schema = TrainReader(), StringPool(["a", "b"]), Schema.of(s="string")
    train = Train(schema, (np.array([1], np.int32),), constant_ns(0, 1), pools=(pool,))
    first, second = round_trip(train, reader), round_trip(train, reader)
    assert first.pools[0] is second.pools[0]
    grown = Train(schema, (np.array([pool.code("c")], np.int32),), constant_ns(0, 1), pools=(pool,))
    assert round_trip(grown, reader).to_rows() == [("c",)]


def test_columns_that_are_not_contiguous_are_written_right() -> None:
    schema = Schema.of(v="bigint")
    train = Train(schema, (np.arange(10)[::2],), constant_ns(0, 5))
    assert round_trip(train).columns[0].tolist() == [0, 2, 4, 6, 8]


def test_a_train_of_another_schema_is_refused() -> None:
    train = Train.from_pylists(Schema.of(v="bigint"), {"v": [1, 2, 3]}, 0)
    data = b"".join(bytes(p) for p in encode_train(train))
    for other in (Schema.of(v="bigint", w="string"), Schema.of(v="string")):
        with pytest.raises(EncodingError):
            TrainReader().decode(data, other)
    with pytest.raises(EncodingError):
        TrainReader().decode(data[:20], train.schema)
