"""Short trains as rows: columns on demand, and the same results and counts with and without them."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalog.schema import Schema
from engine.run.core import Engine
from engine.run.network_file import read_network
from router.boundary import SOCKET
from router.codecs.base import Intake
from router.codecs.ndjson import NdjsonDecoder, NdjsonEncoder
from storage.rows import RowTrain
from storage.train import NO_WATERMARK, Train
from tests.unit.storage_harness import make_storage

NETWORK = """
streams: {rows: {schema: {n: bigint, k: int, x: double, s: string, b: boolean}}}
boxes:
  one: {filter: rows, where: "n > 3"}
  two: {filter: one, where: "x <= 2.5"}
  three: {filter: two, where: "not k = 7"}
outputs: {out: {from: three}}
"""
SCHEMA = read_network(NETWORK, {}).stream("rows").schema

some_rows = st.lists(
    st.fixed_dictionaries(
        {
            "n": st.integers(0, 8) | st.integers(-(2**63), 2**63 - 1),
            "k": st.integers(6, 8) | st.integers(-(2**31), 2**31 - 1),
            "x": st.sampled_from([0.0, -0.0, 2.5, 3, 1e300]) | st.floats(allow_nan=False, allow_infinity=False),
            "s": st.text(max_size=3),
            "b": st.booleans(),
        }
    ),
    min_size=1,
    max_size=6,
)


def read(rows: list[dict[str, Any]], schema: Schema = SCHEMA) -> Train:
    decoder = NdjsonDecoder(Intake(schema))
    (train,) = decoder.receive(b"".join([orjson.dumps(row) + b"\n" for row in rows]), 7).trains
    return train


def passed(train: Train) -> tuple[list[tuple[Any, ...]], list[tuple[int, ...]], bytes]:
    """What comes out of the chain, what its boxes counted, and the text that a reader gets."""
    got: list[Train] = []
    network = read_network(NETWORK, {})
    engine = Engine(network, [got.append], workers=1, now_ns=lambda: 0)
    engine.ingress.admit(0, train, SOCKET)
    counts = [(b.calls, b.tuples_in, b.tuples_out, b.filtered) for b in engine.readings.boxes()]
    text = b"".join([NdjsonEncoder(SCHEMA).encode(t) for t in got])
    return [row for t in got for row in t.to_rows()], counts, text


@given(some_rows)
def test_rows_and_columns_come_to_the_same(rows: list[dict[str, Any]]) -> None:
    train = read(rows)
    assert isinstance(train, RowTrain)
    assert passed(train) == passed(train.at_rest())


@given(some_rows)
def test_who_looks_gets_columns(rows: list[dict[str, Any]]) -> None:
    train = read(rows)
    train.verify()
    assert train.to_rows() == [tuple([row[name] for name in SCHEMA.names]) for row in rows]
    assert train.slice(0, 1).to_rows() == train.to_rows()[:1] and train.nbytes > 0


def test_some_of_its_rows_and_another_watermark() -> None:
    train = read([{"n": i, "k": 0, "x": 0.5, "s": str(i), "b": True} for i in range(3)])
    assert isinstance(train, RowTrain) and train.watermark_ns == NO_WATERMARK
    later = train.with_watermark(9).with_rows(train.rows[1:])
    later.verify()
    assert later.watermark_ns == 9 and [row[3] for row in later.to_rows()] == ["1", "2"]
    assert later.arrival_ns.tolist() == [7, 7]


@pytest.mark.parametrize("row", [{"n": 2**63}, {"k": 2**31}, {"n": 1.5}, {"x": "1"}, {"s": 1}, {"b": 1}, {"n": True}])
def test_what_does_not_fit_is_refused_with_its_line(row: dict[str, Any]) -> None:
    good = {"n": 1, "k": 2, "x": 0.5, "s": "a", "b": True}
    data = orjson.dumps(good) + b"\n" + orjson.dumps(good | row) + b"\n"
    received = NdjsonDecoder(Intake(SCHEMA)).receive(data, 0)
    assert [t.to_rows() for t in received.trains] == [[tuple(good.values())]]
    assert [r.line for r in received.rejects] == [2]


def test_times_are_written_as_asked() -> None:
    schema = Schema.of(at="timestamp", n="bigint")
    train = read([{"at": 1_500_000_000_000_000_001, "n": 1}, {"at": -1, "n": 2}], schema)
    assert isinstance(train, RowTrain)
    for unit in ("iso", "ns", "us", "ms", "s"):
        assert NdjsonEncoder(schema, unit).encode(train) == NdjsonEncoder(schema, unit).encode(train.at_rest())


def test_what_waits_on_a_queue_has_columns_alone() -> None:
    train = read([{"n": 1, "k": 0, "x": 0.5, "s": "a", "b": True}]).with_watermark(9)
    storage = make_storage(1, 10**6)
    storage.enqueue((0,), train)
    [waiting], _, _ = storage.take(0, 10, 1)
    assert type(waiting) is Train and waiting.to_rows() == train.to_rows() and waiting.watermark_ns == 9
