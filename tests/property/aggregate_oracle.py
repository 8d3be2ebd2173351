"""What windows should hold, in plain Python by definition, and what functions should make of it, by DuckDB."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from catalog.schema import Schema
from engine.operators.boxes.aggregate import Aggregate
from engine.operators.boxes.base import Tally
from engine.operators.state import direct_table, distinct, keys, time_index
from engine.operators.windows import counted as counted_module
from engine.operators.windows import level, panes, slots, value_log, windows
from storage.strings import StringPool
from storage.train import NO_WATERMARK, Train

SCHEMA = Schema.of(ts="timestamp", k="string?", d="double?", v="double?", n="int", b="bigint?")
SELECT = {
    "rows": "count(*)",
    "vs": "count(v)",
    "total": "sum(v)",
    "mean": "avg(v)",
    "least": "min(v)",
    "most": "max(v)",
    "spread": "stddev(v)",
    "var": "var_pop(n)",
    "ints": "sum(n)",
    "bigs": "sum(b)",
    "middle": "median(n)",
    "p30": "percentile(n, 0.3)",
    "kinds": "count(distinct v)",
    "letters": "count(distinct k)",
    "low": "min(k)",
    "high": "max(k)",
    "either": "bool_or(n > 3)",
}
SQL = SELECT | {"middle": "median(n::double)", "p30": "quantile_cont(n::double, 0.3)"}

Row = tuple[int, str | None, float | None, float | None, int, int | None]


@dataclass(frozen=True)
class Arrival:
    """Rows that come together, and the watermark after them."""

    rows: list[Row]
    watermark_ns: int = NO_WATERMARK


Contents = list[tuple[int, int, list[Row]]]
"""Windows: start, end, rows of one key in order of arrival."""


def key_of(row: Row) -> tuple[Any, ...]:
    """GROUP BY k, d: NULL is a key, NaN is one, and 0.0 is -0.0."""
    d = row[2]
    return row[1], "nan" if d is not None and math.isnan(d) else d


def on_a_grid(arrivals: Sequence[Arrival], size: int, advance: int, offset: int) -> tuple[Contents, list[Row]]:
    """Tumbling and sliding windows: a row counts in those of its windows that are open when it comes."""
    contents: dict[Any, list[Row]] = defaultdict(list)
    late: list[Row] = []
    watermark = NO_WATERMARK
    for arrival in arrivals:
        for row in arrival.rows:
            start = (row[0] - offset) // advance * advance + offset
            starts = [s for s in range(start, start - size, -advance) if s + size > max(watermark, row[0])]
            if not starts:
                late.append(row)
            for s in starts:
                contents[s, *key_of(row)].append(row)
        watermark = max(watermark, arrival.watermark_ns)
    return [(key[0], key[0] + size, rows) for key, rows in contents.items()], late


def sessions(arrivals: Sequence[Arrival], gap: int) -> tuple[Contents, list[Row]]:
    """Session windows, one row after another."""
    open_ones: dict[Any, list[list[Row]]] = defaultdict(list)
    closed: Contents = []
    late: list[Row] = []
    watermark = NO_WATERMARK
    for arrival in arrivals:
        for row in arrival.rows:
            if row[0] + gap <= watermark:
                late.append(row)
                continue
            mine = open_ones[key_of(row)]
            near = [s for s in mine if min(r[0] for r in s) - gap < row[0] < max(r[0] for r in s) + gap]
            merged = [r for s in near for r in s] + [row]
            open_ones[key_of(row)] = [s for s in mine if s not in near] + [merged]
        watermark = max(watermark, arrival.watermark_ns)
        for key, mine in open_ones.items():
            done = [s for s in mine if max(r[0] for r in s) + gap <= watermark]
            closed += [(min(r[0] for r in s), max(r[0] for r in s) + gap, s) for s in done]
            open_ones[key] = [s for s in mine if s not in done]
    return closed, late


def counted(arrivals: Sequence[Arrival], size: int, advance: int) -> Contents:
    by_key: dict[Any, list[Row]] = defaultdict(list)
    for row in (r for a in arrivals for r in a.rows):
        by_key[key_of(row)].append(row)
    parts = [rows[s : s + size] for rows in by_key.values() for s in range(0, len(rows) - size + 1, advance)]
    return [(min(r[0] for r in p), max(r[0] for r in p), p) for p in parts]


@cache
def database() -> Any:
    connection = duckdb.connect()
    connection.execute("set threads = 1")
    return connection


def expected(contents: Contents, functions: dict[str, str] = SQL) -> list[tuple[Any, ...]]:
    """The result tuples: k, d, window_start, window_end, then the functions, computed by DuckDB."""
    if not contents:
        return []
    columns: dict[str, list[Any]] = {name: [] for name in ("window", "ts", "k", "d", "v", "n", "b")}
    for number, (_, _, rows) in enumerate(contents):
        for row in rows:
            for name, value in zip(columns, (number, *row), strict=True):
                columns[name].append(value)
    types = [pa.int64(), pa.int64(), pa.string(), pa.float64(), pa.float64(), pa.int32(), pa.int64()]
    data = pa.table([pa.array(c, t) for c, t in zip(columns.values(), types, strict=True)], list(columns))
    connection = database()
    connection.register("data", data)
    calls = ", ".join(f"{text} AS {name}" for name, text in functions.items())
    rows = connection.sql(f"SELECT {calls} FROM data GROUP BY data.window ORDER BY data.window").fetchall()
    heads = [(part[0][1], part[0][2], start, end) for start, end, part in contents]
    return [(*head, *row) for head, row in zip(heads, rows, strict=True)]


def trains_of(arrival: Arrival, size: int | None, pool: StringPool | None) -> list[Train]:
    """Trains of at most ``size`` rows with this pool of strings; without one, a new one for each arrival."""
    names = SCHEMA.names
    whole = Train.from_pylists(SCHEMA, {n: [r[i] for r in arrival.rows] for i, n in enumerate(names)}, 0)
    if pool is not None:
        codes = pool.encode([r[1] or "" for r in arrival.rows])
        whole = whole.with_column(SCHEMA["k"], codes, whole.null_mask(1), pool)
    size = size or max(1, whole.count)
    return [whole.slice(i, min(i + size, whole.count)) for i in range(0, whole.count, size)]


@contextmanager
def tiny() -> Iterator[None]:
    """Thresholds so low that a few rows grow tables, renumber slots and keys, merge runs and cut trains."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(slots, "_START", 2)
        patch.setattr(keys, "_SPARE", 0)
        patch.setattr(time_index, "_SMALL", 0)
        patch.setattr(value_log, "_SMALL", 0)
        patch.setattr(direct_table, "_RANGE", 8)
        patch.setattr(distinct, "_DENSE", 0)
        patch.setattr(level, "_TABLE_KEYS", 0)
        patch.setattr(windows, "_LARGE", 0)
        for module in (windows, panes, counted_module):
            patch.setattr(module, "MAX_TRAIN", 3)
        yield


class Driver:
    """The box alone, as a worker drives it: run, then advance. Counts what must be conserved."""

    def __init__(self, pool: StringPool | None = None, **parameters: Any) -> None:
        self.pool = pool
        self.box = Aggregate(Aggregate.parameters_model.model_validate(parameters))
        self.schema, _ = self.box.bind((SCHEMA,), ("ts",))
        self.state: Any = self.box.new_state()
        self.tally = Tally()
        self.trains: list[Train] = []
        self.late: list[tuple[Any, ...]] = []
        self.taken = 0
        self.announced_ns = NO_WATERMARK  # what is downstream has been told that nothing older comes
        self.in_time = "window_end" in self.schema and self.box.parameters.window.count is None

    def emit(self, port: int, train: Train) -> None:
        train.verify()
        assert train.count
        if not port and self.in_time:
            assert int(train.columns[self.schema.index("window_end")].min()) > self.announced_ns
        if port:
            self.late += train.to_rows()
        else:
            self.trains.append(train)

    def feed(self, arrival: Arrival, size: int | None = None) -> None:
        for train in trains_of(arrival, size, self.pool):
            self.box.run(self.state, 0, train, self.emit, self.tally)
            self.taken += train.count
        if arrival.watermark_ns > NO_WATERMARK:
            self.box.advance(self.state, arrival.watermark_ns, self.emit, self.tally)
            self.announced_ns = max(self.announced_ns, arrival.watermark_ns)
        assert self.taken == self.tally.absorbed + self.tally.late + self.tally.dead
        assert self.box.state_nbytes(self.state) >= 0

    def restart(self) -> None:
        self.state = self.box.restore(self.box.snapshot(self.state))

    def rows(self) -> list[tuple[Any, ...]]:
        return [row for train in self.trains for row in train.to_rows()]


def comparable(rows: Iterable[tuple[Any, ...]]) -> list[tuple[str, ...]]:
    """In one order, with floats to nine digits: sums of floats depend on the order of their parts."""
    return sorted(tuple(_text(value) for value in row) for row in rows)


def _text(value: Any) -> str:
    if isinstance(value, float):
        return "nan" if math.isnan(value) else f"{value + 0.0:.9g}" if abs(value) > 1e-9 else "0"
    return "null" if value is None else str(value)
