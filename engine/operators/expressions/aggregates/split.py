"""Split an expression over the tuples of a window into aggregate calls and an expression over their results.

``sum(price * size) / sum(size)`` becomes two calls and the outer expression ``#0 / #1``. The box keeps one accumulator
for each call. When a window closes, it evaluates the outer expression over a scope whose columns are the results:

    split = split_aggregates("sum(price * size) / sum(size)", schema, group=by)
    for call in split.calls: ...                     # call.argument.evaluate(scope) feeds the accumulator
    split.outer.evaluate(Scope(None, count=n, columns={"#0": Vector(...), "#1": Vector(...), "symbol": ...}))

Types and nullability are Spark's. Calls with equal meaning become one call. ``f(x) filter (where c)`` is compiled as
``f(if(c, x, null))``, which is the same for every aggregate that skips NULL.

There are no arrays, so ``collect_list`` is accepted only in two forms that give a string:
``concat_ws(sep, collect_list(x))`` and ``string_agg(x, sep)``. Both become the call ``collect_list`` with the separator
as its parameter. It is NULL when no value was collected; the first form turns that into the empty string.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from sqlglot import exp

from catalog.schema import Field, Schema, Type
from engine.operators.expressions.aggregates.table import AGGREGATE_NAMES, AggregateFunction
from engine.operators.expressions.compiler.compile import Compiler
from engine.operators.expressions.compiler.parse import parse
from engine.operators.expressions.expression import Expression, finish
from engine.operators.expressions.functions import FUNCTIONS
from engine.operators.expressions.functions.conditional import choose, coalesce
from engine.operators.expressions.tree.coerce import Refusal, with_article
from engine.operators.expressions.tree.node import Node, constant


@dataclass(frozen=True, slots=True)
class AggregateCall:
    """One call, which needs one accumulator. ``argument`` is None for ``count(*)``. Every aggregate skips NULL
    arguments; first and last do so if their parameter is true."""

    function: str  # its one name: stddev_samp for stddev, var_samp for variance, collect_list for string_agg
    argument: Expression | None
    distinct: bool
    parameters: tuple[Any, ...]
    type: Type
    nullable: bool
    key: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class AggregatedExpression:
    """``outer`` reads the results as fields ``#0``, ``#1``... in the order of ``calls``, beside the group's fields."""

    text: str
    calls: tuple[AggregateCall, ...]
    outer: Expression

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(f"#{at}" for at in range(len(self.calls)))

    @property
    def type(self) -> Type:
        return self.outer.type

    @property
    def nullable(self) -> bool:
        return self.outer.nullable

    @property
    def fields(self) -> frozenset[str]:
        """Return the fields of the group that stand outside every call."""
        return frozenset(name for name in self.outer.fields if not name.startswith("#"))


def split_aggregates(
    text: str, schema: Schema, *, group: Schema | None = None, expect: Type | None = None
) -> AggregatedExpression:
    """Split an expression with aggregates. ``group`` holds the fields that may stand outside the calls (those of BY and
    the window's bounds). None allows every field and leaves the check to the caller, who reads ``fields``."""
    compiler = _AggregateCompiler(text, schema, group)
    node = compiler.compile(parse(text))
    return AggregatedExpression(text, tuple(compiler.calls), finish(compiler, node, expect))


# -- the compiler ---------------------------------------------------------------------------------------------------


_NO_EFFECT = frozenset({"min", "max"})  # of DISTINCT


class _AggregateCompiler(Compiler):
    """Compiles the outer expression; each aggregate call becomes a field ``#n`` of its schema."""

    def __init__(self, text: str, schema: Schema, group: Schema | None) -> None:
        super().__init__(text, schema if group is None else group)
        self.input = schema
        self.grouped = group is not None
        self.calls: list[AggregateCall] = []

    def build(self, tree: exp.Expression) -> Node:
        separator = _collected(tree)
        if separator is not None:
            return self.collected(tree, *separator)
        name, inner, where = _unwrapped(tree)
        return self.aggregate(tree, name, inner, where) if name in AGGREGATE_NAMES else super().build(tree)

    def function_names(self) -> Iterable[str]:
        return {**FUNCTIONS, **AGGREGATE_NAMES}

    def resolve(self, name: str) -> str | None:
        found = super().resolve(name)
        if found is None and self.grouped and Compiler(self.text, self.input).resolve(name) is not None:
            hint = f"add {name} to by, or write first({name})"
            raise Refusal(f"{name} is neither inside an aggregate nor grouped by", hint)
        return found

    def aggregate(self, tree: exp.Expression, name: str, inner: exp.Expression, where: exp.Expression | None) -> Node:
        aggregate = AGGREGATE_NAMES[name]
        arguments = list(inner.expressions)
        ignore_nulls = isinstance(tree, exp.IgnoreNulls)
        distinct = False
        if arguments and isinstance(arguments[0], exp.Distinct):
            distinct, arguments = True, list(arguments[0].expressions) + arguments[1:]
        if arguments and isinstance(arguments[0], exp.IgnoreNulls):
            ignore_nulls, arguments[0] = True, arguments[0].this
        if aggregate.name == "count" and len(arguments) == 1 and isinstance(arguments[0], exp.Star) and not distinct:
            argument = None if where is None else self.argument(tree, exp.Literal.number(1), where)
        elif not arguments or (aggregate.name == "count" and len(arguments) > 1):
            self.fail(tree, f"{name} takes one argument: {aggregate.signature.text}")
        else:
            argument = self.argument(tree, arguments[0], where)
        parameters = self.parameters(tree, aggregate, arguments[1:], ignore_nulls)
        if where is not None and aggregate.name in ("first", "last") and parameters != (True,):
            self.fail(tree, f"{name} with a filter must ignore nulls", f"write {name}(x, true) filter (where ...)")
        return self.register(tree, aggregate, argument, distinct, parameters)

    def argument(self, tree: exp.Expression, inner: exp.Expression, where: exp.Expression | None) -> Expression:
        compiler = Compiler(self.text, self.input)
        nested = next((n for n in inner.find_all(exp.Anonymous) if n.name.lower() in AGGREGATE_NAMES), None)
        if nested is not None:
            self.fail(nested, "an aggregate cannot contain another aggregate")
        node = compiler.build(inner)
        if where is not None:
            node = choose(compiler.build(where), node, constant(None, node.type))
        if node.type is None:
            self.fail(inner, "a bare NULL has no type here", "write cast(null as ...)")
        made = finish(compiler, node, None)
        made.text = inner.sql("spark")
        return made

    def parameters(
        self, tree: exp.Expression, aggregate: AggregateFunction, rest: list[exp.Expression], ignore_nulls: bool
    ) -> tuple[Any, ...]:
        if len(rest) > aggregate.parameters:
            self.fail(tree, f"too many arguments: {aggregate.signature.text}")
        values: list[Any] = []
        for part in rest:
            node = Compiler(self.text, self.input).build(part)
            if node.constant is None or node.value is None:
                self.fail(part, f"this must be a constant: {aggregate.signature.text}")
            values.append(node.value)
        return self.checked(tree, aggregate, values, ignore_nulls)

    def checked(
        self, tree: exp.Expression, aggregate: AggregateFunction, values: list[Any], ignore_nulls: bool
    ) -> tuple[Any, ...]:
        name = aggregate.name
        if name in ("first", "last"):
            if values and not isinstance(values[0], bool):
                self.fail(tree, f"the second argument says whether to ignore nulls: {name}(x, true)")
            return (ignore_nulls or bool(values and values[0]),)
        if name.startswith("percentile"):
            if not values or isinstance(values[0], bool | str) or not 0 <= values[0] <= 1:
                self.fail(tree, f"the share is a number from 0 to 1: {aggregate.signature.text}")
            return (float(values[0]), *values[1:])
        if name == "collect_list":
            if len(values) != 1 or not isinstance(values[0], str):
                hint = "write string_agg(x, ',') or concat_ws(',', collect_list(x)) for a string"
                self.fail(tree, "arrays are not supported", hint)
            return tuple(values)
        return tuple(values)

    def collected(self, tree: exp.Expression, separator: exp.Expression, inner: exp.Expression) -> Node:
        """Compile ``concat_ws(sep, collect_list(x))``: the empty string when no value was collected."""
        call = exp.Anonymous(this="string_agg", expressions=[*inner.expressions, separator])
        call.meta.update(tree.meta)
        return coalesce([self.build(call), constant("", Type.STRING)])

    def result_type(self, tree: exp.Expression, aggregate: AggregateFunction, argument: Expression) -> Type:
        kind = aggregate.result(argument.type)
        return kind or self.fail(tree, f"{aggregate.name} does not take {with_article(argument.type)}")

    def register(
        self,
        tree: exp.Expression,
        aggregate: AggregateFunction,
        argument: Expression | None,
        distinct: bool,
        parameters: tuple[Any, ...],
    ) -> Node:
        if distinct and not aggregate.distinct and aggregate.name not in _NO_EFFECT:
            self.fail(tree, f"{aggregate.name} does not take distinct")
        distinct = distinct and aggregate.distinct
        kind = Type.BIGINT if argument is None else self.result_type(tree, aggregate, argument)
        if aggregate.name == "count" and argument is not None and not argument.nullable and not distinct:
            argument = None  # no value is NULL: count tuples
        key = f"{aggregate.name}({'distinct ' if distinct else ''}{argument.key if argument else '*'}, {parameters!r})"
        at = next((i for i, call in enumerate(self.calls) if call.key == key), len(self.calls))
        if at == len(self.calls):
            self.calls.append(
                AggregateCall(aggregate.name, argument, distinct, parameters, kind, aggregate.nullable, key)
            )
        name = f"#{at}"
        self.fields.add(name)
        return self.field_node(Field(name, kind, aggregate.nullable))


def _unwrapped(tree: exp.Expression) -> tuple[str, exp.Expression, exp.Expression | None]:
    """Return the name of the call inside FILTER and IGNORE NULLS, the call, and the filter's condition."""
    where: exp.Expression | None = None
    inner = tree
    while isinstance(inner, exp.Filter | exp.IgnoreNulls):
        if isinstance(inner, exp.Filter):
            where = inner.expression.this
        inner = inner.this
    return (inner.name.lower() if isinstance(inner, exp.Anonymous) else ""), inner, where


def _collected(tree: exp.Expression) -> tuple[exp.Expression, exp.Expression] | None:
    if not isinstance(tree, exp.Anonymous) or tree.name.lower() != "concat_ws" or len(tree.expressions) != 2:
        return None
    separator, inner = tree.expressions
    if isinstance(inner, exp.Anonymous) and inner.name.lower() == "collect_list":
        return separator, inner
    return None
