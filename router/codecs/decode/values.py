"""Python values to columns, and the rules for what fits a field. Shared by the text codecs.

``make_train`` takes whole columns and looks only at the set of types in each. When a value does not fit, it raises
``MisfitError``, and the caller asks ``refuse`` row by row which value it is, and why. Both hold the same rules:

- boolean: true or false. int, bigint: an integer in range; 1.0 is not one. float, double: a number, finite.
- string: a string. timestamp: an integer in the source's unit, or ISO-8601 text (without a zone it is UTC).
- NULL only where the field is nullable; a missing field is NULL when it is nullable.
- Minus zero becomes zero: a parser of integers cannot tell ``-0`` from ``0``, and all decoders must agree.
"""

from __future__ import annotations

import re
from calendar import timegm
from collections.abc import Sequence
from types import NoneType
from typing import Any

import numpy as np
import pyarrow as pa

from catalog.schema import Field, Type
from router.codecs.base import Intake, Reason
from router.codecs.decode.draft import Draft
from storage.train import Array, Train

INT64_MAX = 2**63 - 1
INT64_MIN = -(2**63)
MISSING: Any = object()

_TYPES: dict[Type, frozenset[type]] = {
    Type.BOOLEAN: frozenset({bool}),
    Type.INT: frozenset({int}),
    Type.BIGINT: frozenset({int}),
    Type.FLOAT: frozenset({int, float}),
    Type.DOUBLE: frozenset({int, float}),
    Type.STRING: frozenset({str}),
    Type.TIMESTAMP: frozenset({int, str}),
}
_FILL: dict[Type, Any] = {Type.BOOLEAN: False, Type.STRING: "", Type.FLOAT: 0.0, Type.DOUBLE: 0.0}
INT_RANGE = {Type.INT: (-(2**31), 2**31 - 1), Type.BIGINT: (INT64_MIN, INT64_MAX)}
_FLOAT32_MAX = 3.4028235677973366e38  # from here on a double rounds to infinity as a float
_ISO = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)"
    r"(?:[T ](\d\d)(?::(\d\d)(?::(\d\d)(?:\.(\d{1,9}))?)?)?(?:(Z)|([+-])(\d\d)(?::?(\d\d))?)?)?",
    re.ASCII,
)


class MisfitError(Exception):
    """A column holds a value that does not fit its field."""


def make_train(intake: Intake, columns: Sequence[list[Any]], arrival_ns: int) -> Train:
    """Make a train of columns of Python values, in the order of the schema. Raises MisfitError."""
    draft = Draft(intake, len(columns[0]))
    ns_per_unit = intake.ns_per_unit
    for f, values in zip(intake.schema.fields, columns):
        add_values(draft, f, values, ns_per_unit)
    return draft.train(arrival_ns)


def add_values(draft: Draft, f: Field, values: list[Any], ns_per_unit: int) -> None:
    """Add one column of Python values to a draft. Raises MisfitError."""
    types = set(map(type, values))
    flags = None
    if NoneType in types:
        if not f.nullable:
            raise MisfitError
        types.discard(NoneType)
        flags = np.array([v is not None for v in values], np.bool_)
        # A value of the column itself stands for NULL, so that a column of ISO texts stays one of texts.
        fill = next((v for v in values if v is not None), _FILL.get(f.type, 0))
        values = [fill if v is None else v for v in values]
    if not types <= _TYPES[f.type]:
        raise MisfitError
    if f.type is Type.STRING:
        draft.add_strings(values, None, flags)
    else:
        draft.add(_column(f.type, values, types, ns_per_unit), flags)


def _column(kind: Type, values: list[Any], types: set[type], ns_per_unit: int) -> Array:
    if kind is Type.TIMESTAMP:
        return _timestamps(values, types, ns_per_unit)
    try:
        if kind is Type.FLOAT or kind is Type.DOUBLE:
            return finite(np.array(values, np.float64), kind)
        return np.array(values, kind.dtype)
    except OverflowError:
        raise MisfitError from None


def finite(values: Array, kind: Type) -> Array:
    """Turn doubles into the column of a float or double field: no minus zero, and MisfitError beyond the type."""
    values = values + 0.0
    if kind is Type.FLOAT:
        with np.errstate(over="ignore"):
            values = values.astype(np.float32)
    if not np.isfinite(values).all():
        raise MisfitError
    return values


def scale(values: Array, ns_per_unit: int) -> Array:
    """Convert timestamps from the source's unit to nanoseconds. Raises MisfitError beyond 64 bits."""
    if ns_per_unit == 1:
        return values
    limit = INT64_MAX // ns_per_unit
    if values.size and (int(values.max()) > limit or int(values.min()) < -limit):
        raise MisfitError("a timestamp is outside the range of 64-bit nanoseconds (the years 1677 to 2262)")
    return values * ns_per_unit


_FEW = 24
"""Up to this many ISO texts are parsed one by one (1.5 us each); above, Arrow's cast is faster (20 us, then 40 ns)."""


def _timestamps(values: list[Any], types: set[type], ns_per_unit: int) -> Array:
    if str not in types:
        try:
            return scale(np.array(values, np.int64), ns_per_unit)
        except OverflowError:
            raise MisfitError from None
    if len(values) > _FEW and int not in types:
        parsed = arrow_timestamps(pa.array(values, pa.string()))
        if parsed is not None:
            return parsed
    try:
        return np.array([timestamp_ns(v, ns_per_unit) for v in values], np.int64)
    except ValueError:
        raise MisfitError from None


def arrow_timestamps(texts: Any) -> Array | None:
    """Parse ISO texts to nanoseconds; None if Arrow refuses one. ``parse_iso_ns`` accepts all that Arrow accepts."""
    zoned = texts[0].as_py()[-1:] == "Z" if len(texts) else False
    try:
        cast = texts.cast(pa.timestamp("ns", "UTC" if zoned else None))
    except pa.ArrowInvalid:
        return None
    return np.asarray(cast.cast(pa.int64()))


def timestamp_ns(value: int | str, ns_per_unit: int) -> int:
    """Read one timestamp. Raises ValueError for other text, BeyondRangeError for a time out of range."""
    at = parse_iso_ns(value) if isinstance(value, str) else value * ns_per_unit
    if not INT64_MIN <= at <= INT64_MAX:
        raise BeyondRangeError(f"{value} is outside the range of 64-bit nanoseconds (the years 1677 to 2262)")
    return at


class BeyondRangeError(ValueError):
    """A timestamp that 64 bits of nanoseconds cannot hold."""


_DAYS = (0, 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)


def parse_iso_ns(text: str) -> int:
    """Parse ``2026-01-31T12:00:00.123456789Z`` and shorter forms; a zone needs a time; without a zone it is UTC."""
    found = _ISO.fullmatch(text)
    if found is None:
        raise ValueError(f"not an ISO-8601 timestamp: {text[:40]!r}")
    year, month, day, hour, minute, second, fraction, _, sign, zone_hour, zone_minute = found.groups()
    y, mo, d = int(year), int(month), int(day)
    h, mi, s = int(hour or 0), int(minute or 0), int(second or 0)
    leap = y % 4 == 0 and (y % 100 != 0 or y % 400 == 0)
    if not (1 <= mo <= 12 and 1 <= d <= _DAYS[mo] + (leap and mo == 2) and h < 24 and mi < 60 and s < 60 and y >= 1):
        raise ValueError(f"no such time: {text!r}")
    at = timegm((y, mo, d, h, mi, s))
    if sign:
        zh, zm = int(zone_hour), int(zone_minute or 0)
        if zh > 23 or zm > 59:
            raise ValueError(f"no such zone: {text!r}")
        at -= (zh * 3600 + zm * 60) * (1 if sign == "+" else -1)
    return at * 1_000_000_000 + (int(fraction.ljust(9, "0")) if fraction else 0)


# -- one value at a time: whether it fits, and why not ----------------------------------------------------------------


def refuse(f: Field, value: Any, ns_per_unit: int) -> tuple[Reason, str] | None:
    """Return why this value does not fit the field; None when it fits. ``MISSING`` stands for a missing field."""
    if value is MISSING:
        return None if f.nullable else (Reason.MISSING_FIELD, f"field {f.name} is missing")
    if value is None:
        return None if f.nullable else (Reason.NULL, f"field {f.name} is null, and it is not nullable")
    if type(value) not in _TYPES[f.type]:
        if int in _TYPES[f.type] and type(value) is float and abs(value) >= 2.0**63:  # orjson's view of 2^64
            return Reason.OUT_OF_RANGE, f"field {f.name}: {value!r} does not fit {f.type}"
        return Reason.WRONG_TYPE, f"field {f.name}: {_kind(value)} is not a {f.type}"
    if f.type in INT_RANGE:
        low, high = INT_RANGE[f.type]
        fits = low <= value <= high
    elif f.type is Type.FLOAT:
        fits = abs(value) < _FLOAT32_MAX
    elif f.type is Type.DOUBLE:
        fits = abs(value) != float("inf") and value == value
    elif f.type is Type.TIMESTAMP:
        try:
            timestamp_ns(value, ns_per_unit)
        except BeyondRangeError as error:
            return Reason.OUT_OF_RANGE, f"field {f.name}: {error}"
        except ValueError as error:
            return Reason.WRONG_TYPE, f"field {f.name}: {error}"
        return None
    else:
        return None
    return None if fits else (Reason.OUT_OF_RANGE, f"field {f.name}: {value!r} does not fit {f.type}")


def _kind(value: Any) -> str:
    names = {
        bool: "a boolean",
        int: "an integer",
        float: "a number",
        str: "a string",
        list: "an array",
        dict: "an object",
    }
    return names.get(type(value), type(value).__name__)
