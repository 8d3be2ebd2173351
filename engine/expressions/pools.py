"""String functions over pools: once for each distinct value, then one ``take`` for each train.

A string column is codes into a pool, so a function of one string is a table over the pool's entries. The tables of a
pool hang on the pool and die with it. A function that makes strings puts them into a pool of its own, the table's: the
source pool has one writer, the decoder, and that is not us. The table's pool may be written by any worker, hence a
lock, taken only when the source has grown.

Limits: a pool keeps at most MAX_TABLES tables (the oldest goes), and a table whose strings outgrow MAX_TABLE_BYTES is
given up: from then on each train computes its own distinct values and keeps nothing.

Columns over different pools are compared and mixed through a pool that holds both (``merged``). Functions of several
columns are in ``combinations``.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np

from catalog.schema import Type
from engine.expressions.node import Node, Run
from engine.expressions.vector import Array, Mask, Scope, Vector
from storage.strings import StringPool

MAX_TABLES = 64
MAX_MERGES = 16
MAX_TABLE_BYTES = 16 * 2**20
_MAKING = threading.Lock()

TextFunction = Callable[[str], Any]
"""One string to a Python value of the result type; None for NULL."""


T = TypeVar("T")


def remembered(home: StringPool, kind: str, key: object, limit: int, make: Callable[[], T]) -> T:
    """What is kept under a key with a pool, made on first use; beyond ``limit`` of a kind the oldest goes."""
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


class Table:
    """A function's results over the entries of one pool, extended as the pool grows."""

    __slots__ = ("_function", "_lock", "_type", "parts")

    def __init__(self, function: TextFunction, type: Type) -> None:
        self._function = function
        self._type = type
        self._lock = threading.Lock()
        # values, validity and pool by code; replaced whole, so that readers need no lock; None when given up
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
    """The kernel of a function of one string; ``key`` names the function with whatever is bound into it."""
    key = f"{type} {key}"

    def run(scope: Scope) -> Vector:
        x = node.run(scope)
        source = x.pool
        assert source is not None
        if not len(source):
            return _blank(x, type)
        table = remembered(source, "tables", key, MAX_TABLES, lambda: Table(function, type))
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
    """Python results as an array and its validity."""
    missing = [r is None for r in results]
    valid = None
    if any(missing):
        blank = "" if type is Type.STRING else 0
        results = [blank if r is None else r for r in results]
        valid = ~np.array(missing)
    return (pool.encode(results) if pool is not None else np.array(results, type.dtype)), valid


def _of_this_train(x: Vector, function: TextFunction, type: Type) -> Vector:
    """The function over the strings that are in this train, kept by nobody."""
    assert x.pool is not None
    used, position = np.unique(x.values, return_inverse=True)
    pool = StringPool() if type is Type.STRING else None
    values, valid = encode([function(x.pool.values[code]) for code in used.tolist()], type, pool)
    out_valid = x.valid
    if valid is not None:
        out_valid = valid[position] if out_valid is None else valid[position] & out_valid
    return Vector(values[position], out_valid, pool)


class Merge:
    """Several pools brought together in one, each with a table of its codes there; extended as they grow."""

    __slots__ = ("_lock", "pool", "sources", "tables")

    def __init__(self, sources: Sequence[StringPool]) -> None:
        self.sources = tuple(sources)  # held, so that their identities stay theirs
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
        # a pool of nothing belongs to a column of NULLs, whose codes are 0; that is inside a table, but is not kept
        return tuple(t if t.shape[0] else np.zeros(1, np.int32) for t in extended)


def merged(vectors: Sequence[Vector]) -> tuple[list[Array], StringPool | None]:
    """The values of several vectors, comparable with one another: strings become codes of one pool."""
    first = vectors[0].pool
    if first is None or all(v.pool is first for v in vectors):
        return [v.values for v in vectors], first
    pools: dict[int, StringPool] = {}
    for vector in vectors:
        assert vector.pool is not None
        pools[id(vector.pool)] = vector.pool
    home = max(pools.values(), key=len)  # kept with the largest: that is a stream's pool, and not a literal's
    key = tuple(pools)
    merge = remembered(home, "merges", key, MAX_MERGES, lambda: Merge(list(pools.values())))
    by_pool = dict(zip(key, merge.current(), strict=True))
    return [by_pool[id(v.pool)].take(v.values) for v in vectors], merge.pool


def _filled(valid: Mask | None, count: int) -> Mask:
    return np.ones(count, np.bool_) if valid is None else valid


def _blank(x: Vector, type: Type) -> Vector:
    """A column of nothing but NULLs may have a pool of nothing."""
    valid = x.valid if x.valid is not None else np.zeros(x.values.shape[0], np.bool_)
    return Vector(np.zeros(x.values.shape[0], type.dtype), valid, StringPool() if type is Type.STRING else None)
