"""``bench nexmark``: the published queries in trains, against the same SQL over the whole batch by DuckDB.

The engine has one worker and gets trains of 10,000, in order, at 10,000 events a second of event time. DuckDB runs on
one thread and gets all rows at once. The rate counts the events of all streams of a query. The benchmark compares the
numbers of result rows; the tests compare every row. ``state_bytes`` is the largest state of a query's boxes, measured
in a run of its own.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence

from engine.lab.bench.harness import BenchError, Options, interleave
from engine.lab.bench.nexmark.generator import Events, generate
from engine.lab.bench.nexmark.queries import BY_NAME, Query
from engine.lab.bench.nexmark.run_query import run_query
from engine.lab.bench.nexmark.sql_answers import SQL, connect
from engine.lab.bench.report import Result
from engine.run.tuning import tune_process
from storage.compiled.compiler import compile_known

NAMES = tuple(BY_NAME)


def engine_rate(query: Query, events: Events, expected: int) -> Callable[[], float]:
    rows = sum(events.train(stream).count for stream in query.streams)

    def once() -> float:
        outcome = run_query(query, events)
        found = sum(train.count for train in outcome.trains)
        if found != expected:
            raise BenchError(f"{query.name} gave {found} rows instead of {expected}")
        return rows / outcome.seconds

    return once


def batch_rate(query: Query, events: Events, database: object) -> Callable[[], float]:
    rows = sum(events.train(stream).count for stream in query.streams)

    def once() -> float:
        begun = time.perf_counter()
        database.sql(SQL[query.name]).to_arrow_table()  # type: ignore[attr-defined]
        return rows / (time.perf_counter() - begun)

    return once


def run(options: Options, names: Sequence[str] = ()) -> Iterator[Result]:
    compile_known()
    tune_process()
    events = generate(100_000 if options.quick else 1_000_000)
    database = connect(events)
    database.execute("set threads = 1")
    try:
        for name in names or NAMES:
            yield measure(BY_NAME[name], events, database, options)
    finally:
        database.close()


def measure(query: Query, events: Events, database: object, options: Options) -> Result:
    expected = database.sql(SQL[query.name]).to_arrow_table().num_rows  # type: ignore[attr-defined]
    contenders = {"engine": engine_rate(query, events, expected), "batch": batch_rate(query, events, database)}
    rates = interleave(contenders, options.rounds)
    watched = run_query(query, events, watch=True)
    extra = {"title": query.title, "rows_out": expected, "state_bytes": watched.state_bytes}
    case = f"{query.name},batch=duckdb"
    return Result.of_rounds("nexmark", case, "events_per_s", rates["engine"], rates["batch"], "in memory", extra)
