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
from typing import Any

import numpy as np

from catalog.schema import Type
from engine.expressions.node import Node, Run
from engine.expressions.vector import Array, Mask, Scope, Vector
from storage.strings import StringPool

MAX_TABLES = 256
MAX_MERGES = 16
MAX_TABLE_BYTES = 32 * 2**20

TextFunction = Callable[[str], Any]
"""One string to a Python value of the result type; None for NULL."""


class Table:
    """A function's results over the entries of one pool, extended as the pool grows."""

    __slots__ = ("_function", "_lock", "_type", "given_up", "parts", "pool")

    def __init__(self, function: TextFunction, type: Type) -> None:
        self._function = function
        self._type = type
        self._lock = threading.Lock()
        self.pool = StringPool() if type is Type.STRING else None
        self.parts: tuple[Array, Mask | None] = (np.empty(0, type.dtype), None)  # replaced whole, so readers need no lock
        self.given_up = False

    def over(self, source: StringPool) -> tuple[Array, Mask | None]:
        """Values and validity by code of ``source``."""
        parts = self.parts
        if parts[0].shape[0] < len(source):
            with self._lock:
                parts = self._extend(source)
        return parts

    def _extend(self, source: StringPool) -> tuple[Array, Mask | None]:
        values, valid = self.parts
        have, size = values.shape[0], len(source)
        if have < size:
            fresh = [self._function(text) for text in source.values[have:size]]
            more, more_valid = encode(fresh, self._type, self.pool)
            if valid is not None or more_valid is not None:
                valid = np.concatenate([_filled(valid, have), _filled(more_valid, size - have)])
            self.parts = (np.concatenate([values, more]), valid)
            self.given_up = self.pool is not None and self.pool.nbytes > MAX_TABLE_BYTES
        return self.parts


class _Tables(dict[str, Table]):
    """The tables of one pool by the key of their function."""


def table_of(source: StringPool, key: str, function: TextFunction, type: Type) -> Table:
    tables: dict[str, Table] = source.attach("expressions", _Tables)
    table = tables.get(key)
    if table is None:
        if len(tables) >= MAX_TABLES:
            tables.pop(next(iter(tables)), None)
        table = tables.setdefault(key, Table(function, type))
    return table


def text_table_run(node: Node, key: str, function: TextFunction, type: Type) -> Run:
    """The kernel of a function of one string."""
    key = f"{type} {key}"

    def run(scope: Scope) -> Vector:
        x = node.run(scope)
        source = x.pool
        assert source is not None
        if not len(source):
            return _blank(x, type)
        table = table_of(source, key, function, type)
        if table.given_up:
            return _of_this_train(x, function, type)
        values, valid = table.over(source)
        out_valid = x.valid
        if valid is not None:
            taken = valid.take(x.values)
            out_valid = taken if out_valid is None else taken & out_valid
        return Vector(values.take(x.values), out_valid, table.pool)

    return run


def encode(results: Sequence[Any], type: Type, pool: StringPool | None) -> tuple[Array, Mask | None]:
    """Python results as an array and its validity."""
    missing = [r is None for r in results]
    if any(missing):
        blank = "" if type is Type.STRING else 0
        results = [blank if r is None else r for r in results]
    valid = ~np.array(missing) if any(missing) else None
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
        # a pool of nothing belongs to a column of NULLs, whose codes are 0; that must be inside a table, but is not kept
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
    merges: dict[tuple[int, ...], Merge] = home.attach("merges", dict)
    key = tuple(pools)
    merge = merges.get(key)
    if merge is None:
        if len(merges) >= MAX_MERGES:
            merges.pop(next(iter(merges)), None)
        merge = merges.setdefault(key, Merge(list(pools.values())))
    by_pool = dict(zip(key, merge.current(), strict=True))
    return [by_pool[id(v.pool)].take(v.values) for v in vectors], merge.pool


def _filled(valid: Mask | None, count: int) -> Mask:
    return np.ones(count, np.bool_) if valid is None else valid


def _blank(x: Vector, type: Type) -> Vector:
    """A column of nothing but NULLs may have a pool of nothing."""
    valid = x.valid if x.valid is not None else np.zeros(x.values.shape[0], np.bool_)
    return Vector(np.zeros(x.values.shape[0], type.dtype), valid, StringPool() if type is Type.STRING else None)


