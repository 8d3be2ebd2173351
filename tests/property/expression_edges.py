"""A generated catalogue: every function and every cast on the values at the edges of its types.

``entries`` derives the calls from the signatures, so a new function is in the catalogue without an edit here; only an
argument that must be constant needs its values in ``CONSTANTS``. Patterns of dates and regular expressions are written
out in ``expression_edge_values``: their edges are in the pattern, not in the type.

Each entry is a text for the engine and the text for Spark with the same meaning. They differ only where the engine
gives NULL on purpose and Spark does not, and in the few points that ``docs/functions.md`` names.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator
from typing import Any

from catalog.schema import Schema
from engine.operators.expressions import FUNCTIONS
from engine.operators.expressions.functions.signatures import Argument, ScalarFunction
from tests.property.expression_edge_values import (
    ASCII_PATTERNS,
    CYCLES,
    EMPTY_PATTERNS,
    FORMATS,
    LIKES,
    PATTERNS,
    READ_FORMATS,
    REPLACEMENTS,
)

SCHEMA = Schema.of(
    b="boolean?", c="boolean?", i="int?", j="int?", k="int?", n="bigint?", m="bigint?", f="float?", g="float?",
    x="double?", y="double?", s="string?", t="string?", u="string?", v="string?", d="string?", ts="timestamp?",
    at="timestamp?",
)  # fmt: skip
ROWS = 31 * 32  # every pair of doubles
FEWER_ROWS = 210  # for other pairs
_BY_TYPE = {
    "boolean": ("b", "c"),
    "int": ("k", "i", "j"),
    "bigint": ("n", "m"),
    "float": ("f", "g"),
    "double": ("x", "y"),
    "string": ("s", "t", "u", "v"),
    "timestamp": ("ts", "at"),
}


def columns() -> dict[str, list[Any]]:
    """Return the rows by column; timestamps in microseconds, which both engines can hold."""
    return {name: [cycle[row % len(cycle)] for row in range(ROWS)] for name, cycle in CYCLES.items()}


def columns_in(text: str) -> list[str]:
    """Return the columns that a text names."""
    bare = re.sub(r"'(?:[^'\\]|\\.)*'", "", text)
    return [name for name in CYCLES if re.search(rf"(?<!\w){name}(?![\w(])", bare)]


def rows_of(text: str) -> int:
    """Return how many rows show the combinations of the columns in a text."""
    names = columns_in(text)
    most = ROWS if set(names) <= {"x", "y"} else FEWER_ROWS
    return min(most, math.lcm(*(len(CYCLES[name]) for name in names)))


# -- calls by signature ---------------------------------------------------------------------------------------------

_UNITS = ("microsecond", "millisecond", "second", "minute", "hour", "day", "week", "month", "quarter", "year")
CONSTANTS: dict[tuple[str, str], list[str]] = {
    # by function and argument
    ("round", "digits"): ["0", "1", "2", "-1", "-2", "15", "-9", "-10", "-18", "-19", "400", "-400"],
    ("bround", "digits"): ["0", "1", "2", "-1", "-2", "15", "-9", "-10", "-18", "-19"],
    ("date_trunc", "unit"): [f"'{unit}'" for unit in _UNITS],
    ("date_part", "field"): [
        f"'{field}'" for field in ("year", "quarter", "month", "week", "day", "dow", "doy", "hour", "minute")
    ],
}

_NUMBERS = ("int", "bigint", "float", "double")
_IN_BIGINT = "{0} >= -9.2233720368547758e18D and {0} < 9.2233720368547758e18D"
_IN_RANGE = "if(unix_micros({0}) between -9223372036854775 and 9223372036854775, {0}, null)"
_SHORTEST = (  # Java before 19 writes more digits than these doubles need
    "case string({0}) when '1.4E-45' then '1.0E-45' when '4.9E-324' then '5.0E-324' when '-4.9E-324' then '-5.0E-324'"
    " when '9.2233720368547748E18' then '9.223372036854775E18' else string({0}) end"
)
SPARK_TEXT: dict[str, str] = {
    # a call here -> the text for Spark with our meaning: overflow is NULL
    "abs(int)": "if({0} = -2147483648, null, abs({0}))",
    "abs(bigint)": "if({0} = -9223372036854775808L, null, abs({0}))",
    "negative(int)": "try_subtract(0, {0})",
    "negative(bigint)": "try_subtract(0L, {0})",
    "from_unixtime(bigint)": "if({0} between -9223372036 and 9223372036, from_unixtime({0}), null)",
    "timestamp_seconds(bigint)": "if({0} between -9223372036 and 9223372036, timestamp_seconds({0}), null)",
    "timestamp_millis(bigint)": "if({0} between -9223372036854 and 9223372036854, timestamp_millis({0}), null)",
    "split_part(string, string, int)": "split_part({0}, {1}, nullif({2}, 0))",  # Spark fails on 0
    # Spark's start wraps around there
    "substring(string, int)": "if({1} = -2147483648, {0}, substring({0}, {1}))",
    "substr(string, int)": "if({1} = -2147483648, {0}, substr({0}, {1}))",
    # names that Spark does not have
    "starts_with(string, string)": "startswith({0}, {1})",
    "ends_with(string, string)": "endswith({0}, {1})",
    "week(timestamp)": "weekofyear({0})",
}
for _kind in _NUMBERS:
    for _name in ("floor", "ceil", "ceiling"):
        if _kind in ("float", "double"):
            SPARK_TEXT[f"{_name}({_kind})"] = f"if({_IN_BIGINT}, {_name}({{0}}), null)"
    for _name in ("round", "bround"):
        if _kind in ("int", "bigint"):
            SPARK_TEXT[f"{_name}({_kind}, constant)"] = (
                f"try_cast({_name}(cast({{0}} as decimal(38, 0)), {{1}}) as {_kind})"
            )
    for _name in ("int", "bigint"):
        SPARK_TEXT[f"{_name}({_kind})"] = f"try_cast({{0}} as {_name})"
    for _other in ("int", "bigint"):
        SPARK_TEXT[f"pmod({_kind}, {_other})"] = (
            "if({0} % {1} < 0 and try_add({0} % {1}, {1}) is null, null, pmod({0}, {1}))"
        )


def _calls(function: ScalarFunction) -> Iterator[list[str]]:
    """Yield lists of arguments: every number of arguments, the types of the signature, the constants of the table."""
    signature = function.signature
    for count in range(signature.least, min(signature.most, len(signature.arguments) + 1) + 1):
        arguments = [a for a in signature.arguments if not a.optional]
        if count > signature.least:
            arguments = [*signature.arguments, signature.arguments[-1]][:count]
        constants = [CONSTANTS.get((function.name, a.name), []) for a in arguments if a.constant]
        width = max((len(a.types) for a in arguments if not a.constant), default=1)
        for values, column in itertools.product(itertools.product(*constants), range(width)):
            fixed = iter(values)
            yield [next(fixed) if a.constant else _column(arguments, at, column) for at, a in enumerate(arguments)]


def _column(arguments: list[Argument], at: int, column: int) -> str:
    """Return a column for an argument; a second argument of a type gets another column."""
    argument = arguments[at]
    kind = str(argument.types[column % len(argument.types)])
    taken = sum(a.type == argument.type for a in arguments[:at])
    return _BY_TYPE[kind][taken % len(_BY_TYPE[kind])]


def _spark(text: str, name: str, arguments: list[str]) -> str:
    kinds = [str(SCHEMA[a].type) if a in SCHEMA else "constant" for a in arguments]
    template = SPARK_TEXT.get(f"{name}({', '.join(kinds)})")
    if template is not None:
        return template.format(*arguments)
    if name == "string" and kinds[0] in ("float", "double"):
        return _SHORTEST.format(arguments[0])
    far = name in ("date_trunc", "timestamp", "to_timestamp", "timestamp_seconds", "timestamp_micros")
    return _IN_RANGE.format(text) if far else text


def entries() -> dict[str, str]:
    """Return the text for Spark by our text."""
    made: dict[str, str] = {}
    for name, function in FUNCTIONS.items():
        for arguments in _calls(function):
            text = f"{name}({', '.join(arguments)})"
            made[text] = _spark(text, name, arguments)
    return made | _casts() | _operators() | _times() | _patterns()


def _casts() -> dict[str, str]:
    made: dict[str, str] = {}
    for column, kind in itertools.product(("b", "i", "n", "f", "x", "s", "d", "ts"), _BY_TYPE):
        source = str(SCHEMA[column].type)
        for name in ("cast", "try_cast"):
            text = f"{name}({column} as {kind})"
            if name == "try_cast" and {source, kind} == {"boolean", "timestamp"}:
                continue  # refused here and in Spark
            if kind in ("int", "bigint") and source in _NUMBERS:
                made[text] = f"try_cast({column} as {kind})"
            elif kind == "string" and source in ("float", "double"):
                made[text] = _SHORTEST.format(column)
            else:
                made[text] = _IN_RANGE.format(text) if kind == "timestamp" else text
    return made


# -- operators, dates, patterns -------------------------------------------------------------------------------------


def _operators() -> dict[str, str]:
    numbers = (("x", "y"), ("f", "g"), ("x", "i"), ("n", "x"))
    others = (("s", "v"), ("ts", "at"), ("i", "f"), ("b", "c"))
    texts = [f"{a} {op} {b}" for op in ("+", "-", "*", "/", "%") for a, b in numbers]
    texts += [f"{a} {op} {b}" for op in ("=", "<", ">=", "<=>") for a, b in (*numbers, *others)]
    texts += [f"pow(x, {power})" for power in ("0.5D", "2", "-1", "0", "1", "0.3333D", "double('NaN')", "-0.5D", "3")]
    texts += ["pow(2, x)", "pow(1, x)", "pow(-1, x)", "-x", "-f", "x in (0.0D, 1.0D)", "x between -0.0D and 0.0D"]
    texts += ["left(s, i)", "right(s, i)", "locate(t, s, i)", "substring_index(s, t, i)", "chr(i)", "chr(n)"]
    texts += ["shiftleft(i, j)", "shiftright(n, i)", "s || t || u", "s in ('', 'a', 'é')", "s between 'A' and 'é'"]
    return {text: text for text in texts}


def _times() -> dict[str, str]:
    texts = [f"date_format(ts, {quoted(f)})" for f in FORMATS]
    texts += [f"from_unixtime(n % 9000000000, {quoted(f)})" for f in ("yyyy-MM-dd HH:mm:ss", "D", "[yyyy]")]
    texts += [f"extract({unit} from ts)" for unit in ("year", "week", "dow", "doy", "quarter", "hour")]
    spans = ("1 month", "12 months", "1 year", "1 day", "'-1' month", "1 microsecond", "5 weeks")
    far = [f"ts + interval {span}" for span in spans]
    far += [f"to_timestamp({quoted(t)}, {quoted(f)})" for f, values in READ_FORMATS.items() for t in values]
    return {text: text for text in texts} | {text: _IN_RANGE.format(text) for text in far}


def _patterns() -> dict[str, str]:
    texts: list[str] = []
    for argument, patterns in (
        ("s", PATTERNS),
        ("if(length(s) = octet_length(s), s, '')", ASCII_PATTERNS),
        ("translate(s, '😀𝒜𐐨', '')", EMPTY_PATTERNS),
    ):
        for pattern in patterns:
            texts += [f"{name}({argument}, {quoted(pattern)})" for name in ("regexp_like", "regexp_count")]
            texts += [f"regexp_extract({argument}, {quoted(pattern)}, 0)"]
            texts += [f"regexp_replace({argument}, {quoted(pattern)}, '<$0>')"]
    texts += [f"regexp_replace(s, {quoted(pattern)}, {quoted(new)})" for pattern, new in REPLACEMENTS]
    texts += ["regexp_extract(s, '(a)(b)?', 2)", "regexp_extract(s, '(k)$', 1)", "regexp_extract(s, '(k$)', 1)"]
    texts += [f"s {word} {quoted(pattern)}" for pattern in LIKES for word in ("like", "ilike")]
    return {text: text for text in texts}


def quoted(text: str) -> str:
    """Return the SQL literal of a text."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'").replace("\n", "\\n") + "'"
