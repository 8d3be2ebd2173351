"""Small change of the compiler: literals, columns, and the words of its messages."""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Iterable

from sqlglot import exp

from catalog.schema import Type
from engine.expressions.coerce import Refusal
from engine.expressions.node import INTEGER_RANGE, Node, Run, constant
from engine.expressions.vector import Scope, Vector

_NUMBER = re.compile(r"-?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?", re.ASCII | re.IGNORECASE)
CLOCK = frozenset({"now", "current_timestamp", "current_date", "localtimestamp", "rand", "random", "uuid"})
CLOCK_HINT = "neither the clock nor chance is read in expressions: a replay would give another answer"


def number(text: str) -> Node:
    """A numeric literal: int, bigint when it needs it, double with a point or an exponent."""
    if not _NUMBER.fullmatch(text):
        raise Refusal(f"{text} is not a number")
    if not text.lstrip("-").isdecimal():
        value = float(text)
        if math.isinf(value):
            raise Refusal(f"{text} does not fit a double")
        return constant(value, Type.DOUBLE)
    whole = int(text) if len(text) <= 20 else 2**64  # Python refuses to read thousands of digits
    for kind in (Type.INT, Type.BIGINT):
        low, high = INTEGER_RANGE[kind]
        if low <= whole <= high:
            return constant(whole, kind)
    raise Refusal(f"{text} does not fit a bigint", f"write {text}.0 for a double")


def column_run(name: str) -> Run:
    def run(scope: Scope) -> Vector:
        return scope.columns.get(name) or scope.column(name)

    return run


def did_you_mean(name: str, names: Iterable[str]) -> str:
    near = difflib.get_close_matches(name.lower(), list(names), n=1, cutoff=0.6)
    return f"did you mean {near[0]}?" if near else ""


def describe(tree: exp.Expression) -> str:
    if isinstance(tree, exp.Subquery | exp.Select | exp.Exists) or tree.find(exp.Select):
        return "a subquery"
    names = {exp.Lambda: "a lambda", exp.Star: "*", exp.Dot: "an access with a dot", exp.Bracket: "an access with [ ]"}
    return names.get(type(tree), type(tree).__name__.lower())
