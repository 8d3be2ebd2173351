"""Lines of text to fields, and fields to numbers, times and booleans.

A loop writes 1 to ``done`` when it has read everything. It gives up at the first value that is not plain, because the
decoders that also know the other forms, and the reasons to refuse one, are elsewhere. A field lies between two edges:
``text[left + 1 : right]``. An empty field is NULL: its place in ``valid`` becomes false.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from storage.compiled.kernel import Kernel

PAD = 32
"""Bytes before and behind a block, so that a word of eight bytes may begin or end outside."""

Text = npt.NDArray[np.uint8]
Words = npt.NDArray[np.uint64]
Integers = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]

_u = np.uint64
_ONES, _HIGH = _u(0x0101010101010101), _u(0x8080808080808080)
_COMMAS, _NEWLINES = _u(0x2C2C2C2C2C2C2C2C), _u(0x0A0A0A0A0A0A0A0A)
_QUOTES, _ESCAPES, _BLANKS = _u(0x2222222222222222), _u(0x5C5C5C5C5C5C5C5C), _u(0x2020202020202020)
_COMMA, _NEWLINE, _MINUS, _POINT, _ZERO, _NINE, _QUOTE, _ESCAPE, _BRACE = b',\n-.09"\\}'
_NULL = np.frombuffer(b"null", np.uint8)
_POWERS = 10.0 ** np.arange(16)


def split_loop(text: Text, words: Words, edges: Integers, done: Integers) -> None:
    """Write the places before the first field of each line, between fields, and behind the last. All lines must have
    as many fields as ``edges`` has rows, less one."""
    width, lines = edges.shape[0] - 1, edges.shape[1]
    line = field = at = 0
    edges[0, 0] = -1
    while at < text.shape[0]:
        word = words[at + PAD]
        commas, newlines = word ^ _COMMAS, word ^ _NEWLINES
        if ((commas - _ONES) & ~commas | (newlines - _ONES) & ~newlines) & _HIGH == 0:
            at += 8
            continue
        while text[at] != _COMMA and text[at] != _NEWLINE:
            at += 1
        field += 1
        if (text[at] == _NEWLINE) != (field == width):
            return
        edges[field, line] = at
        if field == width:
            line += 1
            field = 0
            if line < lines:
                edges[0, line] = at
        at += 1
    done[0] = 1


def match_loop(  # noqa: C901  (a loop cannot call a function that is not compiled)
    text: Text,
    words: Words,
    fixed: Text,
    parts: Integers,
    kinds: Integers,
    left: Integers,
    right: Integers,
    done: Integers,
) -> None:
    """Write the edges of the values of JSON objects, one a line, that all have the same text around their values.

    Before the value of column c stands ``fixed[parts[c] : parts[c + 1]]``; behind the last value stands the rest. A
    column of kind 1 has strings, and its edges are the quotes. ``null`` gets edges without anything between them;
    for a string these are the same place, because an empty string is no NULL.
    """
    at = 0
    for line in range(left.shape[1]):
        for c in range(kinds.shape[0] + 1):
            for k in range(parts[c], parts[c + 1]):
                if text[at] != fixed[k]:
                    return
                at += 1
            if c == kinds.shape[0]:
                break
            begin = at
            if text[at] == _NULL[0]:
                for k in range(4):
                    if text[at + k] != _NULL[k]:
                        return
                at += 4
                left[c, line] = begin
                right[c, line] = begin + 1 - kinds[c]
                continue
            if kinds[c] == 1:
                if text[at] != _QUOTE:
                    return
                at += 1
                while True:
                    word = words[at + PAD]
                    quotes, escapes = word ^ _QUOTES, word ^ _ESCAPES
                    special = ((quotes - _ONES) & ~quotes) | ((escapes - _ONES) & ~escapes) | (word - _BLANKS) & ~word
                    if special & _HIGH == 0:
                        at += 8
                        continue
                    while text[at] > 31 and text[at] != _QUOTE and text[at] != _ESCAPE:
                        at += 1
                    break
                if text[at] != _QUOTE:
                    return
                left[c, line], right[c, line] = begin, at
                at += 1
                continue
            digit = begin + (text[begin] == _MINUS)
            if text[digit] == _ZERO and text[digit + 1] >= _ZERO and text[digit + 1] <= _NINE:
                return  # JSON has no leading zeros
            while text[at] > 32 and text[at] != _COMMA and text[at] != _BRACE:
                at += 1
            if at == begin:
                return
            left[c, line], right[c, line] = begin - 1, at
    if at == text.shape[0]:
        done[0] = 1


def integers_loop(text: Text, left: Integers, right: Integers, out: Integers, valid: Mask, done: Integers) -> None:
    """Read integers of at most 18 digits, or 19 that begin with 1 to 8."""
    for i in range(out.shape[0]):
        at, end = left[i] + 1, right[i]
        if at == end:
            out[i] = 0
            valid[i] = False
            continue
        minus = text[at] == _MINUS
        at += minus
        digits = end - at
        if digits < 1 or digits > 19 or (digits == 19 and text[at] == _NINE):
            return
        value = np.int64(0)
        for j in range(at, end):
            if text[j] < _ZERO or text[j] > _NINE:
                return
            value = value * 10 + (np.int64(text[j]) - _ZERO)
        out[i] = -value if minus else value
    done[0] = 1


def decimals_loop(text: Text, left: Integers, right: Integers, out: Floats, valid: Mask, done: Integers) -> None:
    """Read decimals of at most 15 digits, with or without a point: then one division rounds correctly."""
    for i in range(out.shape[0]):
        at, end = left[i] + 1, right[i]
        if at == end:
            out[i] = 0.0
            valid[i] = False
            continue
        minus = text[at] == _MINUS
        at += minus
        point = end
        value = np.int64(0)
        for j in range(at, end):
            if text[j] == _POINT and point == end:
                point = j
            elif text[j] < _ZERO or text[j] > _NINE:
                return
            else:
                value = value * 10 + (np.int64(text[j]) - _ZERO)
        if point == at or point == end - 1 or end - at > 15 + (point < end):
            return
        number = np.float64(value) / _POWERS[max(0, end - point - 1)]
        out[i] = -number if minus and value else number
    done[0] = 1


def booleans_loop(text: Text, left: Integers, right: Integers, out: Mask, valid: Mask, done: Integers) -> None:
    """Read ``true`` and ``false``, by their length and first letter, and compare the rest."""
    true, false = b"true", b"false"
    for i in range(out.shape[0]):
        at, size = left[i] + 1, right[i] - left[i] - 1
        if size == 0:
            out[i] = False
            valid[i] = False
            continue
        if size != 4 and size != 5:
            return
        for j in range(size):
            if text[at + j] != (true[j] if size == 4 else false[j]):
                return
        out[i] = size == 4
    done[0] = 1


def times_loop(text: Text, left: Integers, right: Integers, out: Integers, valid: Mask, done: Integers) -> None:
    """Read ``2026-01-31T12:00:00.123456789Z`` as nanoseconds; the Z may be missing, and the fraction be shorter."""
    days = np.array([0, 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31])
    for i in range(out.shape[0]):
        at, size = left[i] + 1, right[i] - left[i] - 1
        if size == 0:
            out[i] = 0
            valid[i] = False
            continue
        size -= text[at + size - 1] == 90  # Z; without a zone it is UTC
        if size < 19 or size == 20 or size > 29 or (size > 19 and text[at + 19] != _POINT):
            return
        if text[at + 4] != _MINUS or text[at + 7] != _MINUS or text[at + 10] != 84:
            return
        if text[at + 13] != 58 or text[at + 16] != 58:
            return
        for j in range(size):
            is_sign = j == 4 or j == 7 or j == 10 or j == 13 or j == 16 or j == 19
            if not is_sign and (text[at + j] < _ZERO or text[at + j] > _NINE):
                return
        year = (
            (text[at] - _ZERO) * 1000
            + (text[at + 1] - _ZERO) * 100
            + (text[at + 2] - _ZERO) * 10
            + text[at + 3]
            - _ZERO
        )
        month = (text[at + 5] - _ZERO) * 10 + text[at + 6] - _ZERO
        day = (text[at + 8] - _ZERO) * 10 + text[at + 9] - _ZERO
        hour = (text[at + 11] - _ZERO) * 10 + text[at + 12] - _ZERO
        minute = (text[at + 14] - _ZERO) * 10 + text[at + 15] - _ZERO
        second = (text[at + 17] - _ZERO) * 10 + text[at + 18] - _ZERO
        leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
        if year < 1678 or year > 2261 or month < 1 or month > 12 or hour > 23 or minute > 59 or second > 59:
            return
        if day < 1 or day > days[month] + (leap and month == 2):
            return
        shifted = year - (month <= 2)  # years that begin in March: the leap day is the last
        of_era = shifted % 400
        of_year = (153 * (month + (-3 if month > 2 else 9)) + 2) // 5 + day - 1
        days_since = shifted // 400 * 146_097 + of_era * 365 + of_era // 4 - of_era // 100 + of_year - 719_468
        fraction = np.int64(0)
        for j in range(20, 29):
            fraction = fraction * 10 + (np.int64(text[at + j]) - _ZERO if j < size else 0)
        out[i] = (days_since * 86_400 + hour * 3600 + minute * 60 + second) * 1_000_000_000 + fraction
    done[0] = 1


def _give_up(*args: Any) -> None:
    """Read nothing: the loop is not compiled yet."""


def _of(dtype: str) -> Callable[[Any], Sequence[tuple[Any, ...]]]:
    def signatures(types: Any) -> list[tuple[Any, ...]]:
        places = types.int64[::1]
        return [(types.uint8[::1], places, places, getattr(types, dtype)[::1], types.boolean[::1], places)]

    return signatures


def unaligned(types: Any) -> Any:
    """Return the type of a view of the words that begin at each byte."""
    return types.Array(types.uint64, 1, "A", aligned=False)


SPLIT = Kernel(
    "split",
    _give_up,
    split_loop,
    lambda types: [(types.uint8[::1], unaligned(types), types.int64[:, ::1], types.int64[::1])],
)
MATCH = Kernel(
    "match",
    _give_up,
    match_loop,
    lambda types: [
        (
            *(types.uint8[::1], unaligned(types), types.uint8[::1], types.int64[::1], types.int64[::1]),
            *(types.int64[:, ::1], types.int64[:, ::1], types.int64[::1]),
        )
    ],
)
INTEGERS = Kernel("integers", _give_up, integers_loop, _of("int64"))
DECIMALS = Kernel("decimals", _give_up, decimals_loop, _of("float64"))
BOOLEANS = Kernel("booleans", _give_up, booleans_loop, _of("boolean"))
TIMES = Kernel("times", _give_up, times_loop, _of("int64"))
