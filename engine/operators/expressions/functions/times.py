"""Timestamps: fields of the calendar, truncation, conversions. All are in UTC, on int64 nanoseconds.

A result outside the years 1677 to 2262, the range of 64-bit nanoseconds, is NULL and counted; the range of Spark's
microseconds is larger. A kernel rounds down where Spark does, so that times before 1970 are right.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from catalog.schema import Type
from engine.operators.expressions.functions.signatures import ScalarFunction, function
from engine.operators.expressions.kernels.arithmetic import arithmetic, arithmetic_integer, failed
from engine.operators.expressions.kernels.casts import cast
from engine.operators.expressions.tree.coerce import Refusal, with_article
from engine.operators.expressions.tree.node import Node, Range, constant, folded
from engine.operators.expressions.tree.vector import Array, Scope, Vector

SECOND_NS = 1_000_000_000
MINUTE_NS = 60 * SECOND_NS
HOUR_NS = 60 * MINUTE_NS
DAY_NS = 24 * HOUR_NS
_FIRST_YEARS_END_NS = -(2**63) + 366 * DAY_NS  # a truncation of a later time cannot leave the range
_SPAN_S: Range = (-(2**63) // SECOND_NS, 2**63 // SECOND_NS)


def timestamp(what: str, node: Node) -> Node:
    """Check an argument that must be a timestamp; a string is read as one, as in Spark."""
    if node.type in (Type.TIMESTAMP, Type.STRING, None):
        return cast(node, Type.TIMESTAMP)
    hint = "timestamp_seconds(x) and timestamp_millis(x) make one of a number"
    raise Refusal(f"{what} takes a timestamp, not {with_article(node.type)}", hint)


def calendar(values: Array, unit: str) -> Array:
    """Return the calendar units since 1970, rounded down."""
    return _int64(values.view("M8[ns]").astype(f"M8[{unit}]"))


def _int64(dates: Array) -> Array:
    """Return the integers of a datetime64 array."""
    number: Array = dates.view(np.int64)
    return number


def _rest(values: Array, of: int) -> Array:
    """Return ``values % of``; numpy divides by a constant much faster than it computes remainders."""
    rest: Array = values - values // of * of
    return rest


# -- fields ---------------------------------------------------------------------------------------------------------


def _year(v: Array) -> Array:
    return calendar(v, "Y") + 1970


def _day_of_week(v: Array) -> Array:
    return (v // DAY_NS + 4) % 7 + 1  # 1 is Sunday; 1 January 1970 was a Thursday


def _week_of_year(v: Array) -> Array:
    """Return the week by ISO 8601, which belongs to the year of its Thursday."""
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


_FIELDS: dict[str, tuple[Callable[[Array], Array], Range, str, int]] = {
    # name: (kernel, range of the result, description, its value for the timestamp of the examples)
    "year": (_year, (1677, 2262), "the year", 2026),
    "quarter": (lambda v: calendar(v, "M") // 3 % 4 + 1, (1, 4), "the quarter, 1 to 4", 1),
    "month": (lambda v: calendar(v, "M") % 12 + 1, (1, 12), "the month, 1 to 12", 3),
    "weekofyear": (_week_of_year, (1, 53), "the week of the year by ISO 8601, 1 to 53", 10),
    "day": (day_of_month, (1, 31), "the day of the month", 5),
    "dayofweek": (_day_of_week, (1, 7), "the day of the week, 1 for Sunday to 7 for Saturday", 5),
    "weekday": (lambda v: (v // DAY_NS + 3) % 7, (0, 6), "the day of the week, 0 for Monday to 6 for Sunday", 3),
    "dayofyear": (_day_of_year, (1, 366), "the day of the year", 64),
    "hour": (lambda v: _rest(v // HOUR_NS, 24), (0, 23), "the hour of the day", 14),
    "minute": (lambda v: _rest(v // MINUTE_NS, 60), (0, 59), "the minute of the hour", 30),
    "second": (lambda v: _rest(v // SECOND_NS, 60), (0, 59), "the second of the minute, without its fraction", 15),
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
    """Make the node of one field of the calendar, an int."""
    kernel, bounds, *_ = _FIELDS[name]
    return _unary(name, timestamp(name, node), Type.INT, kernel, bounds)


def extract(unit: str, node: Node) -> Node:
    """Make the node of EXTRACT(unit FROM ts). For seconds Spark gives a decimal with the fraction; here a double."""
    unit = unit.lower()
    if unit in ("s", "sec", "secs", "second", "seconds"):
        micros = lambda v: v // 1_000 % 60_000_000 / 1e6  # noqa: E731
        return _unary("seconds of minute", timestamp("extract", node), Type.DOUBLE, micros)
    if unit not in _EXTRACT:
        raise Refusal(f"extract has no field {unit}", f"the fields are {', '.join(_FIELDS)}")
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
    """Make the node of date_trunc: the start of the unit in which the timestamp lies."""
    unit = unit.lower()
    node = timestamp("date_trunc", node)
    if unit in _STEPS:
        step = _STEPS[unit]
        return _earlier(f"date_trunc {unit}", node, lambda v: v // step * step)
    if unit not in _CALENDAR:
        units = ", ".join(["year", "quarter", "month", "week", *list(_STEPS)[::-1][1:]])
        raise Refusal(f"date_trunc has no unit {unit!r}", f"the units are {units}")
    return _earlier(f"date_trunc {_CALENDAR[unit]}", node, lambda v: _calendar_start(v, _CALENDAR[unit]))


def _earlier(name: str, node: Node, start: Callable[[Array], Array]) -> Node:
    """Make the node of a truncation: NULL and counted where the start lies before 1677 and the product wraps around."""
    if node.is_null:
        return node

    def run(scope: Scope) -> Vector:
        x = node.run(scope)
        out = start(x.values)
        if x.values.shape[0] and int(x.values.min()) < _FIRST_YEARS_END_NS:
            bad = out > x.values
            if np.count_nonzero(bad):
                return failed(scope, out, bad, x.valid)
        return Vector(out, x.valid)

    return folded(Node(f"{name}({node.key})", Type.TIMESTAMP, run, (node,), fallible=True))


def _calendar_start(v: Array, unit: str) -> Array:
    if unit == "week":  # Monday
        days: Array = v // DAY_NS
        monday: Array = (days - (days + 3) % 7) * DAY_NS
        return monday
    if unit == "Q":
        months = calendar(v, "M")
        return _int64((months - months % 3).view("M8[M]").astype("M8[D]")) * DAY_NS
    return _int64(v.view("M8[ns]").astype(f"M8[{unit}]").astype("M8[D]")) * DAY_NS


# -- seconds, milliseconds, microseconds ----------------------------------------------------------------------------


def _unix(name: str, step: int) -> Callable[[Sequence[Node]], Node]:
    bounds = (-(2**63) // step, 2**63 // step)
    return lambda args: _unary(name, timestamp(name, args[0]), Type.BIGINT, lambda v: v // step, bounds)


def _from_unix(name: str, step: int) -> Callable[[Sequence[Node]], Node]:
    def build(args: Sequence[Node]) -> Node:
        node = args[0]
        if node.type is None or node.is_null:
            return constant(None, Type.TIMESTAMP)
        if step == SECOND_NS and node.type in (Type.FLOAT, Type.DOUBLE):
            return cast(node, Type.TIMESTAMP)
        if not node.type.is_integer:
            raise Refusal(f"{name} takes an integer, not {with_article(node.type)}")
        return arithmetic_integer("*", cast(node, Type.BIGINT), constant(step, Type.BIGINT), Type.TIMESTAMP)

    return build


def _unix_timestamp(args: Sequence[Node]) -> Node:
    """Make the node of unix_timestamp: seconds, rounded towards zero as in Spark; unix_seconds rounds down."""
    node = timestamp("unix_timestamp", args[0])
    toward_zero = lambda v: (v - np.fmod(v, SECOND_NS)) // SECOND_NS  # noqa: E731
    return _unary("unix_timestamp", node, Type.BIGINT, toward_zero, _SPAN_S)


def _to_timestamp(args: Sequence[Node]) -> Node:
    from engine.operators.expressions.functions.formats import read_format  # formats imports this module

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


_EXAMPLE = "timestamp '2026-03-05 14:30:15.25'"  # a Thursday


def _field_function(name: str) -> ScalarFunction:
    *_, description, value = _FIELDS[name]
    aliases = _FIELD_ALIASES.get(name, ())
    example = f"{name}({_EXAMPLE}) -> {value}"
    return function(f"{name}(ts: timestamp) -> int", description, lambda a: field(name, a[0]), example, *aliases)


def _format(name: str) -> Callable[[Sequence[Node]], Node]:
    def build(args: Sequence[Node]) -> Node:
        from engine.operators.expressions.functions import formats  # formats imports this module

        return formats.write_format(name, args)

    return build


FUNCTIONS = (
    *(_field_function(name) for name in _FIELDS),
    function(
        "date_trunc(unit: constant string, ts: timestamp) -> timestamp",
        "the start of the unit that ts lies in: microsecond to hour, day, week, month, quarter, year",
        _date_trunc,
        f"date_trunc('hour', {_EXAMPLE}) -> timestamp '2026-03-05 14:00:00'",
    ),
    function(
        "date_part(field: constant string, ts: timestamp) -> int or double",
        "a field of the calendar, double for seconds with their fraction; extract(field from ts) is the same",
        _date_part,
        f"date_part('second', {_EXAMPLE}) -> 15.25",
        "datepart",
    ),
    function(
        "datediff(end: timestamp, start: timestamp) -> int",
        "the days between two dates; the time of day does not count",
        _datediff,
        "datediff('2026-03-05', '2026-03-01') -> 4",
        "date_diff",
    ),
    function(
        "unix_seconds(ts: timestamp) -> bigint",
        "the seconds since 1970, rounded down",
        _unix("unix_seconds", SECOND_NS),
        f"unix_seconds({_EXAMPLE}) -> 1772721015",
    ),
    function(
        "unix_millis(ts: timestamp) -> bigint",
        "the milliseconds since 1970, rounded down",
        _unix("unix_millis", 10**6),
        f"unix_millis({_EXAMPLE}) -> 1772721015250",
    ),
    function(
        "unix_micros(ts: timestamp) -> bigint",
        "the microseconds since 1970, rounded down",
        _unix("unix_micros", 10**3),
        f"unix_micros({_EXAMPLE}) -> 1772721015250000",
    ),
    function(
        "unix_timestamp(ts: timestamp) -> bigint",
        "the seconds since 1970, rounded towards 1970",
        _unix_timestamp,
        "unix_timestamp(timestamp '1969-12-31 23:59:58.5') -> -1",
        "to_unix_timestamp",
    ),
    function(
        "timestamp_seconds(x: number) -> timestamp",
        "the time x seconds after 1970 began",
        _from_unix("timestamp_seconds", SECOND_NS),
        "timestamp_seconds(1772721015.25) -> timestamp '2026-03-05 14:30:15.25'",
    ),
    function(
        "timestamp_millis(x: integer) -> timestamp",
        "the time x milliseconds after 1970 began",
        _from_unix("timestamp_millis", 10**6),
        "timestamp_millis(1772721015250) -> timestamp '2026-03-05 14:30:15.25'",
    ),
    function(
        "timestamp_micros(x: integer) -> timestamp",
        "the time x microseconds after 1970 began",
        _from_unix("timestamp_micros", 10**3),
        "timestamp_micros(1772721015250000) -> timestamp '2026-03-05 14:30:15.25'",
    ),
    function(
        "to_timestamp(text: string[, format: constant string]) -> timestamp",
        "reads a timestamp, by a pattern if one is given; NULL for text that does not fit",
        _to_timestamp,
        "to_timestamp('05.03.2026', 'dd.MM.yyyy') -> timestamp '2026-03-05 00:00:00'",
    ),
    function(
        "date_format(ts: timestamp, format: constant string) -> string",
        "writes a timestamp by a pattern",
        _format("date_format"),
        f"date_format({_EXAMPLE}, 'yyyy-MM-dd HH:mm') -> '2026-03-05 14:30'",
    ),
    function(
        "from_unixtime(seconds: bigint[, format: constant string]) -> string",
        "writes seconds since 1970 by a pattern, yyyy-MM-dd HH:mm:ss by default",
        _format("from_unixtime"),
        "from_unixtime(1772721015) -> '2026-03-05 14:30:15'",
    ),
    function(
        "dayname(ts: timestamp) -> string",
        "the day of the week in three letters",
        _format("dayname"),
        f"dayname({_EXAMPLE}) -> 'Thu'",
    ),
    function(
        "monthname(ts: timestamp) -> string",
        "the month in three letters",
        _format("monthname"),
        f"monthname({_EXAMPLE}) -> 'Mar'",
    ),
)
