"""The documentation of every function is run: its example gives its value, its signature accepts its types."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator
from typing import Any

import pytest
from sqlglot import exp
from typer.testing import CliRunner

from catalog.errors import ExpressionError
from catalog.schema import Field, Schema, Type
from engine.cli import make_app
from engine.operators.boxes.aggregate import Aggregate
from engine.operators.boxes.base import Tally
from engine.operators.expressions import AGGREGATES, FUNCTIONS, Scope, compile_expression
from engine.operators.expressions.aggregates.split import split_aggregates
from engine.operators.expressions.compiler.compile import HANDLERS
from engine.operators.expressions.compiler.parse import parse
from engine.operators.expressions.function_docs import (
    AGGREGATE_FAMILY,
    OPERATOR_FAMILY,
    FunctionDoc,
    catalogue,
    find,
)
from engine.operators.expressions.tree.coerce import wider, with_article
from storage.train import Train

DOCS = catalogue()
OPERATORS = [doc for doc in DOCS if doc.family == OPERATOR_FAMILY]
SCALARS = [doc for doc in DOCS if doc.family not in (OPERATOR_FAMILY, AGGREGATE_FAMILY)]
AGGREGATE_DOCS = [doc for doc in DOCS if doc.family == AGGREGATE_FAMILY]
EMPTY = Schema.of(unused="int")
COLUMNS = Schema(tuple(Field(f"a_{type}", type, True) for type in Type))
CONSTANTS = {  # for arguments that must be constants, by their names
    "digits": "2",
    "pattern": "'(a+)'",
    "new": "'b'",
    "group": "1",
    "unit": "'hour'",
    "field": "'hour'",
    "format": "'yyyy'",
    "ignore_nulls": "true",
    "share": "0.5",
    "accuracy": "100",
    "relative_error": "0.1",
    "separator": "','",
}


def value_of(text: str) -> tuple[Type | None, Any]:
    """Evaluate an expression without fields: its type (None for a bare NULL) and its value."""
    if text == "NULL":
        return None, None
    expression = compile_expression(text, EMPTY)
    vector = expression.evaluate(Scope(None, count=1))
    if vector.valid is not None and not vector.valid[0]:
        return expression.type, None
    raw = vector.values[0].item()
    return expression.type, raw if vector.pool is None else vector.pool.values[raw]


def same(left: Any, right: Any) -> bool:
    if isinstance(left, float) and isinstance(right, float | int):
        return math.isclose(left, right, rel_tol=1e-13)
    return type(left) is type(right) and bool(left == right)


def allowed(returns: str, types: dict[str, Type]) -> set[Type]:
    """Return the types that the result may have by the signature, given the types of the arguments."""
    if returns.startswith("type of "):
        return {types[returns.removeprefix("type of ")]}
    if returns.startswith("common type of "):
        found = [types[name] for name in re.split(", | and ", returns.removeprefix("common type of "))]
        kind = found[0]
        for other in found[1:]:
            kind = (
                wider(kind, other) if kind.is_numeric and other.is_numeric else kind if kind is other else Type.STRING
            )
        return {kind}
    return {Type(word) for word in returns.split(" or ")}


@pytest.mark.parametrize("doc", OPERATORS + SCALARS, ids=lambda doc: doc.name)
def test_an_example_gives_its_value(doc: FunctionDoc) -> None:
    type, value = value_of(doc.example)
    _, expected = value_of(doc.result)
    assert same(value, expected), f"{doc.example} is {value!r}, not {doc.result}"
    if not re.search("type|interval", doc.returns) and value is not None:
        assert type is not None and str(type) in doc.returns.split(" or ")


@pytest.mark.parametrize("doc", SCALARS, ids=lambda doc: doc.name)
def test_an_example_calls_its_function(doc: FunctionDoc) -> None:
    assert any(f"{name}(" in doc.example for name in (doc.name, *doc.aliases))


def test_the_examples_cover_every_syntax_that_compiles() -> None:
    shown = {type(node) for doc in DOCS for node in parse(doc.example).walk()}
    assert set(HANDLERS) - shown == {exp.RawString, exp.Concat, exp.StrPosition}, "an operator without documentation"


def calls(doc: FunctionDoc) -> Iterator[tuple[str, set[Type]]]:
    """Yield calls with every choice of argument types, with and without optional arguments, and their result types."""
    for arguments in (doc.arguments, [a for a in doc.arguments if not a.optional]):
        for types in itertools.product(*(a.types for a in arguments)):
            any_types = {type for a, type in zip(arguments, types, strict=True) if a.type == "any"}
            if len(any_types) > 1 and not all(type.is_numeric for type in any_types):
                continue  # not every two types have a common type
            by_name = {a.name: type for a, type in zip(arguments, types, strict=True)}
            args = [CONSTANTS[a.name] if a.constant else f"a_{by_name[a.name]}" for a in arguments]
            expected = allowed(doc.returns, by_name)
            yield f"{doc.name}({', '.join(args)})", expected


@pytest.mark.parametrize("doc", SCALARS, ids=lambda doc: doc.name)
def test_a_function_takes_the_types_of_its_signature(doc: FunctionDoc) -> None:
    found = list(calls(doc))
    assert found
    for text, expected in found:
        assert compile_expression(text, COLUMNS).type in expected, text


@pytest.mark.parametrize("doc", SCALARS, ids=lambda doc: doc.name)
@pytest.mark.parametrize("count", [0, 2])
def test_a_function_runs_on_no_tuples_and_on_nulls(doc: FunctionDoc, count: int) -> None:
    rows = Train.from_pylists(COLUMNS, {field.name: [None] * count for field in COLUMNS}, 0)
    for text, _ in calls(doc):
        assert compile_expression(text, COLUMNS).evaluate(Scope(rows)).values.shape == (count,), text


def aggregated(doc: FunctionDoc) -> tuple[Type, Any]:
    """Run the example in an aggregate box, over its values of x in one window."""
    literals = [value_of(text) for text in doc.values]
    kind = next(type for type, _ in literals if type is not None)
    schema = Schema((Field("ts", Type.TIMESTAMP, False), Field("x", kind, True)))
    parameters = {"window": {"tumbling": "1s"}, "bounds": [], "select": {"out": doc.example}}
    box = Aggregate(Aggregate.parameters_model.model_validate(parameters))
    out_schema, _ = box.bind((schema,), ("ts",))
    state, out = box.new_state(), list[Train]()
    train = Train.from_pylists(schema, {"ts": list(range(len(literals))), "x": [value for _, value in literals]}, 0)
    box.run(state, 0, train, lambda port, made: out.append(made), Tally())
    box.advance(state, 10**9, lambda port, made: out.append(made), Tally())
    [[value]] = [row for made in out for row in made.to_rows()]
    return out_schema["out"].type, value


@pytest.mark.parametrize("doc", AGGREGATE_DOCS, ids=lambda doc: doc.name)
def test_the_example_of_an_aggregate_gives_its_value(doc: FunctionDoc) -> None:
    type, value = aggregated(doc)
    assert same(value, value_of(doc.result)[1]), f"{doc.example} over {doc.values} is {value!r}, not {doc.result}"
    if "type of" not in doc.returns:
        assert str(type) in doc.returns.split(" or ")


@pytest.mark.parametrize("doc", AGGREGATE_DOCS, ids=lambda doc: doc.name)
def test_an_aggregate_takes_the_types_of_its_signature_and_no_other(doc: FunctionDoc) -> None:
    first, *rest = doc.arguments
    for type in Type:
        text = f"{doc.name}({', '.join([f'a_{type}', *(CONSTANTS[a.name] for a in rest)])})"
        if type in first.types:
            assert split_aggregates(text, COLUMNS).type in allowed(doc.returns, {first.name: type}), text
        else:
            with pytest.raises(ExpressionError, match=f"does not take {with_article(type)}"):
                split_aggregates(text, COLUMNS)


def test_the_catalogue_is_complete() -> None:
    names = [name for doc in SCALARS for name in (doc.name, *doc.aliases)]
    assert sorted(names) == list(FUNCTIONS)
    assert len(AGGREGATE_DOCS) == len(AGGREGATES)
    for doc in SCALARS + AGGREGATE_DOCS:
        assert doc.signature.startswith(doc.name + "(") and doc.signature.endswith(f") -> {doc.returns}")
    for doc in DOCS:
        assert 3 < len(doc.description) <= 100 and not doc.description.endswith("."), doc
        assert doc in find(doc.name.upper()) and all(doc in find(alias) for alias in doc.aliases)


def test_the_command_lists_and_explains() -> None:
    listed = CliRunner().invoke(make_app(), ["functions"])
    assert listed.exit_code == 0 and "date_trunc" in listed.stdout and "percentile" in listed.stdout
    explained = CliRunner().invoke(make_app(), ["functions", "STDDEV"])
    assert "stddev_samp(x: number) -> double" in explained.stdout and "stddev(x) = 2.0" in explained.stdout
    unknown = CliRunner().invoke(make_app(), ["functions", "date_trnc"])
    assert unknown.exit_code == 2 and "date_trunc" in unknown.stderr
