"""The public face of a compiled expression."""

from __future__ import annotations

from collections.abc import Iterable
from contextvars import ContextVar

import numpy as np

from catalog.errors import ExpressionError
from catalog.schema import Schema, Type
from engine.expressions import node as nodes
from engine.expressions.compile import Compiler
from engine.expressions.node import INTERVAL, MONTHS, ColumnTest, Node
from engine.expressions.parse import parse
from engine.expressions.vector import Mask, Scope, Vector, stretch

_QUIET: ContextVar[bool] = ContextVar("floating-point flags are ignored", default=False)


class Expression:
    """A checked expression over one schema. Constant; any number of threads may evaluate it, each with its scope."""

    __slots__ = ("_noisy", "fields", "key", "node", "nullable", "text", "type")

    def __init__(self, text: str, node: Node, fields: frozenset[str]) -> None:
        assert node.type is not None
        self.text = text
        self.node = node
        self.type: Type = node.type
        self.nullable = node.nullable
        self.fields = fields
        self.key = node.key
        self._noisy = node.noisy

    def __repr__(self) -> str:
        return f"Expression({self.text!r}: {self.type}{'?' if self.nullable else ''})"

    @property
    def test(self) -> ColumnTest | None:
        """The whole predicate as one comparison of a column with a constant, when it is nothing more."""
        return self.node.test

    def evaluate(self, scope: Scope) -> Vector:
        """The values for every tuple of the train, full length."""
        if self._noisy and not _QUIET.get():
            _hush()
        vector = self.node.run(scope)
        count = scope.count
        if vector.values.shape[0] == count and (vector.valid is None or vector.valid.shape[0] == count):
            return vector
        valid = None if vector.valid is None else stretch(vector.valid, count)
        return Vector(stretch(vector.values, count), valid, vector.pool)

    def mask(self, scope: Scope) -> Mask | None:
        """For a boolean: True where it is true (NULL is not); None when it is true for every tuple."""
        if self._noisy and not _QUIET.get():
            _hush()
        mask = self.node.mask(scope)
        if mask is None or mask.shape[0] == scope.count:
            return mask
        return stretch(mask, scope.count)


def _hush() -> None:
    """Infinity and NaN are values here, not accidents. Entering np.errstate for each train would cost 1.6 us; its
    setting lives in the thread's context, so it is made once there, remembered in the same context."""
    np.seterr(all="ignore")
    _QUIET.set(True)


def compile_expression(text: str, schema: Schema, *, expect: Type | None = None) -> Expression:
    """Compile SQL text over a schema; ``expect`` is the type that the place needs. Raises ExpressionError."""
    compiler = Compiler(text, schema)
    return finish(compiler, compiler.compile(parse(text)), expect)


def finish(compiler: Compiler, node: Node, expect: Type | None) -> Expression:
    """The expression of a compiled node, once its type suits the place."""
    text = compiler.text
    if node.type is None:
        if expect is None:
            raise ExpressionError("a bare NULL has no type here", text, 0, "write cast(null as ...)")
        node = nodes.constant(None, expect)
    if node.type in (INTERVAL, MONTHS):
        hint = "compare it with an interval, add it to a timestamp, or subtract unix_millis(...) of both"
        raise ExpressionError("an interval cannot be a column", text, 0, hint)
    if expect is not None and node.type is not expect:
        raise ExpressionError(f"a {expect} is expected here, this is {node.type}", text, 0)
    nodes.share([node])
    return Expression(text, node, frozenset(compiler.fields))


def share(expressions: Iterable[Expression]) -> None:
    """Mark subexpressions that occur more than once among these, so that a scope computes them once."""
    nodes.share(e.node for e in expressions)
