"""The leaves of an expression: numeric literals and columns."""

from __future__ import annotations

import math
import re

from catalog.schema import Type
from engine.operators.expressions.tree.coerce import Refusal
from engine.operators.expressions.tree.node import INTEGER_RANGE, Node, Run, constant
from engine.operators.expressions.tree.vector import Scope, Vector

_NUMBER = re.compile(r"-?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?", re.ASCII | re.IGNORECASE)


def number(text: str) -> Node:
    """Make the constant of a numeric literal: an int, a bigint if an int is too small, a double with a point or an
    exponent."""
    if not _NUMBER.fullmatch(text):
        raise Refusal(f"{text} is not a number")
    if not text.lstrip("-").isdecimal():
        value = float(text)
        if math.isinf(value):
            raise Refusal(f"{text} does not fit a double")
        return constant(value, Type.DOUBLE)
    whole = int(text) if len(text) <= 20 else 2**64  # int() refuses thousands of digits
    for kind in (Type.INT, Type.BIGINT):
        low, high = INTEGER_RANGE[kind]
        if low <= whole <= high:
            return constant(whole, kind)
    raise Refusal(f"{text} does not fit a bigint", f"write {text}.0 for a double")


def column_run(name: str) -> Run:
    """Make the kernel that reads a field."""

    def run(scope: Scope) -> Vector:
        return scope.columns.get(name) or scope.column(name)

    return run
