"""Timestamps: fields of the calendar, truncation, conversions. All in UTC, on int64 nanoseconds.

What leaves the years 1677 to 2262, the range of nanoseconds in 64 bits, is NULL and counted; Spark's microseconds reach
further. A kernel floors where Spark does, so that times before 1970 come out right.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from catalog.schema import Type
from engine.expressions.arithmetic import arithmetic, arithmetic_integer
from engine.expressions.casts import cast
from engine.expressions.coerce import Refusal
from engine.expressions.node import Node, Range, constant, folded
from engine.expressions.signatures import Function, function
from engine.expressions.vector import Array, Scope, Vector

SECOND_NS = 1_000_000_000
MINUTE_NS = 60 * SECOND_NS
HOUR_NS = 60 * MINUTE_NS
DAY_NS = 24 * HOUR_NS
_SPAN_S: Range = (-(2**63) // SECOND_NS, 2**63 // SECOND_NS)


def timestamp(what: str, node: Node) -> Node:
    """An argument that is a timestamp; strings are read as one, as Spark does."""
    if node.type in (Type.TIMESTAMP, Type.STRING, None):
        return cast(node, Type.TIMESTAMP)
    raise Refusal(f"{what} takes a timestamp, not {node.type}", "timestamp_seconds(x), timestamp_millis(x) make one")


def calendar(values: Array, unit: str) -> Array:
    """Whole calendar units since 1970, rounded down."""
    return _int64(values.view("M8[ns]").astype(f"M8[{unit}]"))


def _int64(dates: Array) -> Array:
    """The number behind a datetime64."""
    number: Array = dates.view(np.int64)
    return number


def _rest(values: Array, of: int) -> Array:
    """``values % of``; numpy divides by a constant much faster than it takes remainders."""
    rest: Array = values - values // of * of
    return rest


# -- fields ---------------------------------------------------------------------------------------------------------


def _year(v: Array) -> Array:
    return calendar(v, "Y") + 1970


def _day_of_week(v: Array) -> Array:
    return (v // DAY_NS + 4) % 7 + 1  # 1 is Sunday; 1 January 1970 was a Thursday


def _week_of_year(v: Array) -> Array:
    """ISO 8601: the week belongs to the year of its Thursday."""
    days = v // DAY_NS
    thursday = days - (days + 3) % 7 + 3
    years = thursday.view("M8[D]").astype("M8[Y]")
    week: Array = (thursday - _int64(years.astype("M8[D]"))) // 7 + 1
    return week


def _day_of_year(v: Array) -> Array:
    start = _int64(v.view("M8[ns]").astype("M8[Y]").astype("M8[D]"))
    return v // DAY_NS - start + 1


def day_of_month(v: Array) -> Array:
    start = _int64(v.view("M8[ns]").astype("M8[M]").astype("M8[D]"))
    return v // DAY_NS - start + 1


_FIELDS: dict[str, tuple[Callable[[Array], Array], Range, str]] = {
    "year": (_year, (1677, 2262), "year"),
    "quarter": (lambda v: calendar(v, "M") // 3 % 4 + 1, (1, 4), "quarter, 1 to 4"),
    "month": (lambda v: calendar(v, "M") % 12 + 1, (1, 12), "month, 1 to 12"),
    "weekofyear": (_week_of_year, (1, 53), "ISO week"),
    "day": (day_of_month, (1, 31), "day of the month"),
    "dayofweek": (_day_of_week, (1, 7), "1 for Sunday to 7 for Saturday"),
    "weekday": (lambda v: (v // DAY_NS + 3) % 7, (0, 6), "0 for Monday to 6 for Sunday"),
    "dayofyear": (_day_of_year, (1, 366), "day of the year"),
    "hour": (lambda v: _rest(v // HOUR_NS, 24), (0, 23), "hour of the day"),
    "minute": (lambda v: _rest(v // MINUTE_NS, 60), (0, 59), "minute of the hour"),
    "second": (lambda v: _rest(v // SECOND_NS, 60), (0, 59), "second of the minute"),
}
_FIELD_ALIASES = {"day": ("dayofmonth",), "weekofyear": ("week",)}
_EXTRACT = {
    **{name: name for name in _FIELDS},
    **dict.fromkeys(("y", "years", "yr", "yrs"), "year"),
    **dict.fromkeys(("mon", "mons", "months"), "month"),
    **dict.fromkeys(("d", "days", "dayofmonth"), "day"),
    **dict.fromkeys(("h", "hours", "hr", "hrs"), "hour"),
    **dict.fromkeys(("m", "min", "mins", "minutes"), "minute"),
    **dict.fromkeys(("w", "week", "weeks"), "weekofyear"),
    "qtr": "quarter",
    "dow": "dayofweek",
    "doy": "dayofyear",
}


def _unary(name: str, node: Node, type: Type, function: Callable[[Array], Array], range: Range | None = None) -> Node:
    if node.is_null:
        return constant(None, type)
    dtype = type.dtype

    def run(scope: Scope) -> Vector:
        x = node.run(scope)
        return Vector(function(x.values).astype(dtype, copy=False), x.valid)

    return folded(Node(f"{name}({node.key})", type, run, (node,), range=range))


def field(name: str, node: Node) -> Node:
    """One field of the calendar, an int."""
    function, bounds, _ = _FIELDS[name]
    return _unary(name, timestamp(name, node), Type.INT, function, bounds)


def extract(unit: str, node: Node) -> Node:
    """EXTRACT(unit FROM ts). Of seconds Spark gives a decimal with the fraction; here it is a double."""
    unit = unit.lower()
    if unit in ("s", "sec", "secs", "second", "seconds"):
        micros = lambda v: v // 1_000 % 60_000_000 / 1e6  # noqa: E731
        return _unary("seconds of minute", timestamp("extract", node), Type.DOUBLE, micros)
    if unit not in _EXTRACT:
        raise Refusal(f"extract does not know {unit}", f"it knows {', '.join(_FIELDS)}")
    return field(_EXTRACT[unit], node)


# -- truncation -----------------------------------------------------------------------------------------------------

_STEPS = {
    "microsecond": 1_000,
    "millisecond": 1_000_000,
    "second": SECOND_NS,
    "minute": MINUTE_NS,
    "hour": HOUR_NS,
    "day": DAY_NS,
    "dd": DAY_NS,
}
_CALENDAR = {"week": "week", "month": "M", "mon": "M", "mm": "M", "quarter": "Q", "year": "Y", "yyyy": "Y", "yy": "Y"}


def truncated(unit: str, node: Node) -> Node:
    """date_trunc: the start of the unit that the timestamp is in."""
    unit = unit.lower()
    node = timestamp("date_trunc", node)
    if unit in _STEPS:
        step = _STEPS[unit]
        return _unary(f"date_trunc {unit}", node, Type.TIMESTAMP, lambda v: v // step * step)
    if unit not in _CALENDAR:
        units = ", ".join(["year", "quarter", "month", "week", *list(_STEPS)[::-1][1:]])
        raise Refusal(f"date_trunc does not know {unit!r}", f"it knows {units}")
    return _unary(f"date_trunc {_CALENDAR[unit]}", node, Type.TIMESTAMP, lambda v: _calendar_start(v, _CALENDAR[unit]))


def _calendar_start(v: Array, unit: str) -> Array:
    if unit == "week":  # Monday
        days: Array = v // DAY_NS
        monday: Array = (days - (days + 3) % 7) * DAY_NS
        return monday
    if unit == "Q":
        months = calendar(v, "M")
        return _int64((months - months % 3).view("M8[M]").astype("M8[D]")) * DAY_NS
    return _int64(v.view("M8[ns]").astype(f"M8[{unit}]").astype("M8[D]")) * DAY_NS


# -- seconds and their kin ------------------------------------------------------------------------------------------


def _unix(name: str, step: int) -> Callable[[Sequence[Node]], Node]:
    bounds = (-(2**63) // step, 2**63 // step)
    return lambda args: _unary(name, timestamp(name, args[0]), Type.BIGINT, lambda v: v // step, bounds)


def _from_unix(step: int) -> Callable[[Sequence[Node]], Node]:
    def build(args: Sequence[Node]) -> Node:
        node = args[0]
        if node.type is None or node.is_null:
            return constant(None, Type.TIMESTAMP)
        if step == SECOND_NS and node.type in (Type.FLOAT, Type.DOUBLE):
            return cast(node, Type.TIMESTAMP)
        if not node.type.is_integer:
            raise Refusal(f"a timestamp is made from an integer here, not from {node.type}")
        return arithmetic_integer("*", cast(node, Type.BIGINT), constant(step, Type.BIGINT), Type.TIMESTAMP)

    return build


def _unix_timestamp(args: Sequence[Node]) -> Node:
    """Seconds towards zero, which is not unix_seconds before 1970. So it is in Spark."""
    node = timestamp("unix_timestamp", args[0])
    toward_zero = lambda v: (v - np.fmod(v, SECOND_NS)) // SECOND_NS  # noqa: E731
    return _unary("unix_timestamp", node, Type.BIGINT, toward_zero, _SPAN_S)


def _to_timestamp(args: Sequence[Node]) -> Node:
    from engine.expressions.formats import read_format  # formats build on this module

    if len(args) == 2:
        return read_format(args[0], args[1])
    return cast(args[0], Type.TIMESTAMP)


def _date_trunc(args: Sequence[Node]) -> Node:
    if args[0].constant is None or not isinstance(args[0].value, str):
        raise Refusal("the unit of date_trunc must be a constant string, as in date_trunc('hour', ts)")
    return truncated(args[0].value, args[1])


def _date_part(args: Sequence[Node]) -> Node:
    if args[0].constant is None or not isinstance(args[0].value, str):
        raise Refusal("the field of date_part must be a constant string, as in date_part('hour', ts)")
    return extract(args[0].value, args[1])


def _datediff(args: Sequence[Node]) -> Node:
    reach = (-(2**63) // DAY_NS, 2**63 // DAY_NS)
    days = [_unary("days", timestamp("datediff", a), Type.INT, lambda v: v // DAY_NS, reach) for a in args]
    return arithmetic("-", days[0], days[1])


def _field_function(name: str) -> Function:
    aliases = _FIELD_ALIASES.get(name, ())
    return function(f"{name}(timestamp) -> int", _FIELDS[name][2], lambda a: field(name, a[0]), *aliases)


def _format(name: str) -> Callable[[Sequence[Node]], Node]:
    def build(args: Sequence[Node]) -> Node:
        from engine.expressions import formats  # formats build on this module

        return formats.write_format(name, args)

    return build


FUNCTIONS = (
    *(_field_function(name) for name in _FIELDS),
    function("date_trunc(unit, timestamp) -> timestamp", "start of the unit", _date_trunc),
    function("date_part(field, timestamp)", "extract(field from timestamp)", _date_part, "datepart"),
    function("datediff(end, start) -> int", "days between two dates", _datediff, "date_diff"),
    function("unix_seconds(timestamp) -> bigint", "seconds since 1970", _unix("unix_seconds", SECOND_NS)),
    function("unix_millis(timestamp) -> bigint", "milliseconds since 1970", _unix("unix_millis", 10**6)),
    function("unix_micros(timestamp) -> bigint", "microseconds since 1970", _unix("unix_micros", 10**3)),
    function(
        "unix_timestamp(timestamp) -> bigint", "seconds since 1970, towards zero", _unix_timestamp, "to_unix_timestamp"
    ),
    function("timestamp_seconds(number) -> timestamp", "from seconds since 1970", _from_unix(SECOND_NS)),
    function("timestamp_millis(integer) -> timestamp", "from milliseconds since 1970", _from_unix(10**6)),
    function("timestamp_micros(integer) -> timestamp", "from microseconds since 1970", _from_unix(10**3)),
    function("to_timestamp(string[, format]) -> timestamp", "read from text", _to_timestamp),
    function("date_format(timestamp, format) -> string", "written by a pattern", _format("date_format")),
    function("from_unixtime(seconds[, format]) -> string", "seconds by a pattern", _format("from_unixtime")),
    function("dayname(timestamp) -> string", "Mon, Tue, ...", _format("dayname")),
    function("monthname(timestamp) -> string", "Jan, Feb, ...", _format("monthname")),
)
