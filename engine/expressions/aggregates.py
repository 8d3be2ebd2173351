"""Aggregates: an expression over the tuples of a window, taken apart into calls and what is done with their results.

``sum(price * size) / sum(size)`` becomes two calls and the expression ``#0 / #1``. The box keeps one accumulator for
each call, and when a window closes evaluates the outer expression over a scope whose columns are the results:

    split = split_aggregates("sum(price * size) / sum(size)", schema, group=by)
    for call in split.calls: ...                     # call.argument.evaluate(scope) feeds the accumulator
    split.outer.evaluate(Scope(None, count=n, columns={"#0": Vector(...), "#1": Vector(...), "symbol": ...}))

Types and nullability are Spark's. Calls with equal meaning are one call. ``f(x) filter (where c)`` is
``f(if(c, x, null))``, which is the same for every aggregate that skips NULL.

There are no arrays, so ``collect_list`` is taken only in the two forms that end as a string:
``concat_ws(sep, collect_list(x))`` and ``string_agg(x, sep)``. Both are the call ``collect_list`` with the separator as
its parameter; it is NULL when there was nothing to collect, and the first form turns that into the empty string.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from sqlglot import exp

from catalog.schema import Field, Schema, Type
from engine.expressions.aggregate_names import AGGREGATE_NAMES, Aggregate
from engine.expressions.coerce import Refusal
from engine.expressions.compile import Compiler
from engine.expressions.conditional import choose, coalesce
from engine.expressions.expression import Expression, finish
from engine.expressions.functions import FUNCTIONS
from engine.expressions.node import Node, constant
from engine.expressions.parse import parse


@dataclass(frozen=True, slots=True)
class AggregateCall:
    """One accumulator's worth. ``argument`` is None for ``count(*)``; NULL arguments are skipped by every aggregate
    but first and last, whose parameter says whether they skip them."""

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
        """The group's fields that stand outside every call."""
        return frozenset(name for name in self.outer.fields if not name.startswith("#"))


def split_aggregates(
    text: str, schema: Schema, *, group: Schema | None = None, expect: Type | None = None
) -> AggregatedExpression:
    """Take an expression with aggregates apart. ``group`` holds what may stand outside the calls (the fields grouped
    by, the window's bounds); None allows every field and leaves the check to the caller, who reads ``fields``."""
    compiler = _AggregateCompiler(text, schema, group)
    node = compiler.compile(parse(text))
    return AggregatedExpression(text, tuple(compiler.calls), finish(compiler, node, expect))


# -- taking apart ---------------------------------------------------------------------------------------------------


_DISTINCT = frozenset({"count", "sum", "avg"})
_NO_EFFECT = frozenset({"min", "max"})  # of DISTINCT


class _AggregateCompiler(Compiler):
    """Compiles what is outside the calls; each call becomes a field of the outer schema."""

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
            self.fail(tree, f"{name} takes one argument: {aggregate.signature}")
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
            self.fail(nested, "an aggregate inside an aggregate")
        node = compiler.build(inner)
        if where is not None:
            node = choose(compiler.build(where), node, constant(None, node.type))
        if node.type is None:
            self.fail(inner, "a bare NULL has no type here", "write cast(null as ...)")
        made = finish(compiler, node, None)
        made.text = inner.sql("spark")
        return made

    def parameters(
        self, tree: exp.Expression, aggregate: Aggregate, rest: list[exp.Expression], ignore_nulls: bool
    ) -> tuple[Any, ...]:
        if len(rest) > aggregate.parameters:
            self.fail(tree, f"too many arguments: {aggregate.signature}")
        values: list[Any] = []
        for part in rest:
            node = Compiler(self.text, self.input).build(part)
            if node.constant is None or node.value is None:
                self.fail(part, f"this must be a constant: {aggregate.signature}")
            values.append(node.value)
        return self.checked(tree, aggregate, values, ignore_nulls)

    def checked(
        self, tree: exp.Expression, aggregate: Aggregate, values: list[Any], ignore_nulls: bool
    ) -> tuple[Any, ...]:
        name = aggregate.name
        if name in ("first", "last"):
            if values and not isinstance(values[0], bool):
                self.fail(tree, f"the second argument says whether to ignore nulls: {name}(x, true)")
            return (ignore_nulls or bool(values and values[0]),)
        if name.startswith("percentile"):
            if not values or isinstance(values[0], bool | str) or not 0 <= values[0] <= 1:
                self.fail(tree, f"the share is a number from 0 to 1: {aggregate.signature}")
            return (float(values[0]), *values[1:])
        if name == "collect_list":
            if len(values) != 1 or not isinstance(values[0], str):
                hint = "write string_agg(x, ',') or concat_ws(',', collect_list(x)) for a string"
                self.fail(tree, "there are no arrays", hint)
            return tuple(values)
        return tuple(values)

    def collected(self, tree: exp.Expression, separator: exp.Expression, inner: exp.Expression) -> Node:
        """``concat_ws(sep, collect_list(x))``: the empty string when nothing was collected."""
        call = exp.Anonymous(this="string_agg", expressions=[*inner.expressions, separator])
        call.meta.update(tree.meta)
        return coalesce([self.build(call), constant("", Type.STRING)])

    def register(
        self,
        tree: exp.Expression,
        aggregate: Aggregate,
        argument: Expression | None,
        distinct: bool,
        parameters: tuple[Any, ...],
    ) -> Node:
        if distinct and aggregate.name not in _DISTINCT | _NO_EFFECT:
            self.fail(tree, f"{aggregate.name} does not take distinct")
        distinct = distinct and aggregate.name in _DISTINCT
        kind: Type | None = Type.BIGINT if argument is None else aggregate.result(argument.type)
        if kind is None:
            self.fail(tree, f"{aggregate.name} does not take a {argument.type}" if argument else aggregate.signature)
        if aggregate.name == "count" and argument is not None and not argument.nullable and not distinct:
            argument = None  # every tuple counts
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
    """The name of the call under FILTER and IGNORE NULLS, the call, and the filter's condition."""
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
