"""Published questions, answered by the engine over a stream out of order and by DuckDB over the whole batch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

import pytest

from engine.lab.bench.nexmark.generator import Events, generate
from engine.lab.bench.nexmark.queries import QUERIES, Query
from engine.lab.bench.nexmark.run_query import run_query
from engine.lab.bench.nexmark.sql_answers import SQL, connect

EVENTS, RATE, JITTER_NS, SLACK = 20_000, 500, 300_000_000, "300ms"


@pytest.fixture(scope="module")
def events() -> Events:
    return generate(EVENTS, rate=RATE, seed=7, jitter_ns=JITTER_NS)


@pytest.fixture(scope="module")
def database(events: Events) -> Iterator[Any]:
    connection = connect(events)
    yield connection
    connection.close()


def as_multiset(rows: Iterable[tuple[Any, ...]]) -> Counter[tuple[str, ...]]:
    return Counter(tuple(f"{v:.9g}" if isinstance(v, float) else str(v) for v in row) for row in rows)


@pytest.mark.parametrize(("size", "workers"), [(4_096, 1), (333, 2)])
@pytest.mark.parametrize("query", QUERIES, ids=lambda q: q.name)
def test_the_engine_answers_as_duckdb_does(
    query: Query, size: int, workers: int, events: Events, database: Any
) -> None:
    outcome = run_query(query, events, size=size, slack=SLACK, workers=workers)
    wanted = database.sql(SQL[query.name]).fetchall()
    assert len(wanted) >= 1
    assert as_multiset(row for train in outcome.trains for row in train.to_rows()) == as_multiset(wanted)
    assert outcome.late == 0
