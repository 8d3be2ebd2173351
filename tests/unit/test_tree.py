"""Plain data to bytes and back."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalog.schema import Schema
from storage.train import Train
from storage.tree import TreeError, decode_tree, encode_tree

scalars = st.none() | st.booleans() | st.integers(-(2**80), 2**80) | st.floats(allow_nan=False) | st.text(max_size=9)
keys = st.text(max_size=5) | st.integers(-5, 5) | st.sampled_from(["$a", "$t", "$d"]) | st.tuples(st.integers(0, 3))
trees = st.recursive(
    scalars | st.binary(max_size=9),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(keys, inner, max_size=4) | st.lists(inner, max_size=3).map(tuple)
    ),
    max_leaves=12,
)


def round_trip(data: Any) -> Any:
    raw = b"".join(bytes(p) for p in encode_tree(data))
    assert len(raw) % 8 == 0
    return decode_tree(raw)


@given(trees)
def test_whatever_goes_in_comes_out(data: Any) -> None:
    assert round_trip(data) == data


@pytest.mark.parametrize(
    "array",
    [
        np.arange(7, dtype=np.int32),
        np.arange(12.0).reshape(3, 4)[:, ::2],
        np.array([True, False]),
        np.empty((0, 3), np.float32),
        np.array(["a", None, "c"], object),
        np.array([(1, 2.5)], [("n", "<i4"), ("v", "<f8")]),
        np.array("2026-01-01", "datetime64[ns]"),
    ],
    ids=lambda a: f"{a.dtype}{a.shape}",
)
def test_arrays_keep_their_type_and_shape(array: Any) -> None:
    [back] = round_trip([array])
    assert back.dtype == array.dtype
    assert back.shape == array.shape
    assert back.tolist() == array.tolist()


def test_trains_scalars_of_numpy_and_what_json_lacks() -> None:
    train = Train.from_pylists(Schema.of(a="int", s="string?"), {"a": [1, 2], "s": ["x", None]}, [5, 6])
    back = round_trip({"t": train, "n": np.int64(3), "nan": math.nan, "inf": -math.inf})
    assert back["t"].to_rows() == [(1, "x"), (2, None)]
    assert (back["n"], back["inf"]) == (3, -math.inf)
    assert math.isnan(back["nan"])


def test_containers_are_frozen_by_dump() -> None:
    data: list[Any] = [1, {"a": [2]}]
    parts = encode_tree(data)
    data[1]["a"].append(3)
    assert decode_tree(b"".join(bytes(p) for p in parts)) == [1, {"a": [2]}]


def test_what_cannot_be_written_is_refused_and_so_is_what_is_no_data() -> None:
    for data in ({1, 2}, object(), lambda: None):
        with pytest.raises(TreeError):
            encode_tree(data)
    for raw in (b"", b"\1\0\0\0", b"\x05\0\0\0\0\0\0\0{not}"):
        with pytest.raises(TreeError):
            decode_tree(raw)
