"""The operators and the forms with a syntax of their own, as documentation beside the compiler's table.

``compile`` has the handlers; a test parses the examples here and finds every kind of syntax that ``compile`` takes.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Operator:
    """One operator; ``form`` is how it is written, with the type of its result."""

    names: tuple[str, ...]
    form: str
    returns: str
    description: str
    example: str
    result: str


def _operator(names: str, form: str, description: str, example: str) -> Operator:
    expression, _, result = example.rpartition(" -> ")
    return Operator(tuple(names.split()), form, form.rpartition(" -> ")[2], description, expression, result)


_NUMBER = "common type of x and y"
OPERATORS: tuple[Operator, ...] = (
    _operator("+", f"x + y -> {_NUMBER}", "adds numbers; NULL where integers overflow", "2 + 3 -> 5"),
    _operator("-", f"x - y -> {_NUMBER}", "subtracts numbers; NULL where integers overflow", "2 - 3.5 -> -1.5"),
    _operator("*", f"x * y -> {_NUMBER}", "multiplies numbers; NULL where integers overflow", "2 * 3 -> 6"),
    _operator("/", "x / y -> double", "divides numbers; NULL where y is 0", "7 / 2 -> 3.5"),
    _operator("%", f"x % y -> {_NUMBER}", "the remainder with the sign of x; NULL where y is 0", "-7 % 3 -> -1"),
    _operator("div", "x div y -> bigint", "divides integers towards zero; NULL where y is 0", "7 div 2 -> 3"),
    _operator("negate", "-x -> type of x", "turns the sign of a number or an interval", "-(2 + 3) -> -5"),
    _operator("= ==", "x = y -> boolean", "whether x equals y; NaN equals NaN; NULL if one is NULL", "1 = 1.0 -> true"),
    _operator("<> !=", "x <> y -> boolean", "whether x differs from y; NULL if one is NULL", "1 <> NULL -> NULL"),
    _operator("<", "x < y -> boolean", "whether x is below y; NaN is above every number", "'a' < 'b' -> true"),
    _operator(">", "x > y -> boolean", "whether x is above y; NaN is above every number", "1 > 2 -> false"),
    _operator("<=", "x <= y -> boolean", "whether x is at most y", "1 <= 1 -> true"),
    _operator(">=", "x >= y -> boolean", "whether x is at least y", "1 >= 2 -> false"),
    _operator("<=>", "x <=> y -> boolean", "whether x equals y, where NULL equals NULL", "NULL <=> NULL -> true"),
    _operator(
        "distinct",
        "x is [not] distinct from y -> boolean",
        "whether x differs from y, where NULL equals NULL",
        "1 is distinct from NULL -> true",
    ),
    _operator("and", "x and y -> boolean", "whether both are true; false and NULL is false", "false and NULL -> false"),
    _operator("or", "x or y -> boolean", "whether one is true; true or NULL is true", "true or NULL -> true"),
    _operator("not", "not x -> boolean", "turns true and false; NULL stays NULL", "not 1 = 2 -> true"),
    _operator(
        "is",
        "x is [not] null | true | false -> boolean",
        "asks for NULL or for truth; never NULL",
        "NULL is null -> true",
    ),
    _operator(
        "in", "x [not] in (a, b, ...) -> boolean", "whether x equals one of the values", "2 in (1, 2, 3) -> true"
    ),
    _operator(
        "between", "x [not] between low and high -> boolean", "whether low <= x <= high", "2 between 1 and 2 -> true"
    ),
    _operator(
        "like",
        "text [not] like pattern [escape char] -> boolean",
        "whether all of text fits: % for any characters, _ for one; the pattern is a constant",
        "'10%' like '10!%' escape '!' -> true",
    ),
    _operator(
        "ilike", "text [not] ilike pattern -> boolean", "like without regard to case", "'AAPL' ilike 'aa%' -> true"
    ),
    _operator(
        "rlike",
        "text [not] rlike pattern -> boolean",
        "whether a regular expression matches anywhere in text",
        "'AAPL' rlike '^A+P' -> true",
    ),
    _operator("||", "x || y -> string", "one string after the other; NULL if one is NULL", "'a' || 'b' -> 'ab'"),
    _operator("&", f"x & y -> {_NUMBER}", "the bits that both integers have", "6 & 3 -> 2"),
    _operator("|", f"x | y -> {_NUMBER}", "the bits that one of two integers has", "6 | 3 -> 7"),
    _operator("^", f"x ^ y -> {_NUMBER}", "the bits that exactly one of two integers has", "6 ^ 3 -> 5"),
    _operator("~", "~x -> type of x", "every bit of an integer turned", "~6 -> -7"),
    _operator("<<", "x << distance -> type of x", "the bits of x moved to the left", "3 << 2 -> 12"),
    _operator(">>", "x >> distance -> type of x", "the bits of x moved to the right, with the sign", "-8 >> 1 -> -4"),
    _operator(
        "case",
        "case [x] when a then b ... [else c] end -> common type of b and c",
        "the value of the first branch whose condition is true (or whose a equals x), else c or NULL",
        "case when 1 > 2 then 'up' else 'down' end -> 'down'",
    ),
    _operator(
        "cast",
        "cast(x as type) -> the type",
        "x at another type; NULL where it does not fit; '1.9' as an int is 1",
        "cast('1.9' as int) -> 1",
    ),
    _operator(
        "try_cast",
        "try_cast(x as type) -> the type",
        "the same as cast, but text with a fraction is no integer",
        "try_cast('1.9' as int) -> NULL",
    ),
    _operator(
        "extract",
        "extract(field from ts) -> int or double",
        "a field of the calendar, double for seconds with their fraction",
        "extract(hour from timestamp '2026-03-05 14:30:15.25') -> 14",
    ),
    _operator(
        "interval",
        "interval n unit -> interval",
        "a length of time, to add to a timestamp; also '1 day 2 hours', '01:30' hour to minute",
        "timestamp '2026-03-05 14:30:00' + interval 90 minutes -> timestamp '2026-03-05 16:00:00'",
    ),
    _operator(
        "timestamp",
        "timestamp 'text' -> timestamp",
        "a literal; without a zone it is in UTC",
        "timestamp '2026-03-05T15:30:00+01:00' -> timestamp '2026-03-05 14:30:00'",
    ),
)
