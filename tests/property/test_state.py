"""The parts of state against plain dicts: keys of every type, with NULLs, NaNs and zeros, forgotten and restored."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from catalog.schema import Field, Type
from engine.operators.expressions import Vector
from engine.operators.state import direct_table, keys, strings
from engine.operators.state.columns import renumbered
from engine.operators.state.keys import KeyTable, key_table
from engine.operators.state.strings import StateStrings
from engine.operators.windows.windows import key_data
from storage.strings import StringPool
from tests.property.box_harness import as_plain

VALUES: dict[Type, list[Any]] = {
    Type.STRING: ["", "a", "b", "long string", None],
    Type.BIGINT: [0, 1, -1, 2**62, -(2**63), None],
    Type.INT: [0, 3, -7, None],
    Type.DOUBLE: [0.0, -0.0, 1.5, math.nan, -math.nan, math.inf, None],
    Type.FLOAT: [0.0, -0.0, 0.25, math.nan, None],
    Type.BOOLEAN: [True, False, None],
    Type.TIMESTAMP: [0, 1_700_000_000_000_000_000, None],
}
TYPES = [(), *[(t,) for t in VALUES], (Type.STRING, Type.DOUBLE), (Type.BIGINT, Type.STRING, Type.INT)]


def vector(kind: Type, values: list[Any], pool: StringPool | None) -> Vector:
    valid = np.array([v is not None for v in values], np.bool_)
    flags = None if valid.all() else valid
    if kind is Type.STRING:
        pool = pool or StringPool()
        codes = [pool.code(v) if v is not None else 0 for v in values]
        return Vector(np.array(codes, np.int32), flags, pool)
    return Vector(np.array([v if v is not None else 0 for v in values], kind.dtype), flags)


def canonical(row: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(
        "nan" if isinstance(v, float) and math.isnan(v) else v + 0.0 if isinstance(v, float) else v for v in row
    )


def rows_of(table: KeyTable, numbers: Any) -> list[tuple[Any, ...]]:
    """The keys behind these numbers as Python values."""
    columns = []
    for kind, v in zip(table.types, table.vectors(numbers), strict=True):
        values = (
            [v.pool.values[c] if len(v.pool) else "" for c in v.values] if v.pool is not None else v.values.tolist()
        )
        assert v.pool is not None or v.values.dtype == kind.dtype
        columns.append([x if v.valid is None or v.valid[i] else None for i, x in enumerate(values)])
    return [canonical(row) for row in zip(*columns, strict=True)] if columns else [()] * len(numbers)


class Oracle:
    """A key table and a dict beside it. ``feed`` compares what the two say."""

    def __init__(self, types: tuple[Type, ...], null_is_key: bool) -> None:
        self.types = types
        self.null_is_key = null_is_key
        self.table = key_table(types, null_is_key=null_is_key)
        self.numbers: dict[tuple[Any, ...], int] = {}

    def feed(self, rows: list[tuple[Any, ...]], pool: StringPool | None) -> None:
        key = [vector(t, [r[i] for r in rows], pool) for i, t in enumerate(self.types)]
        found = self.table.numbers(key, len(rows)).tolist()
        for row, number in zip(map(canonical, rows), found, strict=True):
            if None in row and not self.null_is_key:
                assert number == -1
            else:
                assert 0 <= number < self.table.count
                assert self.numbers.setdefault(row, number) == number
        assert len(set(self.numbers.values())) == len(self.numbers)
        live = np.array(sorted(self.numbers.values()), np.int64)
        assert rows_of(self.table, live) == sorted(self.numbers, key=self.numbers.__getitem__)

    def keep(self, chosen: list[tuple[Any, ...]]) -> None:
        kept = {row: n for row, n in self.numbers.items() if row in chosen}
        live = np.array(sorted(kept.values()), np.int64)
        by_number = np.arange(self.table.count) * 10
        remap = self.table.keep(live)
        assert remap[-1] == -1
        assert bool(np.all(np.diff(remap.take(live)) > 0)), "the order stays"
        moved = renumbered(by_number, remap, self.table.count, -1)
        assert moved.take(remap.take(live)).tolist() == (live * 10).tolist()
        self.numbers = {row: int(remap[n]) for row, n in kept.items()}

    def restart(self) -> None:
        live = np.array(sorted(self.numbers.values()), np.int64)
        data = as_plain(self.table.snapshot(live))
        rows = sorted(self.numbers, key=self.numbers.__getitem__)
        self.table = key_table(self.types, null_is_key=self.null_is_key)
        self.numbers = dict(zip(rows, self.table.restore(data).tolist(), strict=True))


@pytest.mark.parametrize("null_is_key", [True, False])
@pytest.mark.parametrize("types", TYPES, ids=lambda t: "+".join(t) or "none")
@given(data=st.data())
@settings(max_examples=25, deadline=None)
def test_keys(types: tuple[Type, ...], null_is_key: bool, data: st.DataObject) -> None:
    row = st.tuples(*[st.sampled_from(VALUES[t]) for t in types])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(direct_table, "_RANGE", 8)
        oracle = Oracle(types, null_is_key)
        pool = StringPool()
        for _ in range(4):
            own_pool = data.draw(st.booleans())
            oracle.feed(data.draw(st.lists(row, max_size=12)), None if own_pool else pool)
            step = data.draw(st.sampled_from(["nothing", "keep", "restart"]))
            if step == "keep" and oracle.numbers:
                oracle.keep(data.draw(st.lists(st.sampled_from(list(oracle.numbers)))))
            elif step == "restart":
                oracle.restart()
            assert oracle.table.nbytes >= 0


def test_keys_grow_and_are_forgotten() -> None:
    table = key_table([Type.BIGINT, Type.STRING], null_is_key=True)
    sizes = []
    for block in range(30):
        pool = StringPool(f"key {block} {i}" for i in range(1_000))
        key = [Vector(np.arange(1_000)), Vector(np.arange(1_000, dtype=np.int32), None, pool)]
        numbers = table.numbers(key, 1_000)
        if table.is_wasteful(1_000):
            remap = table.keep(np.sort(numbers))
            assert table.count == 1_000
            assert rows_of(table, remap.take(numbers)) == [(i, f"key {block} {i}") for i in range(1_000)]
        sizes.append(table.nbytes)
    assert max(sizes[10:]) <= 1.1 * max(sizes[:10])


def test_only_a_small_pool_leaves_with_a_result(monkeypatch: pytest.MonkeyPatch) -> None:
    """Boxes downstream keep tables over a whole pool: they must not grow with every string of a large state."""
    monkeypatch.setattr(strings, "MAX_ENTRIES", 10)
    held = StateStrings()
    pool = StringPool(f"s{i}" for i in range(20))
    codes = np.arange(20, dtype=np.int32)
    few, own = held.result(held.codes(codes[:10], pool))
    assert own is held.pool and few.tolist() == list(range(10))
    held.codes(codes, pool)
    some, fresh = held.result(np.array([15, 3, 15], np.int32))
    assert [fresh.values[c] for c in some] == ["s15", "s3", "s15"]
    assert len(fresh) == 2


@pytest.mark.parametrize(
    ("fields", "saved", "rows"),
    [
        ([], [], [(), ()]),
        ([Field("k", Type.STRING, True)], [["a", None]], [("a",), (None,)]),
        (
            [Field("k", Type.STRING, True), Field("d", Type.DOUBLE, True)],
            [np.array([0, 3]), ["a", None], np.array([1.5, 0.0]).view(np.int64)],
            [("a", 1.5), (None, None)],
        ),
    ],
)
def test_keys_of_a_checkpoint_before_0_2(fields: list[Field], saved: list[Any], rows: list[Any]) -> None:
    table = key_table([f.type for f in fields], null_is_key=True)
    numbers = table.restore(as_plain(key_data(saved, fields, len(rows))))
    assert rows_of(table, numbers) == rows


def test_a_key_table_says_when_it_pays_to_forget() -> None:
    table = key_table([Type.BIGINT], null_is_key=False)
    table.numbers([Vector(np.arange(keys._SPARE + 1))], keys._SPARE + 1)
    assert table.is_wasteful(0)
    assert not table.is_wasteful(1)
    assert not table.is_wasteful(0, spare=2 * keys._SPARE)
