"""A compiled expression, as boxes use it: evaluate it over a train, or read it as a filter."""

from __future__ import annotations

from collections.abc import Iterable
from contextvars import ContextVar

import numpy as np

from catalog.errors import ExpressionError
from catalog.schema import Schema, Type
from engine.operators.expressions.compiler.compile import Compiler
from engine.operators.expressions.compiler.parse import parse
from engine.operators.expressions.tree import node as nodes
from engine.operators.expressions.tree.coerce import with_article
from engine.operators.expressions.tree.node import INTERVAL, MONTHS, ColumnTest, Node
from engine.operators.expressions.tree.vector import Mask, Scope, Vector, stretch

_FLAGS_IGNORED: ContextVar[bool] = ContextVar("numpy ignores floating-point flags", default=False)


class Expression:
    """A checked expression over one schema. Immutable: any number of threads may evaluate it, each with its scope."""

    __slots__ = ("_sets_float_flags", "fields", "key", "node", "nullable", "text", "type")

    def __init__(self, text: str, node: Node, fields: frozenset[str]) -> None:
        assert node.type is not None
        self.text = text
        self.node = node
        self.type: Type = node.type
        self.nullable = node.nullable
        self.fields = fields
        self.key = node.key
        self._sets_float_flags = node.sets_float_flags

    def __repr__(self) -> str:
        return f"Expression({self.text!r}: {self.type}{'?' if self.nullable else ''})"

    @property
    def test(self) -> ColumnTest | None:
        """Return the predicate as one comparison of a column with a constant; None when it is more than that."""
        return self.node.test

    @property
    def needs(self) -> tuple[ColumnTest, ...]:
        """Return comparisons of a column with a constant that are true wherever the predicate is. None for a predicate
        that may count an error: a tuple that fails them must still be evaluated."""
        return () if self.node.fallible else self.node.needs

    def evaluate(self, scope: Scope) -> Vector:
        """Compute the value of every tuple of the train."""
        if self._sets_float_flags:
            ignore_float_flags()
        vector = self.node.run(scope)
        count = scope.count
        if vector.values.shape[0] == count and (vector.valid is None or vector.valid.shape[0] == count):
            return vector
        valid = None if vector.valid is None else stretch(vector.valid, count)
        return Vector(stretch(vector.values, count), valid, vector.pool)

    def mask(self, scope: Scope) -> Mask | None:
        """Read a boolean as a filter: True where it is true, False where it is false or NULL; None for all true."""
        if self._sets_float_flags:
            ignore_float_flags()
        mask = self.node.mask(scope)
        if mask is None or mask.shape[0] == scope.count:
            return mask
        return stretch(mask, scope.count)


def ignore_float_flags() -> None:
    """Stop numpy's warnings: infinity and NaN are values here. Entering np.errstate for each train would cost 1.6 us.
    numpy keeps the setting in the thread's context, so it is set once for each context and remembered there. Within an
    np.errstate of a caller it is not remembered: the warnings come back when the caller leaves it."""
    if not _FLAGS_IGNORED.get() and set(np.geterr().values()) != {"ignore"}:
        np.seterr(all="ignore")
        _FLAGS_IGNORED.set(True)


def compile_expression(text: str, schema: Schema, *, expect: Type | None = None) -> Expression:
    """Compile SQL text over a schema. ``expect`` is the type that the caller needs. Raises ExpressionError."""
    compiler = Compiler(text, schema)
    return finish(compiler, compiler.compile(parse(text)), expect)


def finish(compiler: Compiler, node: Node, expect: Type | None) -> Expression:
    """Make the expression of a compiled node, after checking its type."""
    text = compiler.text
    if node.type is None:
        if expect is None:
            raise ExpressionError("a bare NULL has no type here", text, 0, "write cast(null as ...)")
        node = nodes.constant(None, expect)
    if node.type in (INTERVAL, MONTHS):
        hint = "compare it with an interval, add it to a timestamp, or subtract unix_millis(...) of both"
        raise ExpressionError("an interval cannot be a column", text, 0, hint)
    if expect is not None and node.type is not expect:
        raise ExpressionError(f"{with_article(expect)} is expected here, this is {with_article(node.type)}", text, 0)
    nodes.share([node])
    return Expression(text, node, frozenset(compiler.fields))


def share(expressions: Iterable[Expression]) -> None:
    """Mark subexpressions that occur more than once in these expressions, so that a scope computes them once."""
    nodes.share(e.node for e in expressions)
