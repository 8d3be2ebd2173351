"""Strings to the codes of a pool, by the bytes of its entries.

A table holds the bytes of all entries of a pool, one after another, and a hash index over them. So a string that the
pool knows becomes its code without a Python string. Only a new string is made, once, and that also checks its UTF-8: a
known string has the bytes of a sound one. The hash has a random seed, because strings come from outside.
"""

from __future__ import annotations

from collections.abc import Sequence
from secrets import randbits
from typing import Any

import numpy as np
import numpy.typing as npt

from router.compiled.fields import PAD, Integers, Text, Words, unaligned
from storage.compiled.kernel import Kernel
from storage.strings import Codes, StringPool

_u = np.uint64
_FIRST, _SECOND = _u(0x9E3779B97F4A7C15), _u(0xD6E8FEB86659FD93)
_MOST = 4  # places for each entry, at least two


def find_texts_loop(
    words: Words, left: Integers, right: Integers, entries: Words, places: Integers, cells: Codes, salt: Any, out: Codes
) -> None:
    """Write the code of each text, -1 for one that is unknown. ``places`` has where each entry begins, and the end."""
    mask = cells.shape[0] - 1
    for i in range(out.shape[0]):
        begin, size = left[i] + 1 + PAD, right[i] - left[i] - 1
        mixed = salt ^ _u(size)
        for k in range(0, size, 8):
            word = words[begin + k]
            if size - k < 8:
                word = word << _u(64 - 8 * (size - k))
            mixed = (mixed ^ word) * _SECOND
            mixed ^= mixed >> _u(32)
        at = np.int64((mixed * _FIRST) >> _u(33)) & mask
        code = cells[at]
        while code >= 0:
            place = places[code]
            same = places[code + 1] - place == size
            k = 0
            while same and k < size:
                word = words[begin + k] ^ entries[place + k]
                if size - k < 8:
                    word = word << _u(64 - 8 * (size - k))
                same = word == 0
                k += 8
            if same:
                break
            at = (at + 1) & mask
            code = cells[at]
        out[i] = code


def add_texts_loop(entries: Words, places: Integers, first: int, last: int, cells: Codes, salt: Any) -> None:
    """Put the entries from ``first`` to before ``last`` into the cells."""
    mask = cells.shape[0] - 1
    for code in range(first, last):
        begin, size = places[code], places[code + 1] - places[code]
        mixed = salt ^ _u(size)
        for k in range(0, size, 8):
            word = entries[begin + k]
            if size - k < 8:
                word = word << _u(64 - 8 * (size - k))
            mixed = (mixed ^ word) * _SECOND
            mixed ^= mixed >> _u(32)
        at = np.int64((mixed * _FIRST) >> _u(33)) & mask
        while cells[at] >= 0:
            at = (at + 1) & mask
        cells[at] = code


def _unknown(*args: Any) -> None:
    """Know no text: the loop is not compiled yet."""
    args[-1][:] = -1


def _nothing(*args: Any) -> None:
    """Add nothing: the loop is not compiled yet."""


def _find_types(types: Any) -> list[tuple[Any, ...]]:
    places, words, codes = types.int64[::1], unaligned(types), types.int32[::1]
    return [(words, places, places, words, places, codes, types.uint64, codes)]


def _add_types(types: Any) -> list[tuple[Any, ...]]:
    return [(unaligned(types), types.int64[::1], types.int64, types.int64, types.int32[::1], types.uint64)]


FIND_TEXTS = Kernel("find_texts", _unknown, find_texts_loop, _find_types)
ADD_TEXTS = Kernel("add_texts", _nothing, add_texts_loop, _add_types)


def words_of(text: npt.NDArray[np.uint8]) -> Words:
    """Return the words of eight bytes that begin at each byte of a buffer, but for the last seven."""
    return np.ndarray((len(text) - 7,), np.uint64, text.data, strides=(1,))


class PoolTexts:
    """The bytes of a pool's entries. Owner: the thread that may write to the pool."""

    def __init__(self) -> None:
        self._salt = _u(randbits(64))
        self._known = 0  # entries of the pool that are in the table
        self._text: Text = np.zeros(1024, np.uint8)
        self._words = words_of(self._text)
        self._places: Integers = np.zeros(65, np.int64)
        self._cells: Codes = np.full(256, -1, np.int32)

    def codes(self, pool: StringPool, words: Words, left: Integers, right: Integers) -> Codes:
        """Return the code of each text of a block, -1 where the pool does not have it."""
        if len(pool) > self._known:
            self._take(pool.values[self._known :])
        out = np.empty(left.shape[0], np.int32)
        FIND_TEXTS.run(words, left, right, self._words, self._places, self._cells, self._salt, out)
        return out

    def _take(self, values: Sequence[str]) -> None:
        raw = [value.encode("utf-8", "surrogatepass") for value in values]
        first, last = self._known, self._known + len(raw)
        joined = b"".join(raw)
        begin = int(self._places[first])
        end = begin + len(joined)
        if end + 8 > len(self._text):
            self._text = np.concatenate([self._text[:begin], np.zeros(2 * end + 8 - begin, np.uint8)])
            self._words = words_of(self._text)
        if last >= len(self._places):
            self._places = np.concatenate([self._places[: first + 1], np.zeros(2 * last, np.int64)])
        self._text[begin:end] = np.frombuffer(joined, np.uint8)
        self._places[first + 1 : last + 1] = begin + np.cumsum([len(text) for text in raw])
        if 2 * last > len(self._cells):
            self._cells = np.full(1 << (_MOST * last - 1).bit_length(), -1, np.int32)
            first = 0
        ADD_TEXTS.run(self._words, self._places, first, last, self._cells, self._salt)
        self._known = last
