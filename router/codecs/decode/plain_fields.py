"""The fields of a block by compiled loops, added to a draft. Shared by csv and ndjson."""

from __future__ import annotations

import numpy as np

from catalog.schema import Field, Type
from router.codecs.base import Intake, TextColumn
from router.codecs.decode.draft import Draft
from router.codecs.decode.values import INT_RANGE, MisfitError, finite, scale
from router.compiled.fields import BOOLEANS, DECIMALS, INTEGERS, PAD, TIMES, Integers
from router.compiled.texts import ADD_TEXTS, FIND_TEXTS, words_of
from storage.compiled.kernel import ASKED_AFTER, Kernel
from storage.train import Array, Mask

COMPILED_BYTES = 4 * 1024
"""The least size of a block: below, the fixed cost of the calls counts."""

_BLOCK_CALLS = 20  # a block is as much work as this many calls on a train

_NEEDED: tuple[Kernel[None], ...] = (INTEGERS, DECIMALS, BOOLEANS, TIMES, FIND_TEXTS, ADD_TEXTS)


def are_compiled(splitter: Kernel[None]) -> bool:
    """Tell whether all loops are compiled. Asks for them when the one that finds the fields is wanted often."""
    splitter.count(_BLOCK_CALLS)
    if not splitter.is_asked:
        return False
    for kernel in _NEEDED:
        kernel.count(ASKED_AFTER)
    return splitter.is_compiled and all(kernel.is_compiled for kernel in _NEEDED)


class PlainBlock:
    """A block of text, padded so that a word of eight bytes may end behind the last of them."""

    def __init__(self, intake: Intake, data: bytes) -> None:
        padded = np.empty(len(data) + 2 * PAD, np.uint8)
        padded[:PAD] = 0
        padded[-PAD:] = 0
        padded[PAD:-PAD] = np.frombuffer(data, np.uint8)
        self.text = padded[PAD:-PAD]
        self.words = words_of(padded)
        self._data = data
        self._ns_per_unit = intake.ns_per_unit

    def add(self, draft: Draft, f: Field, left: Integers, right: Integers) -> None:
        """Add a column that does not hold strings. Raises MisfitError when a value is not plain."""
        rows = left.shape[0]
        valid = np.ones(rows, np.bool_)
        done = np.zeros(1, np.int64)
        values: Array
        if f.type is Type.BOOLEAN:
            values = np.empty(rows, np.bool_)
            BOOLEANS.run(self.text, left, right, values, valid, done)
        elif f.type is Type.FLOAT or f.type is Type.DOUBLE:
            values = np.empty(rows, np.float64)
            DECIMALS.run(self.text, left, right, values, valid, done)
        else:
            values = np.empty(rows, np.int64)
            is_text = f.type is Type.TIMESTAMP and b"T" in self._data[left[0] + 1 : right[0]]
            (TIMES if is_text else INTEGERS).run(self.text, left, right, values, valid, done)
            if done[0] and f.type is Type.TIMESTAMP and not is_text:
                values = scale(values, self._ns_per_unit)
        if not done[0] or not (f.nullable or valid.all()):
            raise MisfitError
        draft.add(_fitting(f.type, values), None if valid.all() else valid)

    def add_texts(self, draft: Draft, left: Integers, right: Integers, valid: Mask | None) -> None:
        """Add a column of strings."""
        data = self._data

        def texts_at(rows: Integers) -> list[str]:
            """Make the strings of these rows. Raises UnicodeDecodeError."""
            places = zip((left.take(rows) + 1).tolist(), right.take(rows).tolist())
            return [data[a:b].decode() for a, b in places]

        flags = None if valid is None or valid.all() else valid
        draft.add_texts(TextColumn(self.words, left, right, texts_at), flags)


def _fitting(kind: Type, values: Array) -> Array:
    if kind is Type.FLOAT or kind is Type.DOUBLE:
        return finite(values, kind)
    if kind is Type.INT:
        low, high = INT_RANGE[Type.INT]
        if values.shape[0] and (int(values.min()) < low or int(values.max()) > high):
            raise MisfitError
        return values.astype(np.int32)
    return values
