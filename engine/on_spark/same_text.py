"""Which expressions Spark SQL computes exactly as we do: only those run there, with the same text.

The meaning of an expression is Spark's with ``ansi`` off, with exceptions (``engine/operators/expressions``): integers
that overflow are NULL here and wrap around there, ``1.5`` is a double here and a decimal there, letters follow other
tables, and so on. So this is a list of what is known to be equal, not of what is known to differ: a box with anything
else runs as our own kernel, where nothing can differ.

The text stays as it is but for numbers with a point or an exponent: they get Spark's mark of a double (``1.5D``).
"""

from __future__ import annotations

from typing import Any

from sqlglot import TokenType, exp

from catalog.errors import ExpressionError
from catalog.schema import Schema, Type
from engine.operators.expressions.compiler.compile import Compiler
from engine.operators.expressions.compiler.parse import AuroraSql, parse

_FLOATS = (Type.FLOAT, Type.DOUBLE)
_COMPARISONS = (exp.EQ, exp.NEQ, exp.LT, exp.GT, exp.LTE, exp.GTE, exp.NullSafeEQ)
_ARITHMETIC = (exp.Add, exp.Sub, exp.Mul, exp.Div)
_PLAIN = (exp.Column, exp.Identifier, exp.Literal, exp.Boolean, exp.Null, exp.Paren, exp.And, exp.Or, exp.Not, exp.Is)
_FUNCTIONS = ("coalesce", "nvl", "ifnull", "nullif", "isnull", "isnotnull", "isnan", "length")


def why_not_sql(text: str, schema: Schema) -> str:
    """Return why Spark SQL might compute this text in another way; empty when it cannot."""
    tree = parse(text)
    for part in tree.walk():
        try:
            why = _why_not(part, text, schema)
        except ExpressionError:  # a part that has no meaning alone
            why = f"{type(part).__name__.lower()} is not known to be the same there"
        if why:
            return why
    return ""


def _why_not(part: Any, text: str, schema: Schema) -> str:
    """One function on purpose: it lists all syntax that is the same."""
    if isinstance(part, exp.Column):
        return "" if part.name in schema and not part.table else f"{part.sql()} is not written as the field is"
    if isinstance(part, _PLAIN):
        return ""
    if isinstance(part, exp.Anonymous):
        name = part.name.lower()
        return _one_kind(part.expressions, text, schema) if name in _FUNCTIONS else f"{name}() may differ there"
    if isinstance(part, exp.Case):
        results = [branch.args["true"] for branch in part.args["ifs"]]
        return _one_kind([*results, *filter(None, [part.args.get("default")])], text, schema)
    if isinstance(part, exp.If) and isinstance(part.parent, exp.Case):
        return "" if part.parent.this is None else "case with a value is not known to be the same there"
    if isinstance(part, _COMPARISONS):
        return _one_kind([part.this, part.expression], text, schema)
    if isinstance(part, exp.Between):
        return _one_kind([part.this, part.args["low"], part.args["high"]], text, schema)
    if isinstance(part, exp.In):
        return _one_kind([part.this, *part.expressions], text, schema)
    if isinstance(part, _ARITHMETIC):
        return "" if _type(part, text, schema) in _FLOATS else "integers that overflow are NULL here and wrap there"
    if isinstance(part, exp.Neg):
        is_literal = isinstance(part.this, exp.Literal)
        return "" if is_literal or _type(part, text, schema) in _FLOATS else "integers that overflow are NULL here"
    if isinstance(part, exp.Like):
        return ""
    return f"{type(part).__name__.lower()} is not known to be the same there"


def _one_kind(parts: list[exp.Expression], text: str, schema: Schema) -> str:
    """Comparisons are the same between numbers, and between values of one type."""
    types = {kind for part in parts if (kind := _type(part, text, schema)) is not None}
    numbers = all(kind.is_numeric for kind in types)
    return "" if numbers or len(types) <= 1 else "values of different types meet"


def _type(part: exp.Expression, text: str, schema: Schema) -> Type | None:
    return Compiler(text, schema).build(part).type


def spark_text(text: str) -> str:
    """Mark the numbers that are doubles here. The rest of the text stays as it is."""
    tokens = AuroraSql().tokenize(text)
    ends = [token.end + 1 for token in tokens if token.token_type is TokenType.NUMBER and not token.text.isdigit()]
    for end in reversed(ends):
        if text[end : end + 1].upper() not in ("D", "F", "L"):
            text = f"{text[:end]}D{text[end:]}"
    return text
