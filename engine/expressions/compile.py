"""Syntax tree to nodes: names looked up, types checked, constants folded, every refusal with its place."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable
from typing import Any, NoReturn

from sqlglot import exp

from catalog.errors import ExpressionError
from catalog.schema import Schema, Type
from engine.expressions.arithmetic import arithmetic, negate
from engine.expressions.coerce import Refusal
from engine.expressions.compare import compare, null_safe_equal
from engine.expressions.logic import conjunction, is_null, is_truth, negation
from engine.expressions.node import INTEGER_RANGE, Node, constant
from engine.expressions.parse import offset_of
from engine.expressions.vector import Scope, Vector

_ARITHMETIC: dict[type[exp.Expression], str] = {
    exp.Add: "+",
    exp.Sub: "-",
    exp.Mul: "*",
    exp.Div: "/",
    exp.Mod: "%",
    exp.IntDiv: "div",
}
_COMPARISON: dict[type[exp.Expression], str] = {
    exp.EQ: "=",
    exp.NEQ: "<>",
    exp.LT: "<",
    exp.GT: ">",
    exp.LTE: "<=",
    exp.GTE: ">=",
}


class Compiler:
    """Compiles one text against one schema."""

    def __init__(self, text: str, schema: Schema) -> None:
        self.text = text
        self.schema = schema
        self.fields: set[str] = set()

    def build(self, tree: exp.Expression) -> Node:
        """The node of a syntax tree."""
        kind = type(tree)
        try:
            if kind in _ARITHMETIC:
                return arithmetic(_ARITHMETIC[kind], self.build(tree.this), self.build(tree.expression))
            if kind in _COMPARISON:
                return compare(_COMPARISON[kind], self.build(tree.this), self.build(tree.expression))
            handler = _HANDLERS.get(kind)
            if handler is None:
                self.fail(tree, f"{_describe(tree)} cannot be used in an expression")
            return handler(self, tree)
        except Refusal as refusal:
            self.fail(tree, refusal.message, refusal.hint)

    def fail(self, tree: exp.Expression, message: str, hint: str = "") -> NoReturn:
        raise ExpressionError(message, self.text, offset_of(tree), hint)

    # -- leaves -----------------------------------------------------------------------------------------------------

    def column(self, tree: exp.Expression) -> Node:
        name = ".".join(part.name for part in tree.parts) if isinstance(tree, exp.Column) else tree.name
        if not isinstance(tree.this, exp.Identifier):
            self.fail(tree, f"{_describe(tree.this)} cannot be used in an expression")
        found = self.resolve(name)
        if found is None:
            self.fail(tree, f"no field {name}", did_you_mean(name, self.schema.names))
        self.fields.add(found)
        field = self.schema[found]
        return Node(_quoted(found), field.type, column_run(found), nullable=field.nullable)

    def resolve(self, name: str) -> str | None:
        """A field by its whole name, else the only one that ends in ``.name``, else the same in any case."""
        names = self.schema.names
        if name in self.schema:
            return name
        tails = [n for n in names if n.endswith("." + name)]
        if len(tails) > 1:
            raise Refusal(f"{name} is ambiguous: {', '.join(tails)}")
        return tails[0] if tails else None

    def literal(self, tree: exp.Expression) -> Node:
        if tree.is_string:
            return constant(tree.this, Type.STRING)
        return number(tree.this)

    def negative(self, tree: exp.Expression) -> Node:
        inner = tree.this
        if isinstance(inner, exp.Literal) and not inner.is_string:
            return number("-" + inner.this)  # so that -2147483648 is an int and -9223372036854775808 exists
        return negate(self.build(inner))

    # -- logic ------------------------------------------------------------------------------------------------------

    def chain(self, tree: exp.Expression) -> Node:
        """AND or OR: the left-deep chain is unrolled in a loop, because it may be thousands long."""
        kind = type(tree)
        parts: list[Node] = []
        stack: list[exp.Expression] = [tree]
        while stack:
            part = stack.pop()
            if type(part) is kind:
                stack.extend((part.expression, part.this))
            else:
                parts.append(self.build(part))
        return conjunction("and" if kind is exp.And else "or", parts)

    def is_(self, tree: exp.Expression) -> Node:
        what = tree.expression
        if isinstance(what, exp.Null):
            return is_null(self.build(tree.this))
        if isinstance(what, exp.Boolean):
            return is_truth(self.build(tree.this), bool(what.this))
        self.fail(tree, "IS takes NULL, NOT NULL, TRUE or FALSE")


def number(text: str) -> Node:
    """A numeric literal: int, bigint when it needs it, double with a point or an exponent."""
    digits = text.lstrip("-")
    if not digits.isdecimal() or not digits.isascii():
        try:
            return constant(float(text), Type.DOUBLE)
        except ValueError:
            raise Refusal(f"{text} is not a number") from None
    value = int(text)
    for kind in (Type.INT, Type.BIGINT):
        low, high = INTEGER_RANGE[kind]
        if low <= value <= high:
            return constant(value, kind)
    raise Refusal(f"{text} does not fit a bigint", f"write {text}.0 for a double")


def column_run(name: str) -> Callable[[Scope], Vector]:
    def run(scope: Scope) -> Vector:
        found = scope.columns.get(name)
        return found if found is not None else scope.column(name)

    return run


def did_you_mean(name: str, names: Iterable[str]) -> str:
    near = difflib.get_close_matches(name.lower(), list(names), n=1, cutoff=0.6)
    return f"did you mean {near[0]}?" if near else ""


def _quoted(name: str) -> str:
    return f"`{name}`"


def _describe(tree: exp.Expression) -> str:
    if isinstance(tree, exp.Subquery | exp.Select | exp.Exists) or tree.find(exp.Select):
        return "a subquery"
    if isinstance(tree, exp.Lambda):
        return "a lambda"
    return type(tree).__name__.lower()


Handler = Callable[[Compiler, Any], Node]
_HANDLERS: dict[type[exp.Expression], Handler] = {
    exp.Column: Compiler.column,
    exp.Literal: Compiler.literal,
    exp.Boolean: lambda compiler, tree: constant(bool(tree.this), Type.BOOLEAN),
    exp.Null: lambda compiler, tree: constant(None, None),
    exp.Paren: lambda compiler, tree: compiler.build(tree.this),
    exp.Neg: Compiler.negative,
    exp.And: Compiler.chain,
    exp.Or: Compiler.chain,
    exp.Not: lambda compiler, tree: negation(compiler.build(tree.this)),
    exp.Is: Compiler.is_,
    exp.NullSafeEQ: lambda compiler, tree: null_safe_equal(compiler.build(tree.this), compiler.build(tree.expression)),
    exp.NullSafeNEQ: lambda compiler, tree: negation(
        null_safe_equal(compiler.build(tree.this), compiler.build(tree.expression))
    ),
}
