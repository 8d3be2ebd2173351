"""Intervals: literals, and arithmetic with timestamps.

A day-time interval counts nanoseconds (type INTERVAL), a year-month interval counts calendar months (type MONTHS). Both
exist only inside an expression, never in a column. The difference of two timestamps is an INTERVAL.
"""

from __future__ import annotations

import re
from decimal import Decimal

import numpy as np
from sqlglot import exp

from catalog.schema import Type
from engine.operators.expressions.functions.times import DAY_NS, HOUR_NS, MINUTE_NS, SECOND_NS, calendar, day_of_month
from engine.operators.expressions.kernels.arithmetic import arithmetic_integer, failed
from engine.operators.expressions.tree.coerce import Refusal
from engine.operators.expressions.tree.node import INTERVAL, MONTHS, Node, constant, folded
from engine.operators.expressions.tree.vector import Scope, Vector

_UNITS_NS = {
    "microsecond": 1_000,
    "millisecond": 1_000_000,
    "second": SECOND_NS,
    "minute": MINUTE_NS,
    "hour": HOUR_NS,
    "day": DAY_NS,
    "week": 7 * DAY_NS,
}
_UNITS_MONTHS = {"month": 1, "year": 12}
_PART = re.compile(r"\s*([+-]?)\s*(\d+(?:\.\d*)?)\s+([a-z]+)", re.ASCII | re.IGNORECASE)
_CLOCK = ("day", "hour", "minute", "second")


def interval_literal(tree: exp.Interval) -> Node:
    """Read ``interval 5 seconds``, ``interval '1 day 2 hours'``, ``interval '01:30' hour to minute`` or
    ``interval '1-2' year to month``."""
    this, unit = tree.this, tree.args.get("unit")
    if not isinstance(this, exp.Literal):
        raise Refusal("the length of an interval must be a literal", "write n * interval 1 second")
    text = str(this.this).strip()
    if unit is None:
        return _from_parts(text)
    if isinstance(unit, exp.IntervalSpan):
        return _from_span(text, unit.this.name.lower(), unit.expression.name.lower())
    return _from_parts(f"{text} {unit.name}")


def _from_parts(text: str) -> Node:
    months, total_ns, at = 0, Decimal(0), 0
    kinds: set[bool] = set()
    while at < len(text):
        found = _PART.match(text, at)
        if found is None:
            raise Refusal(f"{text!r} is not an interval", "write interval 5 seconds or interval '1 day 2 hours'")
        number = Decimal(found[1] + found[2])
        unit = found[3].lower().removesuffix("s")
        kinds.add(unit in _UNITS_MONTHS)
        if unit in _UNITS_MONTHS:
            months += int(number) * _UNITS_MONTHS[unit]
            if number != int(number):
                raise Refusal(f"{text!r} has a fraction of a {unit}")
        elif unit in _UNITS_NS:
            total_ns += number * _UNITS_NS[unit]
        else:
            raise Refusal(f"an interval has no unit {unit}", f"the units are {', '.join([*_UNITS_NS, *_UNITS_MONTHS])}")
        at = found.end()
    if len(kinds) > 1:
        raise Refusal("an interval cannot mix months and days", "add two intervals, one after the other")
    return constant(months, MONTHS) if True in kinds else _nanoseconds(int(total_ns), text)


def _from_span(text: str, first: str, last: str) -> Node:
    """Read a form with colons: one field for each unit from the first to the last."""
    sign = -1 if text.startswith("-") else 1
    body = text.lstrip("+-")
    if (first, last) == ("year", "month"):
        years, _, months = body.partition("-")
        if years.isdecimal() and months.isdecimal() and int(months) < 12:
            return constant(sign * (int(years) * 12 + int(months)), MONTHS)
    elif first in _CLOCK and last in _CLOCK[_CLOCK.index(first) + 1 :]:
        units = _CLOCK[_CLOCK.index(first) : _CLOCK.index(last) + 1]
        fields = re.split(r"[: ]", body)
        if len(fields) == len(units) and all(re.fullmatch(r"\d+(\.\d{1,9})?", f, re.ASCII) for f in fields):
            total = sum(Decimal(f) * _UNITS_NS[u] for f, u in zip(fields, units, strict=True))
            return _nanoseconds(sign * int(total), text)
    raise Refusal(f"{text!r} is not an interval from {first} to {last}")


def _nanoseconds(value: int, text: str) -> Node:
    if not -(2**63) <= value < 2**63:
        raise Refusal(f"the interval {text!r} is longer than 292 years")
    return constant(value, INTERVAL)


def interval_arithmetic(op: str, left: Node, right: Node) -> Node | None:
    """Make the node of arithmetic with timestamps and intervals; None when neither operand is one of them."""
    kinds = (left.type, right.type)
    if not any(kind in (Type.TIMESTAMP, INTERVAL, MONTHS) for kind in kinds):
        return None
    if None in kinds:
        left, right = (constant(None, INTERVAL) if node.type is None else node for node in (left, right))
        kinds = (left.type, right.type)
    if op == "+" and kinds[1] is Type.TIMESTAMP:
        left, right, kinds = right, left, (kinds[1], kinds[0])
    if op in "+-" and kinds == (Type.TIMESTAMP, INTERVAL):
        return _int64(op, left, right, Type.TIMESTAMP)
    if op in "+-" and kinds == (Type.TIMESTAMP, MONTHS):
        return _add_months(op, left, right)
    if op == "-" and kinds == (Type.TIMESTAMP, Type.TIMESTAMP):
        return _int64(op, left, right, INTERVAL)
    if op in "+-" and kinds in ((INTERVAL, INTERVAL), (MONTHS, MONTHS)):
        assert left.type is not None
        return _int64(op, left, right, left.type)
    if op == "*" and kinds[1] in (INTERVAL, MONTHS):
        left, right, kinds = right, left, (kinds[1], kinds[0])
    if op == "*" and kinds[0] in (INTERVAL, MONTHS) and kinds[1] is not None and kinds[1].is_integer:
        assert left.type is not None
        return _int64(op, left, right, left.type)
    hint = "write ts + interval 5 seconds" if Type.TIMESTAMP in kinds else ""
    raise Refusal(f"{kinds[0]} {op} {kinds[1]} is not defined", hint)


def _int64(op: str, left: Node, right: Node, kind: Type) -> Node:
    if left.is_null or right.is_null:
        return constant(None, kind)
    return arithmetic_integer(op, left, right, kind)


def _add_months(op: str, node: Node, months: Node) -> Node:
    """Make the node of a timestamp plus months: the same day of the month, or its last day when it is shorter."""
    if months.constant is None:
        raise Refusal("an interval of months must be a constant")
    if node.is_null or months.is_null:
        return constant(None, Type.TIMESTAMP)
    count = months.value if op == "+" else -months.value
    low, high = -(2**63) // DAY_NS + 1, (2**63 - 1) // DAY_NS

    def run(scope: Scope) -> Vector:
        x = node.run(scope)
        v = x.values
        month = calendar(v, "M") + count
        start = month.view("M8[M]").astype("M8[D]").view(np.int64)
        length = (month + 1).view("M8[M]").astype("M8[D]").view(np.int64) - start
        days = start + np.minimum(day_of_month(v), length) - 1
        bad = (days < low) | (days >= high)
        out = np.where(bad, 0, days) * DAY_NS + v % DAY_NS
        return failed(scope, out, bad, x.valid) if np.count_nonzero(bad) else Vector(out, x.valid)

    return folded(Node(f"months({node.key}, {count})", Type.TIMESTAMP, run, (node,), fallible=True))


def negated_interval(node: Node) -> Node:
    """Make the node of ``-interval``."""
    assert node.type is not None
    return _int64("-", constant(0, node.type), node, node.type)
