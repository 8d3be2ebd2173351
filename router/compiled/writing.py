"""Columns to lines of text. A column becomes *cells* first: each says where the text of a value lies in one buffer.

A cell holds the place of the text, shifted by ``SIZE_BITS``, and its size. So NULL, an entry of a string pool and a
number that was just written are the same for ``lines_loop``, which copies cells and the constant text between them.

Decimals are the shortest text that reads back as the same value, found by Schubfach (Raffaello Giulietti, "The
Schubfach way to render doubles", 2020): three multiplications by a power of ten of 128 bits from a table. The layout of
digits is that of orjson and polars, which write the same outputs until these loops are compiled.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from router.compiled.fields import Integers, Mask, Text, Words, unaligned
from storage.compiled.kernel import Kernel

SIZE_BITS = 24
SIZE_MASK = (1 << SIZE_BITS) - 1
INTEGER_BYTES, DECIMAL_BYTES, TIME_BYTES = 24, 32, 32  # of the text of one value, at most

_u = np.uint64
_LOW, _32, _1, _2, _4, _10, _40 = _u(0xFFFFFFFF), _u(32), _u(1), _u(2), _u(4), _u(10), _u(40)
_MINUS, _POINT, _ZERO, _E, _PLUS = b"-.0e+"
_SEVEN_BITS, _FOUR_BITS, _ZEROS = _u(0x0000007F0000007F), _u(0x000F000F000F000F), _u(0x3030303030303030)
_TENS = 10 ** np.arange(1, 8, dtype=np.uint64)
_UNITS = np.array([100, 10, 1], np.uint64)
_MARKS = np.frombuffer(b"--T::.Z", np.uint8)

Cells = npt.NDArray[np.int64]


def integer_cells_loop(values: Integers, text: Text, words: Words, first: int, cells: Cells) -> None:
    """Write integers into slots of ``INTEGER_BYTES`` from ``first`` on. Up to eight digits are one word."""
    for i in range(values.shape[0]):
        begin = at = first + i * INTEGER_BYTES
        rest = _u(values[i]) if values[i] >= 0 else ~_u(values[i]) + _1
        if values[i] < 0:
            text[at] = _MINUS
            at += 1
        if rest < _u(100_000_000):
            upper = rest // _u(10_000)
            word = upper | (rest - upper * _u(10_000)) << _32
            part = (word * _u(10_486)) >> _u(20) & _SEVEN_BITS
            word = part | (word - part * _u(100)) << _u(16)
            part = (word * _u(103)) >> _10 & _FOUR_BITS
            word = part | (word - part * _10) << _u(8)  # a digit a byte, the first one lowest
            zeros = 0
            for power in _TENS:
                zeros += int(rest < power)
            words[at] = (word | _ZEROS) >> _u(8 * zeros)
            cells[i] = (begin << SIZE_BITS) | (at - begin + 8 - zeros)
            continue
        end = at = begin + INTEGER_BYTES
        while rest != 0:
            part = rest // _10
            at -= 1
            text[at] = np.uint8(rest - part * _10) + _ZERO
            rest = part
        if values[i] < 0:
            at -= 1
            text[at] = _MINUS
        cells[i] = (at << SIZE_BITS) | (end - at)


def shortest_loop(bits: Words, width: int, low: int, powers: Words, digits: Words, exponents: Integers) -> None:
    """Write the shortest decimal, ``digits * 10**exponent``, of the magnitude of each value.

    ``bits`` holds IEEE numbers with ``width`` bits of significand, ``powers`` the upper and lower half of each power
    of ten from ``10**low`` on. Variables have the names of the paper.
    """
    hidden = _1 << _u(width)
    exponent_bits = 11 if width == 52 else 8
    bias = (1 << (exponent_bits - 1)) - 1 + width
    for i in range(bits.shape[0]):
        c = bits[i] & (hidden - _1)
        e = np.int64((bits[i] >> _u(width)) & _u((1 << exponent_bits) - 1))
        if c == 0 and e == 0:
            digits[i], exponents[i] = c, 0
            continue
        q = (e if e else 1) - bias
        is_closer = c == 0 and e > 1  # the next lower value is nearer than the next higher one
        if e:
            c |= hidden
            if q <= 0 and -q <= width and (c >> _u(-q)) << _u(-q) == c:
                digits[i], exponents[i] = c >> _u(-q), 0
                continue
        odd = c & _1
        k = (q * 1262611 - (524031 if is_closer else 0)) >> 22
        h = _u(q + ((-k * 1741647) >> 19) + 1)
        high, lower = powers[2 * (-k - low)], powers[2 * (-k - low) + 1]
        a1, a0, b1, b0 = high >> _32, high & _LOW, lower >> _32, lower & _LOW
        vbl = vb = vbr = _u(0)
        for which in range(3):
            x = _4 * c
            if which == 0:
                x = x - _2 + _u(is_closer)
            elif which == 2:
                x = x + _2
            x = x << h
            x1, x0 = x >> _32, x & _LOW
            m = b0 * x1 + ((b0 * x0) >> _32)
            n = b1 * x0 + (m & _LOW)
            below = b1 * x1 + (m >> _32) + (n >> _32)  # the upper half of lower * x
            m = a0 * x1 + ((a0 * x0) >> _32)
            n = a1 * x0 + (m & _LOW)
            y1 = a1 * x1 + (m >> _32) + (n >> _32)
            y0 = high * x + below
            rounded = (y1 + _u(y0 < below)) | _u(y0 > _1)
            if which == 0:
                vbl = rounded
            elif which == 1:
                vb = rounded
            else:
                vbr = rounded
        vbl, vbr = vbl + odd, vbr - odd
        s = vb // _4
        shorter = s // _10
        if s >= _10 and (vbl <= _40 * shorter) != (_40 * shorter + _40 <= vbr):
            digits[i], exponents[i] = shorter + _u(_40 * shorter + _40 <= vbr), k + 1
            continue
        if (vbl <= _4 * s) != (_4 * s + _4 <= vbr):
            s += _u(_4 * s + _4 <= vbr)
        else:
            s += _u(vb > _4 * s + _2 or (vb == _4 * s + _2 and s & _1 == _1))
        digits[i], exponents[i] = s, k


def decimal_cells_loop(  # noqa: C901  (a loop cannot call a function that is not compiled)
    minus: Mask, digits: Words, exponents: Integers, plain: Integers, text: Text, words: Words, first: int, cells: Cells
) -> None:
    """Write decimals into slots of ``DECIMAL_BYTES``. ``plain`` has the least and the greatest place of the point,
    counted from the first digit, of a number without an exponent. Up to six digits are one word."""
    found = np.empty(20, np.uint8)
    for i in range(digits.shape[0]):
        rest, exponent = digits[i], exponents[i]
        begin = at = first + i * DECIMAL_BYTES
        if minus[i]:
            text[at] = _MINUS
            at += 1
        if exponent:
            if rest % _u(100_000_000) == 0:
                rest //= _u(100_000_000)
                exponent += 8
            if rest % _u(10_000) == 0:
                rest //= _u(10_000)
                exponent += 4
            if rest % _u(100) == 0:
                rest //= _u(100)
                exponent += 2
            while rest % _10 == 0:
                rest //= _10
                exponent += 1
        if rest < _u(1_000_000) and exponent <= 0:
            zeros = 0
            for power in _TENS:
                zeros += int(rest < power)
            point = 8 - zeros + exponent
            if point > 0:
                upper = rest // _u(10_000)
                word = upper | (rest - upper * _u(10_000)) << _32
                part = (word * _u(10_486)) >> _u(20) & _SEVEN_BITS
                word = part | (word - part * _u(100)) << _u(16)
                part = (word * _u(103)) >> _10 & _FOUR_BITS
                word = ((part | (word - part * _10) << _u(8)) | _ZEROS) >> _u(8 * zeros)
                below = (_1 << _u(8 * point)) - _1
                fraction = word & ~below | _u((exponent == 0) * _ZERO) << _u(8 * point)
                words[at] = word & below | fraction << _u(8) | _u(_POINT) << _u(8 * point)
                cells[i] = (begin << SIZE_BITS) | (at - begin + 9 - zeros + (exponent == 0))
                continue
        size = 0
        while rest != 0:
            part = rest // _10
            size += 1
            found[20 - size] = np.uint8(rest - part * _10) + _ZERO
            rest = part
        point = size + exponent
        if point < plain[0] or point > plain[1]:
            for j in range(size):
                if j == 1:
                    text[at] = _POINT
                    at += 1
                text[at] = found[20 - size + j]
                at += 1
            text[at] = _E
            text[at + 1] = _PLUS if point > 0 else _MINUS
            at += 2
            power = _u(abs(point - 1))
            for unit in _UNITS:
                if power >= unit or unit == 1:
                    text[at] = np.uint8(power // unit % _10) + _ZERO
                    at += 1
        else:
            for j in range(0 if point > 0 else point - 1, max(size, point + 1)):
                if j == point:
                    text[at] = _POINT
                    at += 1
                text[at] = found[20 - size + j] if 0 <= j < size else _ZERO
                at += 1
        cells[i] = (begin << SIZE_BITS) | (at - begin)


def time_cells_loop(values: Integers, quote: int, text: Text, first: int, cells: Integers) -> None:
    """Write nanoseconds as ``2026-01-31T12:00:00.123456789Z``, with ``quote`` around them unless it is 0."""
    for i in range(values.shape[0]):
        at = first + i * TIME_BYTES + 1
        seconds = values[i] // 1_000_000_000
        rest = values[i] - seconds * 1_000_000_000
        days = seconds // 86_400
        of_day = seconds - days * 86_400
        shifted = days + 719_468  # years that begin in March: the leap day is the last
        era = shifted // 146_097
        of_era = shifted - era * 146_097
        years = (of_era - of_era // 1460 + of_era // 36_524 - of_era // 146_096) // 365
        of_year = of_era - (365 * years + years // 4 - years // 100)
        march = (5 * of_year + 2) // 153
        day = of_year - (153 * march + 2) // 5 + 1
        month = march + 3 if march < 10 else march - 9
        year = years + era * 400 + (month <= 2)
        text[at] = np.uint8(year // 1000) + _ZERO
        text[at + 1] = np.uint8(year // 100 % 10) + _ZERO
        for j in range(6):
            part = of_day % 60
            if j == 0:
                part = year % 100
            elif j == 1:
                part = month
            elif j == 2:
                part = day
            elif j == 3:
                part = of_day // 3600
            elif j == 4:
                part = of_day // 60 % 60
            text[at + 2 + 3 * j] = np.uint8(part // 10) + _ZERO
            text[at + 3 + 3 * j] = np.uint8(part % 10) + _ZERO
            text[at + 4 + 3 * j] = _MARKS[j]
        for j in range(28, 19, -1):
            text[at + j] = np.uint8(rest % 10) + _ZERO
            rest //= 10
        text[at + 29] = _MARKS[6]
        if quote:
            text[at - 1] = text[at + 30] = quote
            cells[i] = ((at - 1) << SIZE_BITS) | 32
        else:
            cells[i] = (at << SIZE_BITS) | 30


def lines_loop(texts: Words, cells: Cells, before: Words, parts: Integers, out: Words, size: Integers) -> None:
    """Write the lines of all rows: before column c the constant text from ``parts[c]`` to ``parts[c + 1]``, then its
    cell; the rest of the constant text ends the line. Writes the size of all into ``size``.

    All are words that begin at each byte. A copy moves whole words, so every buffer has room for one more.
    """
    at = 0
    width = cells.shape[0]
    for i in range(cells.shape[1]):
        for c in range(width + 1):
            length = parts[c + 1] - parts[c]
            out[at] = before[parts[c]]  # most texts are no longer than a word
            for k in range(8, length, 8):
                out[at + k] = before[parts[c] + k]
            at += length
            if c < width:
                length = cells[c, i] & SIZE_MASK
                begin = cells[c, i] >> SIZE_BITS
                out[at] = texts[begin]
                for k in range(8, length, 8):
                    out[at + k] = texts[begin + k]
                at += length
    size[0] = at


def _not_compiled(*args: Any) -> None:
    """Write nothing: the loop is not compiled. The caller sees that, and uses another writer."""


INTEGER_CELLS = Kernel(
    "integer_cells",
    _not_compiled,
    integer_cells_loop,
    lambda types: [(types.int64[::1], types.uint8[::1], unaligned(types), types.int64, types.int64[::1])],
)
SHORTEST = Kernel(
    "shortest",
    _not_compiled,
    shortest_loop,
    lambda types: [
        (types.uint64[::1], types.int64, types.int64, types.uint64[::1], types.uint64[::1], types.int64[::1])
    ],
)
DECIMAL_CELLS = Kernel(
    "decimal_cells",
    _not_compiled,
    decimal_cells_loop,
    lambda types: [
        (
            *(types.boolean[::1], types.uint64[::1], types.int64[::1], types.int64[::1]),
            *(types.uint8[::1], unaligned(types), types.int64, types.int64[::1]),
        )
    ],
)
TIME_CELLS = Kernel(
    "time_cells",
    _not_compiled,
    time_cells_loop,
    lambda types: [(types.int64[::1], types.int64, types.uint8[::1], types.int64, types.int64[::1])],
)
LINES = Kernel(
    "lines",
    _not_compiled,
    lines_loop,
    lambda types: [
        (
            *(unaligned(types), types.int64[:, ::1], unaligned(types), types.int64[::1]),
            *(unaligned(types), types.int64[::1]),
        )
    ],
)
