"""The text of ``on`` becomes equality keys and a residual; and the values of ``within``.

``on`` is one condition over the fields of both inputs, ``l.`` and ``r.``. The compiler splits it at AND. An equality
between an expression over the left input and one over the right is a key: the join looks it up. Every other part is
residual: the join computes it for the pairs that have equal keys and lie in the band.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Annotated, ClassVar

from pydantic import BeforeValidator, InstanceOf
from sqlglot import exp

from catalog.config.units import parse_duration_ns
from catalog.errors import BindError, ExpressionError
from catalog.schema import Field, Schema, Type
from engine.operators.expressions import Expression, share
from engine.operators.expressions.compiler.compile import Compiler
from engine.operators.expressions.compiler.parse import offset_of, parse
from engine.operators.expressions.expression import finish
from engine.operators.expressions.kernels.compare import comparable
from engine.operators.expressions.tree.coerce import Refusal, wider

LEFT, RIGHT = "l.", "r."


@dataclass(frozen=True, slots=True)
class Band:
    """The right time lies between ``before_ns`` below the left time and ``after_ns`` above it, both inclusive."""

    written_as: ClassVar[str] = "duration, or keys before and after"  # in the manual

    before_ns: int
    after_ns: int


def _parse_band(value: object) -> object:
    if value is None or isinstance(value, Band):
        return value
    if not isinstance(value, dict):
        width_ns = parse_duration_ns(value)
        return Band(width_ns, width_ns)
    unknown = [str(k) for k in value if k not in ("before", "after")]
    if unknown or not value:
        keys = f", not with {', '.join(unknown)}" if unknown else ""
        raise ValueError(f"within must be a duration or {{before: 1s, after: 0s}}{keys}")
    return Band(parse_duration_ns(value.get("before", 0)), parse_duration_ns(value.get("after", 0)))


Within = Annotated[InstanceOf[Band] | None, BeforeValidator(_parse_band)]
"""A pydantic type: ``100ms`` (both ways) or ``{before: 1s, after: 0s}`` in the file, a Band in the model."""


def combined(left: Schema, right: Schema, *, left_null: bool = False, right_null: bool = False) -> Schema:
    """Return the fields of both inputs as ``l.x`` and ``r.x``; those of a side that may be missing are nullable."""
    fields = [Field(LEFT + f.name, f.type, f.nullable or left_null) for f in left]
    fields += [Field(RIGHT + f.name, f.type, f.nullable or right_null) for f in right]
    return Schema(tuple(fields))


@dataclass(frozen=True, slots=True)
class Condition:
    """``left[i] = right[i]`` for every i, and every residual true."""

    left: tuple[Expression, ...]
    right: tuple[Expression, ...]
    types: tuple[Type, ...]  # in which the two are compared: an int is compared with a double as a double
    residual: tuple[Expression, ...]


def parse_on(text: str | None, schema: Schema) -> Condition:
    """Split a condition into keys and residual. ``schema`` is the combined one. Raises BindError."""
    if text is None:
        return Condition((), (), (), ())
    try:
        return _split(text, schema)
    except ExpressionError as error:
        raise BindError(error.message, ("on",), error.hint) from error


def _split(text: str, schema: Schema) -> Condition:
    left: list[Expression] = []
    right: list[Expression] = []
    residual: list[Expression] = []
    for tree in _conjuncts(parse(text)):
        pair = _equality(text, tree, schema) if isinstance(tree, exp.EQ) else None
        if pair is None:
            residual.append(_compiled(text, tree, schema, Type.BOOLEAN))
        else:
            left.append(pair[0])
            right.append(pair[1])
    types = tuple(_common(a.type, b.type) for a, b in zip(left, right, strict=True))
    share(residual)
    return Condition(tuple(left), tuple(right), types, tuple(residual))


def _conjuncts(tree: exp.Expression) -> Iterator[exp.Expression]:
    stack = [tree]
    while stack:
        part = stack.pop()
        if isinstance(part, exp.And):
            stack.extend((part.expression, part.this))
        elif isinstance(part, exp.Paren):
            stack.append(part.this)
        else:
            yield part


def _compiled(text: str, tree: exp.Expression, schema: Schema, expect: Type | None) -> Expression:
    compiler = Compiler(text, schema)
    return finish(compiler, compiler.build(tree), expect)


def _equality(text: str, tree: exp.Expression, schema: Schema) -> tuple[Expression, Expression] | None:
    """Return the expressions of left and right, cast to the type of the comparison; None for any other equality."""
    sides = [Compiler(text, schema), Compiler(text, schema)]
    nodes = [sides[0].build(tree.this), sides[1].build(tree.expression)]
    of = [_side(compiler.fields) for compiler in sides]
    if of == [RIGHT, LEFT]:
        sides.reverse()
        nodes.reverse()
    elif of != [LEFT, RIGHT]:
        return None
    try:
        a, b = comparable("=", *nodes)
    except Refusal as refusal:
        raise ExpressionError(refusal.message, text, offset_of(tree), refusal.hint) from refusal
    return Expression(text, a, frozenset(sides[0].fields)), Expression(text, b, frozenset(sides[1].fields))


def _common(left: Type, right: Type) -> Type:
    return left if left is right else wider(left, right)


def _side(fields: Iterable[str]) -> str | None:
    prefixes = {name[:2] for name in fields}
    return prefixes.pop() if len(prefixes) == 1 else None


def no_clash(left: Schema, right: Iterable[Field]) -> tuple[list[str], list[str]]:
    """Return names for the fields of both inputs in one schema, with l_ and r_ where both have a field of that name."""
    others = list(right)
    both = set(left.names) & {f.name for f in others}
    names = (
        [f"l_{n}" if n in both else n for n in left.names],
        [f"r_{f.name}" if f.name in both else f.name for f in others],
    )
    taken: set[str] = set()
    for name in (*names[0], *names[1]):
        if name in taken:
            raise BindError(f"two fields of the result would have the name {name}", hint="name the fields with select")
        taken.add(name)
    return names
