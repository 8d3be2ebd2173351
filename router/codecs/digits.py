"""Numbers and short strings out of text by arithmetic on eight bytes at a time, for all rows of a column at once.

A column is given by where each of its values starts and stops in a block (something stands behind each). Eight digits
become a number in ten numpy steps on 64-bit words (the trick of every fast JSON parser, here across rows instead of
along a line): 11 ns a value, where readers that know every format take 40 to 80, and no Python lock in between.

Each function gives None when a value is anything but the plain form that it knows: digits with an optional minus and
at most 19 of them; digits, a point and at most 7 more, 15 in all, without an exponent; 32 bytes at most for a string.
Plain forms are also JSON's: 01, +1, .5, 1. and 0x1 are not among them.

Why 15 digits: a mantissa below 2^53 and a power of ten below 10^22 are both exact as doubles, so one division rounds
as the language of the sender meant it.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from storage.train import Array, Mask

PAD = 32
MAX_STRING_BYTES = 32

Words = npt.NDArray[np.uint64]
_u = np.uint64
_ZEROS = _u(0x3030303030303030)
_POINTS = _u(0x2E2E2E2E2E2E2E2E)
_ONES = _u(0x0101010101010101)
_HIGH = _u(0x8080808080808080)
_OVER_NINE = _u(0x7676767676767676)
_RANKS = _u(0x0706050403020100)
_POWERS = 10.0 ** np.arange(8)
_WHOLE_POWERS = np.array([10**k for k in range(8)], np.uint64)
_MINUS, _ZERO = b"-0"
_TRUE = _u(int.from_bytes(b"true", "little"))
_FALSE = _u(int.from_bytes(b"false", "little"))


class Block:
    """The bytes of a block, padded so that a word may begin before the first and end behind the last of them."""

    __slots__ = ("_words", "text")

    def __init__(self, data: bytes) -> None:
        padded = np.zeros(len(data) + 2 * PAD, np.uint8)
        padded[PAD:-PAD] = np.frombuffer(data, np.uint8)
        self.text = padded[PAD:-PAD]
        self._words: Words = np.ndarray((len(padded) - 7,), np.uint64, padded.data, strides=(1,))

    def words(self, at: Array) -> Words:
        """The eight bytes from each of these places on, the first one lowest."""
        out: Words = self._words[at + PAD]
        return out

    # -- numbers ------------------------------------------------------------------------------------------------------

    def integers(self, start: Array, stop: Array) -> Array | None:
        """As int64."""
        minus, start = self._sign(start)
        length = stop - start
        longest = int(length.max())
        if longest > 19 or not self._leads_well(start, length):
            return None
        value, bad = _number(self._tail(stop, length))
        for place in range(8, longest, 8):
            more, worse = _number(self._tail(stop - place, length - place))
            value += more * _u(10**place)
            bad |= worse
        if bad.any() or (longest == 19 and (value >= _u(2**63)).any()):
            return None
        out = value.view(np.int64)
        return out if minus is None else np.where(minus, -out, out)

    def decimals(self, start: Array, stop: Array) -> Array | None:
        """As float64. A value without a point is one, too."""
        minus, start = self._sign(start)
        length = stop - start
        longest = int(length.max())
        if longest > 16 or int(length.min()) < 1:
            return None
        digits = self._tail(stop, length)
        point = _point(digits)
        after = ((point * _RANKS) >> _u(56)).view(np.int64)  # how many digits stand behind the point
        has_point = point != 0
        whole_length = length - after - has_point
        if (has_point & (after == 0)).any() or not self._leads_well(start, whole_length):
            return None
        if longest <= 8:
            mantissa, bad = _number(_without_point(digits, point))
        else:
            mantissa, bad = self._long_mantissa(stop, whole_length, after, has_point)
        if bad.any() or (longest == 16 and not has_point[length == 16].all()):
            return None
        out: Array = mantissa.astype(np.float64) / _POWERS[after]
        return out if minus is None else np.where(minus, -out, out)

    def _long_mantissa(self, stop: Array, whole_length: Array, after: Array, has_point: Mask) -> tuple[Words, Words]:
        """The digits before and behind the point as one number."""
        whole_stop = stop - after - has_point
        value, bad = _number(self._tail(whole_stop, whole_length))
        more, worse = _number(self._tail(whole_stop - 8, whole_length - 8))
        part, worst = _number(self._tail(stop, after))
        return (value + more * _u(10**8)) * _WHOLE_POWERS[after] + part, bad | worse | worst

    def _sign(self, start: Array) -> tuple[Mask | None, Array]:
        """Where there is a minus (None: nowhere), and where the digits begin."""
        minus = self.text[start] == _MINUS
        return (minus, start + minus) if minus.any() else (None, start)

    def _leads_well(self, start: Array, length: Array) -> bool:
        """There is a digit, and a zero leads only by itself."""
        return int(length.min()) >= 1 and not ((self.text[start] == _ZERO) & (length > 1)).any()

    def _tail(self, stop: Array, length: Array) -> Words:
        """The last eight bytes before ``stop``, digits as 0 to 9; 0 for what is not of the value.

        ``length`` may be above 8 (the last eight count) or below 1 (all is 0: a shift by 64 gives that).
        """
        digits = self.words(stop - 8)
        shift = _shift(length)
        digits ^= _ZEROS
        digits >>= shift
        digits <<= shift
        return digits

    # -- words and strings --------------------------------------------------------------------------------------------

    def booleans(self, start: Array, stop: Array) -> Mask | None:
        length = stop - start
        keys = self._head(start, length)
        values: Mask = keys == _TRUE
        return values if (values | (keys == _FALSE)).all() and int(length.max()) <= 5 else None

    def distinct(self, start: Array, stop: Array) -> tuple[list[bytes], Array] | None:
        """The distinct texts, and for each row its place among them. The block must not hold a NUL."""
        length = stop - start
        longest = int(length.max())
        if longest > MAX_STRING_BYTES:
            return None
        places, count = _encode(self._head(start, length))
        for done in range(8, longest, 8):
            more, _ = _encode(self._head(start + done, length - done))
            places, count = _encode((places.astype(np.uint64) << _u(32)) | more.astype(np.uint64))
        first = np.empty(count, np.int64)
        first[places[::-1]] = np.arange(len(places) - 1, -1, -1)
        text = self.text
        return [text[a:b].tobytes() for a, b in zip(start[first].tolist(), stop[first].tolist())], places

    def _head(self, start: Array, length: Array) -> Words:
        """The first eight bytes, 0 for what is behind the end."""
        # A string that has ended long ago may point behind the block; nothing of that word is kept.
        word = self.words(np.minimum(start, len(self.text)))
        shift = _shift(length)
        word <<= shift
        word >>= shift
        return word


def _encode(keys: Words) -> tuple[Array, int]:
    """For each key its place among the distinct ones, and how many there are. A hash table over words takes 6 ns a
    row; one over texts of fixed width takes 50."""
    coded = pa.array(keys).dictionary_encode()
    return coded.indices.to_numpy(), len(coded.dictionary)


def _shift(length: Array) -> Words:
    """Bits to push out of a word so that ``length`` bytes of it are left, at most 8 and at least 0."""
    return (64 - (np.minimum(np.maximum(length, 0), 8) << 3)).view(np.uint64)


def _number(digits: Words) -> tuple[Words, Words]:
    """Eight digits, the first one lowest, as a number; and a bit where one of them is no digit."""
    bad: Words = ((digits + _OVER_NINE) | digits) & _HIGH
    digits = (digits * _u(10) + (digits >> _u(8))) & _u(0x00FF00FF00FF00FF)
    digits = (digits * _u(100) + (digits >> _u(16))) & _u(0x0000FFFF0000FFFF)
    digits = (digits * _u(10_000) + (digits >> _u(32))) & _u(0xFFFFFFFF)
    return digits, bad


def _point(digits: Words) -> Words:
    """The lowest bit of the byte of the point, 0 when there is none. Of two points the lower one is found, and the
    other one is then no digit."""
    word = digits ^ (_ZEROS ^ _POINTS)  # the byte of a point is now 0, and no other one is
    found = (word - _ONES) & ~word & _HIGH
    found &= ~found + _u(1)  # the lowest one
    return found >> _u(7)


def _without_point(digits: Words, point: Words) -> Words:
    """The digits before the point moved up by one place, over it."""
    before = point - _u(1)  # all bits below the point; without a point, all
    behind = ~(before | (point * _u(0xFF)))
    return np.where(point == 0, digits, ((digits & before) << _u(8)) | (digits & behind))
