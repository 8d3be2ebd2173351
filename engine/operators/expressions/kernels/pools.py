"""Functions of one string, computed once for each entry of a pool; a train is then one ``take``.

A string column holds codes into a pool, so the results of a function form a table over the entries of the pool. The
tables are attached to the pool and freed with it. A function that returns strings writes them to a pool of the table:
the source pool has one writer, the decoder. Any worker may extend a table, hence its lock, which is taken only when the
source pool has grown.

Limits: a pool keeps at most MAX_TABLES tables and drops the oldest. A table whose strings exceed MAX_TABLE_BYTES is
abandoned: from then on each train computes its own distinct values and keeps none.

Columns over different pools are compared and mixed through a pool that holds the strings of both (``merged``).
Functions of several columns are in ``combinations``.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np

from catalog.schema import Type
from engine.operators.expressions.tree.node import Node, Run
from engine.operators.expressions.tree.vector import Array, Mask, Scope, Vector
from storage.strings import StringPool

MAX_TABLES = 64
MAX_MERGES = 16
MAX_TABLE_BYTES = 16 * 2**20
_MAKING = threading.Lock()

TextFunction = Callable[[str], Any]
"""From one string to a Python value of the result type; None for NULL."""


T = TypeVar("T")


def remembered(home: StringPool, kind: str, key: object, limit: int, make: Callable[[], T]) -> T:
    """Return the object that a pool keeps under a key; make it on first use. Beyond ``limit`` of a kind drop the
    oldest."""
    kept: dict[object, T] = home.attach(kind, dict)
    found = kept.get(key)
    if found is None:
        with _MAKING:
            found = kept.get(key)
            if found is None:
                while len(kept) >= limit:
                    del kept[next(iter(kept))]
                found = kept[key] = make()
    return found


class PoolResults:
    """A function's results over the entries of one pool, extended as the pool grows."""

    __slots__ = ("_function", "_lock", "_type", "parts")

    def __init__(self, function: TextFunction, type: Type) -> None:
        self._function = function
        self._type = type
        self._lock = threading.Lock()
        # values, validity and pool by code. Replaced as a whole, so that readers need no lock; None when abandoned.
        pool = StringPool() if type is Type.STRING else None
        self.parts: tuple[Array, Mask | None, StringPool | None] | None = (np.empty(0, type.dtype), None, pool)

    def over(self, source: StringPool) -> tuple[Array, Mask | None, StringPool | None] | None:
        parts = self.parts
        if parts is not None and parts[0].shape[0] < len(source):
            with self._lock:
                self._extend(source)
            parts = self.parts
        return parts

    def _extend(self, source: StringPool) -> None:
        if self.parts is None:
            return
        values, valid, pool = self.parts
        have, size = values.shape[0], len(source)
        if have >= size:
            return
        more, more_valid = encode([self._function(text) for text in source.values[have:size]], self._type, pool)
        if valid is not None or more_valid is not None:
            valid = np.concatenate([_filled(valid, have), _filled(more_valid, size - have)])
        too_large = pool is not None and pool.nbytes > MAX_TABLE_BYTES
        self.parts = None if too_large else (np.concatenate([values, more]), valid, pool)


def text_table_run(node: Node, key: str, function: TextFunction, type: Type) -> Run:
    """Make the kernel of a function of one string; ``key`` names the function and the constants bound into it."""
    key = f"{type} {key}"

    def run(scope: Scope) -> Vector:
        x = node.run(scope)
        source = x.pool
        assert source is not None
        if not len(source):
            return _blank(x, type)
        table = remembered(source, "tables", key, MAX_TABLES, lambda: PoolResults(function, type))
        parts = table.over(source)
        if parts is None:
            return _of_this_train(x, function, type)
        values, valid, pool = parts
        out_valid = x.valid
        if valid is not None:
            taken = valid.take(x.values)
            out_valid = taken if out_valid is None else taken & out_valid
        return Vector(values.take(x.values), out_valid, pool)

    return run


def encode(results: Sequence[Any], type: Type, pool: StringPool | None) -> tuple[Array, Mask | None]:
    """Turn Python results into an array and its validity."""
    missing = [r is None for r in results]
    valid = None
    if any(missing):
        blank = "" if type is Type.STRING else 0
        results = [blank if r is None else r for r in results]
        valid = ~np.array(missing)
    return (pool.encode(results) if pool is not None else np.array(results, type.dtype)), valid


def _of_this_train(x: Vector, function: TextFunction, type: Type) -> Vector:
    """Compute the function over the distinct strings of this train, and keep nothing."""
    assert x.pool is not None
    used, position = np.unique(x.values, return_inverse=True)
    pool = StringPool() if type is Type.STRING else None
    values, valid = encode([function(x.pool.values[code]) for code in used.tolist()], type, pool)
    out_valid = x.valid
    if valid is not None:
        out_valid = valid[position] if out_valid is None else valid[position] & out_valid
    return Vector(values[position], out_valid, pool)


class Merge:
    """One pool that holds the strings of several, with a table of codes for each of them; extended as they grow."""

    __slots__ = ("_lock", "pool", "sources", "tables")

    def __init__(self, sources: Sequence[StringPool]) -> None:
        self.sources = tuple(sources)  # kept alive: the key of this object is their ids
        self.pool = StringPool()
        self.tables: tuple[Array, ...] = tuple(np.empty(0, np.int32) for _ in sources)
        self._lock = threading.Lock()

    def current(self) -> tuple[Array, ...]:
        tables = self.tables
        for table, source in zip(tables, self.sources, strict=True):
            if table.shape[0] < len(source) or not table.shape[0]:
                with self._lock:
                    return self._extend()
        return tables

    def _extend(self) -> tuple[Array, ...]:
        extended: list[Array] = []
        for table, source in zip(self.tables, self.sources, strict=True):
            fresh = source.values[table.shape[0] :]
            extended.append(np.concatenate([table, self.pool.encode(fresh)]) if fresh else table)
        self.tables = tuple(extended)
        # only a column of NULLs, whose codes are 0, has an empty pool: give it a table of one entry, and do not keep it
        return tuple(t if t.shape[0] else np.zeros(1, np.int32) for t in extended)


def merged(vectors: Sequence[Vector]) -> tuple[list[Array], StringPool | None]:
    """Make the values of several vectors comparable: strings become codes of one pool, which is returned too."""
    first = vectors[0].pool
    if first is None or all(v.pool is first for v in vectors):
        return [v.values for v in vectors], first
    pools: dict[int, StringPool] = {}
    for vector in vectors:
        assert vector.pool is not None
        pools[id(vector.pool)] = vector.pool
    home = max(pools.values(), key=len)  # the largest is the pool of a stream, not of a literal
    key = tuple(pools)
    merge = remembered(home, "merges", key, MAX_MERGES, lambda: Merge(list(pools.values())))
    by_pool = dict(zip(key, merge.current(), strict=True))
    return [by_pool[id(v.pool)].take(v.values) for v in vectors], merge.pool


def _filled(valid: Mask | None, count: int) -> Mask:
    return np.ones(count, np.bool_) if valid is None else valid


def _blank(x: Vector, type: Type) -> Vector:
    """Return NULLs: only a column of NULLs has an empty pool."""
    valid = x.valid if x.valid is not None else np.zeros(x.values.shape[0], np.bool_)
    return Vector(np.zeros(x.values.shape[0], type.dtype), valid, StringPool() if type is Type.STRING else None)
