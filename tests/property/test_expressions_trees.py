"""Random typed expression trees over random rows, compared with plain Python and with DuckDB.

DuckDB is an independent implementation. It agrees with Spark on all operations used here, once its text spells out the
differences (``expression_trees``):
- overflow is an error in DuckDB: ``try(a + b)`` makes it NULL;
- division of doubles by zero is infinite there: the divisor goes through ``nullif(y, 0)``;
- ``<=>`` is ``is not distinct from``, ``div`` is ``//``, and a cast that may not fit is ``try_cast``;
- a cast of a double to an integer rounds there and truncates here: ``trunc`` comes first.
"""

from __future__ import annotations

import math
from datetime import UTC, timedelta

import duckdb
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from catalog.schema import Field, Schema, Type
from engine.operators.expressions import Expression, Scope, compile_expression, share
from storage.train import Train
from tests.property.expression_trees import EPOCH, FIELDS, Row, Tree, Value, moment, rows, tree, values

SCHEMA = Schema.of(**FIELDS)


def evaluate(texts: list[str], data: list[Row]) -> list[tuple[str, list[Value]]]:
    """Evaluate all texts over one scope, as boxes do."""
    columns = {name: [row[name] for row in data] for name in FIELDS}
    for name in ("ts", "at"):
        columns[name] = [None if v is None else v * 1_000 for v in columns[name]]
    train = Train.from_pylists(SCHEMA, columns, 0)
    compiled = [compile_expression(text, SCHEMA) for text in texts]
    share(compiled)
    scope = Scope(train)
    out: list[tuple[str, list[Value]]] = []
    for expression in compiled:
        vector = expression.evaluate(scope)
        made = train.with_column(_result_field(expression), vector.values, vector.valid, vector.pool)
        made.verify()  # codes inside their pool, no NULL where none is declared, the right dtype
        result = made.to_pylist(len(made.columns) - 1)
        if expression.type is Type.TIMESTAMP:
            result = [None if v is None else v // 1_000 for v in result]
        if expression.type is Type.BOOLEAN:
            mask = expression.mask(Scope(train))
            assert [v is True for v in result] == ([True] * len(result) if mask is None else mask.tolist()), expression
        out.append((str(expression.type), result))
    return out


def _result_field(expression: Expression) -> Field:
    return Field("result", expression.type, expression.nullable)


def equal(left: Value, right: Value) -> bool:
    if isinstance(left, float) and isinstance(right, float):
        return left == right or (left != left and right != right) or math.isclose(left, right, rel_tol=1e-12)
    return type(left) is type(right) and bool(left == right)


def trees(duck: bool) -> st.SearchStrategy[list[Tree]]:
    return st.lists(st.one_of([tree(kind, 3, duck) for kind in values]), min_size=1, max_size=4)


COMMON = settings(deadline=None, suppress_health_check=list(HealthCheck))


@settings(COMMON, max_examples=150)
@given(trees(duck=False), rows())
def test_trees_mean_what_python_says(made: list[Tree], data: list[Row]) -> None:
    for one, (_, got) in zip(made, evaluate([t.ours for t in made], data), strict=True):
        for row, value in zip(data, got, strict=True):
            assert equal(value, one.value(row)), f"{one.ours} over {row}: {value!r}, Python has {one.value(row)!r}"


@pytest.fixture(scope="module")
def database() -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect()
    connection.execute("set threads to 1; set timezone = 'UTC'")
    return connection


_DUCK = {"string": "varchar"}


@settings(COMMON, max_examples=60)
@given(trees(duck=True), rows())
def test_trees_mean_what_duckdb_says(database: duckdb.DuckDBPyConnection, made: list[Tree], data: list[Row]) -> None:
    declared = ", ".join(f'"{n}" {_DUCK.get(k.rstrip("?"), k.rstrip("?"))}' for n, k in FIELDS.items())
    database.execute(f"create or replace temp table rows ({declared}, number int)")
    plain = [
        [moment(row[n]).replace(tzinfo=None) if n in ("ts", "at") and row[n] is not None else row[n] for n in FIELDS]
        + [k]
        for k, row in enumerate(data)
    ]
    database.executemany(f"insert into rows values ({', '.join('?' * (len(FIELDS) + 1))})", plain)
    select = ", ".join(f"({t.duck})" for t in made)
    answers = database.execute(f"select {select} from rows order by number").fetchall()
    results = evaluate([t.ours for t in made], data)
    for at, (one, (kind, got)) in enumerate(zip(made, results, strict=True)):
        for row, value, answer in zip(data, got, (a[at] for a in answers), strict=True):
            if kind == "timestamp" and answer is not None:
                answer = (answer.replace(tzinfo=UTC) - EPOCH) // timedelta(microseconds=1)
            assert equal(value, answer), f"{one.ours} over {row}: {value!r}, DuckDB has {answer!r}"
