"""Timestamps by a pattern: date_format writes, to_timestamp(text, pattern) reads. A pattern is a constant.

Of Spark's letters it may have y M L d D Q E a H h K k m s S, and for writing X x Z z V (always UTC); literal text
stands in quotes. A part in brackets is optional when a text is read, and always written. Timestamps are first truncated
to the finest unit of the pattern; then each distinct one is written once.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from datetime import date, datetime, timedelta
from typing import Any

import numpy as np
import re2

from catalog.schema import Type
from engine.operators.expressions.functions.text import as_text, text_function
from engine.operators.expressions.functions.times import DAY_NS, HOUR_NS, MINUTE_NS, SECOND_NS, timestamp
from engine.operators.expressions.kernels.casts import cast
from engine.operators.expressions.kernels.combinations import distinct_vector
from engine.operators.expressions.tree.coerce import Refusal
from engine.operators.expressions.tree.node import Node, constant, folded
from engine.operators.expressions.tree.vector import Scope, Vector

_MONTHS = (
    *("January", "February", "March", "April", "May", "June"),
    *("July", "August", "September", "October", "November", "December"),
)
_DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_EPOCH = datetime(1970, 1, 1)
_EPOCH_DAY = date(1970, 1, 1).toordinal()
MAX_PATTERN_CHARS = 200
_QUOTED = re.compile(r"'((?:[^']|'')*)'")

Token = tuple[str, int] | str
"""A letter with its number of repetitions, or literal text; ``("[", 1)`` and ``("]", 1)`` enclose an optional part."""
_BRACKETS = ("[", "]")


class _Moment:
    """A timestamp, split into a datetime of seconds and nanoseconds."""

    __slots__ = ("ns", "t")

    def __init__(self, value_ns: int) -> None:
        seconds, self.ns = divmod(value_ns, SECOND_NS)
        self.t = _EPOCH + timedelta(seconds=seconds)


def _padded(value: Callable[[_Moment], int]) -> Callable[[_Moment, int], str]:
    return lambda moment, width: str(value(moment)).zfill(width)


def _named(names: Sequence[str], at: Callable[[_Moment], int]) -> Callable[[_Moment, int], str]:
    return lambda moment, width: names[at(moment)] if width == 4 else names[at(moment)][:3]


def _year(moment: _Moment, width: int) -> str:
    return f"{moment.t.year % 100:02d}" if width == 2 else str(moment.t.year).zfill(width)


def _month(moment: _Moment, width: int) -> str:
    return str(moment.t.month).zfill(width) if width < 3 else _named(_MONTHS, lambda m: m.t.month - 1)(moment, width)


def _zone(plus: str, colon: str) -> Callable[[_Moment, int], str]:
    return lambda moment, width: plus if plus else "+00" if width == 1 else f"+00{colon if width in (3, 5) else ''}00"


_WRITE: dict[str, tuple[Callable[[_Moment, int], str], int, int]] = {
    # letter: (writer, widest, finest unit in nanoseconds)
    "y": (_year, 6, DAY_NS),
    "M": (_month, 4, DAY_NS),
    "L": (_month, 4, DAY_NS),
    "d": (_padded(lambda m: m.t.day), 2, DAY_NS),
    "D": (_padded(lambda m: m.t.timetuple().tm_yday), 3, DAY_NS),
    "Q": (_padded(lambda m: (m.t.month + 2) // 3), 2, DAY_NS),
    "E": (_named(_DAYS, lambda m: m.t.weekday()), 4, DAY_NS),
    "a": (lambda m, width: "AM" if m.t.hour < 12 else "PM", 1, HOUR_NS),
    "H": (_padded(lambda m: m.t.hour), 2, HOUR_NS),
    "h": (_padded(lambda m: (m.t.hour + 11) % 12 + 1), 2, HOUR_NS),
    "K": (_padded(lambda m: m.t.hour % 12), 2, HOUR_NS),
    "k": (_padded(lambda m: m.t.hour or 24), 2, HOUR_NS),
    "m": (_padded(lambda m: m.t.minute), 2, MINUTE_NS),
    "s": (_padded(lambda m: m.t.second), 2, SECOND_NS),
    "S": (lambda m, width: f"{m.ns:09d}"[:width], 9, 1),
    "X": (_zone("Z", ""), 5, DAY_NS),
    "x": (_zone("", ":"), 5, DAY_NS),
    "Z": (lambda m, width: "+0000" if width < 4 else "GMT" if width == 4 else "Z", 5, DAY_NS),
    "z": (lambda m, width: "UTC" if width < 4 else "Coordinated Universal Time", 4, DAY_NS),
    "V": (lambda m, width: "UTC", 2, DAY_NS),
}


def _tokens(what: str, pattern: str) -> list[Token]:
    """Split a pattern into letters with their counts, and literal text."""
    if len(pattern) > MAX_PATTERN_CHARS:
        raise Refusal(f"the format of {what} has more than {MAX_PATTERN_CHARS} characters")
    tokens: list[Token] = []
    at = depth = 0
    while at < len(pattern):
        char = pattern[at]
        if char == "'":
            quoted = _QUOTED.match(pattern, at)
            if quoted is None:
                raise Refusal(f"the format {pattern!r} has a quote that is not closed")
            tokens.append(quoted[1].replace("''", "'") or "'")
            at = quoted.end()
        elif char in _BRACKETS:
            depth += 1 if char == "[" else -1
            if depth < 0:
                raise Refusal(f"the format {pattern!r} has a ] without a [")
            tokens.append((char, 1))
            at += 1
        elif char in "{}#":
            raise Refusal(f"the format {pattern!r} has a {char}, which Spark reserves", "write it in quotes")
        elif char.isascii() and char.isalpha():
            count = len(pattern[at:]) - len(pattern[at:].lstrip(char))
            if char not in _WRITE or count > _WRITE[char][1]:
                hint = f"the letters are {' '.join(_WRITE)}"
                raise Refusal(f"the format {pattern!r} has the unknown part {char * count!r}", hint)
            tokens.append((char, count))
            at += count
        else:
            tokens.append(char)
            at += 1
    if depth:
        raise Refusal(f"the format {pattern!r} has a [ that is not closed")
    return tokens


def _writer(what: str, pattern: str) -> tuple[Callable[[int], str], int]:
    """Make a function from nanoseconds to text; return it with the unit to which timestamps may be truncated."""
    tokens = [token for token in _tokens(what, pattern) if token[0] not in _BRACKETS or isinstance(token, str)]
    parts = [t if isinstance(t, str) else (_WRITE[t[0]][0], t[1]) for t in tokens]
    finest = min((_WRITE[t[0]][2] for t in tokens if not isinstance(t, str)), default=DAY_NS)

    def write(value_ns: int) -> str:
        moment = _Moment(value_ns)
        return "".join(part if isinstance(part, str) else part[0](moment, part[1]) for part in parts)

    return write, finest


def write_format(name: str, args: Sequence[Node]) -> Node:
    """Make the node of date_format, from_unixtime, dayname or monthname."""
    node = cast(cast(args[0], Type.BIGINT), Type.TIMESTAMP) if name == "from_unixtime" else timestamp(name, args[0])
    fixed = {"dayname": "EEE", "monthname": "MMM"}.get(name, "yyyy-MM-dd HH:mm:ss")
    pattern = _pattern(name, args[1]) if len(args) > 1 else fixed
    if node.is_null or pattern is None:
        return constant(None, Type.STRING)
    write, finest = _writer(name, pattern)

    def run(scope: Scope) -> Vector:
        x = node.run(scope)
        cut = x.values // finest * finest
        truncated = Vector(np.where(cut <= x.values, cut, x.values), x.valid)  # in 1677 the product may wrap around
        return distinct_vector((truncated,), write, Type.STRING)

    return folded(Node(f"date_format({node.key}, {pattern!r})", Type.STRING, run, (node,)))


def _pattern(what: str, node: Node) -> str | None:
    if node.constant is None or node.type not in (Type.STRING, None):
        raise Refusal(f"the format of {what} must be a constant string")
    text: str | None = node.value
    return text


# -- reading --------------------------------------------------------------------------------------------------------

_READ = {"y": "year", "M": "month", "d": "day", "H": "hour", "h": "hour12", "m": "minute", "s": "second"}


def read_format(node: Node, format_node: Node) -> Node:
    """Make the node of to_timestamp(text, pattern): NULL for text that does not fit the pattern."""
    pattern = _pattern("to_timestamp", format_node)
    node = as_text(node)
    if pattern is None or node.is_null:
        return constant(None, Type.TIMESTAMP)
    read = _reader(pattern)
    return text_function(f"to_timestamp by {pattern!r}", read, [node], Type.TIMESTAMP, nullable=True)


def _reader(pattern: str) -> Callable[[str], int | None]:
    body = ""
    seen: set[str] = set()
    for token in _tokens("to_timestamp", pattern):
        if isinstance(token, str):
            body += re2.escape(token)
            continue
        letter, count = token
        if letter in _BRACKETS:
            body += "(?:" if letter == "[" else ")?"
            continue
        name = "fraction" if letter == "S" else "half" if letter == "a" else _READ.get(letter, "")
        name = "year2" if letter + str(count) == "y2" else name
        if not name or (letter == "M" and count > 2) or name in seen:
            raise Refusal(f"to_timestamp cannot read {letter * count!r} in {pattern!r}")
        seen.add(name)
        body += f"(?P<{name}>{_digits(letter, count)})"
    regex = re2.compile(body)

    def read(text: str) -> int | None:
        found = regex.fullmatch(text)
        return None if found is None else _assembled(found.groupdict(), pattern)

    return read


def _digits(letter: str, count: int) -> str:
    if letter == "a":
        return "(?i:am|pm)"
    if letter == "y":
        return {1: r"\d{1,6}", 2: r"\d{2}"}.get(count, rf"\d{{{count}}}")
    if letter == "S":
        return rf"\d{{1,{count}}}"
    return r"\d{1,2}" if count == 1 else r"\d{2}"


def _assembled(part: dict[str, Any], pattern: str) -> int | None:
    year = 2000 + int(part["year2"]) if part.get("year2") else int(part.get("year") or 1970)
    hour = int(part.get("hour") or 0)
    if part.get("hour12"):
        hour12 = int(part["hour12"])
        if not 1 <= hour12 <= 12:
            return None
        hour = hour12 % 12 + (12 if (part.get("half") or "").upper() == "PM" else 0)
    minute, second = int(part.get("minute") or 0), int(part.get("second") or 0)
    if hour > 23 or minute > 59 or second > 59:
        return None
    try:
        day = date(year, int(part.get("month") or 1), int(part.get("day") or 1)).toordinal() - _EPOCH_DAY
    except ValueError:
        return None
    fraction_ns = int((part.get("fraction") or "").ljust(9, "0"))
    value = ((day * 24 + hour) * 60 + minute) * MINUTE_NS + second * SECOND_NS + fraction_ns
    return value if -(2**63) <= value < 2**63 else None
