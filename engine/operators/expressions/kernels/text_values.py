"""Read and write one value as text, by Spark's rules. Pure Python, called once for each distinct value.

A reader returns None for text that is not a value of its type.
- Integers: a sign, digits, and a fraction that is dropped (``'1.9'`` is 1), with blanks around them.
- Doubles: the forms that Java reads, with ``inf``, ``infinity`` and ``nan`` in any case. Written as Java does:
  ``1.0E10``.
- Timestamps: ``2020``, ``2020-5``, ``2020-05-03 1:2:3.5+02:00``, with a ``T``, with a zone behind the seconds. Spark
  also reads times without a date and the words today and now. They are refused here: the same text would mean another
  time tomorrow. Up to nine digits of a second are read and written, where Spark has six.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from datetime import date, datetime
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np

from catalog.schema import Type

_BLANKS = "".join(chr(code) for code in range(33)) + "\x7f"  # Spark trims these before it reads a value
_INTEGER = re.compile(r"([+-]?)(\d*)(?:\.(\d*))?", re.ASCII)
_STRICT = re.compile(r"[+-]?\d+", re.ASCII)
_DOUBLE = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?[df]?", re.ASCII | re.IGNORECASE)
_HEX = re.compile(r"[+-]?0x[0-9a-f]*\.?[0-9a-f]*p[+-]?\d+[df]?", re.ASCII | re.IGNORECASE)
_SPECIAL = {
    **dict.fromkeys(("inf", "+inf", "infinity", "+infinity"), math.inf),
    **dict.fromkeys(("-inf", "-infinity"), -math.inf),
    **dict.fromkeys(("nan", "+nan", "-nan"), math.nan),
}
_TIMESTAMP = re.compile(
    r"(?P<year>[+-]?\d{4,6})(?:-(?P<month>\d{1,2})(?:-(?P<day>\d{1,2})"
    r"(?:[ T](?P<hour>\d{1,2})(?::(?P<minute>\d{1,2})(?::(?P<second>\d{1,2})(?:\.(?P<fraction>\d{0,9})\d*)?"
    r"\s*(?P<zone>Z|[+-]\d.*|[A-Za-z].*)?)?)?)?)?)?",
    re.ASCII,
)
_OFFSET = re.compile(r"(?:UTC|GMT|UT)?(?:([+-])(\d{1,2})(?::?(\d{1,2}))?(?::?(\d{2}))?)?", re.ASCII)
_TRUE = frozenset({"t", "true", "y", "yes", "1"})
_FALSE = frozenset({"f", "false", "n", "no", "0"})
_NS = 10**9
_EPOCH_DAY = date(1970, 1, 1).toordinal()
_LOW_NS, _HIGH_NS = -(2**63), 2**63 - 1


def _read_integer(low: int, high: int) -> Callable[[str], int | None]:
    def read(text: str) -> int | None:
        found = _INTEGER.fullmatch(text.strip(_BLANKS))
        if found is None or (not found[2] and found[3] is None) or len(found[2]) > 40:
            return None
        value = int(found[1] + (found[2] or "0"))
        return value if low <= value <= high else None

    return read


def _read_strict(low: int, high: int) -> Callable[[str], int | None]:
    def read(text: str) -> int | None:
        text = text.strip(_BLANKS)
        value = int(text) if _STRICT.fullmatch(text) and len(text) <= 40 else low - 1
        return value if low <= value <= high else None

    return read


def read_double(text: str) -> float | None:
    text = text.strip(_BLANKS)
    special = _SPECIAL.get(text.lower())
    if special is not None:
        return special
    if _DOUBLE.fullmatch(text):
        return float(text.rstrip("dDfF"))
    if _HEX.fullmatch(text):
        try:
            return float.fromhex(text.rstrip("dDfF"))
        except (ValueError, OverflowError):
            return None
    return None


def read_boolean(text: str) -> bool | None:
    text = text.strip(_BLANKS).lower()
    return True if text in _TRUE else False if text in _FALSE else None


def read_timestamp(text: str) -> int | None:
    """Read nanoseconds since 1970; None also for times that int64 cannot hold (before 1677, after 2262)."""
    text = text.strip(_BLANKS)
    found = _TIMESTAMP.fullmatch(text)
    if found is None:
        return None
    part = found.groupdict()
    hour, minute, second = (int(part[unit] or 0) for unit in ("hour", "minute", "second"))
    fraction_ns = int((part["fraction"] or "").ljust(9, "0"))
    try:
        day = date(int(part["year"]), int(part["month"] or 1), int(part["day"] or 1))
    except ValueError:
        return None
    if hour > 23 or minute > 59 or second > 59:
        return None
    offset_s = zone_offset_s(part["zone"] or "Z", datetime(day.year, day.month, day.day, hour, minute, second))
    if offset_s is None:
        return None
    seconds = (day.toordinal() - _EPOCH_DAY) * 86_400 + hour * 3_600 + minute * 60 + second - offset_s
    value = seconds * _NS + fraction_ns
    return value if _LOW_NS <= value <= _HIGH_NS else None


def zone_offset_s(zone: str, local: datetime) -> int | None:
    """Return the seconds east of UTC at a local time; None for an unknown zone."""
    if zone == "Z":
        return 0
    found = _OFFSET.fullmatch(zone)
    if found:
        seconds = int(found[2] or 0) * 3_600 + int(found[3] or 0) * 60 + int(found[4] or 0)
        return None if seconds > 18 * 3_600 or int(found[3] or 0) > 59 else -seconds if found[1] == "-" else seconds
    try:
        offset = local.replace(tzinfo=ZoneInfo(zone)).utcoffset()
    except (KeyError, ValueError, OSError):
        return None
    return None if offset is None else int(offset.total_seconds())


def write_double(value: float, digits: str | None = None) -> str:
    """Write a double as Java's Double.toString: always a point, an exponent below 1e-3 and from 1e7 on."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    sign, mantissa, exponent = Decimal(digits or repr(value)).as_tuple()
    assert isinstance(exponent, int)
    text = "".join(map(str, mantissa))
    minus = "-" if sign else ""
    if value == 0:
        return minus + "0.0"
    point = len(text) + exponent  # digits before the point
    text = text.rstrip("0") or "0"
    if -3 < point <= 7:
        if point <= 0:
            return f"{minus}0.{'0' * -point}{text}"
        return f"{minus}{text[:point].ljust(point, '0')}.{text[point:] or '0'}"
    return f"{minus}{text[0]}.{text[1:] or '0'}E{point - 1}"


def write_float(value: float) -> str:
    return write_double(value, str(np.float32(value)))  # the fewest digits that read back as this float


def write_timestamp(value_ns: int) -> str:
    seconds, fraction_ns = divmod(value_ns, _NS)
    days, rest = divmod(seconds, 86_400)
    stamp = datetime.fromordinal(_EPOCH_DAY + days)
    clock = f"{rest // 3600:02d}:{rest // 60 % 60:02d}:{rest % 60:02d}"
    text = f"{stamp.year:04d}-{stamp.month:02d}-{stamp.day:02d} {clock}"
    return f"{text}.{fraction_ns:09d}".rstrip("0") if fraction_ns else text


_INT = (-(2**31), 2**31 - 1)
_BIGINT = (-(2**63), 2**63 - 1)
PARSERS: dict[Type, Callable[[str], Any]] = {
    Type.BOOLEAN: read_boolean,
    Type.INT: _read_integer(*_INT),
    Type.BIGINT: _read_integer(*_BIGINT),
    Type.FLOAT: read_double,
    Type.DOUBLE: read_double,
    Type.TIMESTAMP: read_timestamp,
}
STRICT_INTEGERS: dict[Type, Callable[[str], Any]] = {
    Type.INT: _read_strict(*_INT),
    Type.BIGINT: _read_strict(*_BIGINT),
}
WRITERS: dict[Type, Callable[[Any], str]] = {
    Type.INT: str,
    Type.BIGINT: str,
    Type.FLOAT: write_float,
    Type.DOUBLE: write_double,
    Type.TIMESTAMP: write_timestamp,
}
