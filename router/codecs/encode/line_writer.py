"""Trains to lines of text by compiled loops, on one thread and without the GIL, in half of the CPU that polars takes.

One buffer has the text of every value: that of NULL, true and false, the entries of string pools in the form of the
format (escaped once, kept from train to train), and behind them the numbers and times of the train at hand. The loops
(``router/compiled/writing``) fill it and copy from it. ``write`` returns None until they are compiled.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache

import numpy as np
import numpy.typing as npt

from catalog.schema import Schema, Type
from router.codecs.encode.pool_arrays import KEPT
from router.codecs.encode.text import in_unit
from router.compiled import writing
from router.compiled.fields import Text
from router.compiled.texts import words_of
from router.compiled.writing import Cells
from storage.compiled.kernel import ASKED_AFTER, Kernel
from storage.strings import StringPool
from storage.train import Array, Train

FEWEST_TUPLES = 128
"""Below, the fixed cost of the calls is more than that of the pieces of text."""

DEAD_BYTES = 8 * 1024**2
"""The entries of pools that are not kept stay in the buffer up to this size. Then it begins anew."""

_LOOPS: tuple[Kernel[None], ...] = (
    writing.INTEGER_CELLS,
    writing.SHORTEST,
    writing.DECIMAL_CELLS,
    writing.TIME_CELLS,
    writing.LINES,
)
_CALL_TUPLES = 50  # a train of this size is as much work as one call of other kernels
_ROOM = 8  # a copy moves words of eight bytes
_LOW = -292  # the least power of ten in the table
_PLAIN = {Type.DOUBLE: np.array([-4, 16]), Type.FLOAT: np.array([-5, 13])}  # places of the point without an exponent
_SLOTS = {
    Type.INT: writing.INTEGER_BYTES,
    Type.BIGINT: writing.INTEGER_BYTES,
    Type.TIMESTAMP: writing.TIME_BYTES,
    Type.FLOAT: writing.DECIMAL_BYTES,
    Type.DOUBLE: writing.DECIMAL_BYTES,
}

_NO_CELLS = np.empty(0, np.int64)

Escaped = Callable[[Sequence[str]], npt.NDArray[np.object_]]


class _TooLongError(Exception):
    """A string whose size does not fit into a cell."""


def are_compiled(tuples: int) -> bool:
    """Tell whether all loops are compiled. Asks for them when lines are written often."""
    lines = writing.LINES
    lines.count(1 + tuples // _CALL_TUPLES)
    if not lines.is_asked:
        return False
    for kernel in _LOOPS:
        kernel.count(ASKED_AFTER)
    return all(kernel.runs_compiled for kernel in _LOOPS)


class LineWriter:
    """Writes the lines of one output. Owner: the encoder."""

    def __init__(
        self, schema: Schema, timestamps: str, between: Sequence[bytes], last: bytes, null: bytes, quote: bytes,
        escaped: Escaped,
    ) -> None:  # fmt: skip
        """``between[i]`` stands before column i and ``last`` behind all. ``quote`` goes around ISO times. ``escaped``
        returns strings as they stand in the format."""
        self._schema = schema
        self._timestamps = timestamps
        self._escaped = escaped
        self._quote = ord(quote) if quote else 0
        fixed = [*between, last]
        self._before = words_of(np.frombuffer(b"".join(fixed) + bytes(_ROOM), np.uint8).copy())
        self._parts = np.cumsum([0, *map(len, fixed)])
        self._fixed_bytes = int(self._parts[-1])
        words = [null, b"true", b"false"]
        self._first = np.frombuffer(b"".join(words), np.uint8)
        self._null, self._true, self._false = _cells_of(words, 0).tolist()
        self._begin_anew()

    def _begin_anew(self) -> None:
        self._pools: dict[int, tuple[StringPool, Cells]] = {}  # by identity: the cells of the entries
        self._dead_bytes = 0  # of entries of pools that are not kept
        self._kept = len(self._first)  # bytes of the buffer that stay
        self._buffer: Text = np.zeros(64 * 1024, np.uint8)
        self._buffer[: self._kept] = self._first

    def write(self, train: Train) -> bytes | None:
        """Return the lines of a train, or None."""
        if train.count < FEWEST_TUPLES or not are_compiled(train.count):
            return None
        if self._dead_bytes > max(DEAD_BYTES, self._kept // 2):
            self._begin_anew()
        try:
            cells = self._cells(train)
        except _TooLongError:
            return None
        size = self._fixed_bytes * train.count + int((cells & writing.SIZE_MASK).sum())
        out = np.empty(size + 2 * _ROOM, np.uint8)
        ended = np.zeros(1, np.int64)
        writing.LINES.run(words_of(self._buffer), cells, self._before, self._parts, words_of(out), ended)
        if not are_compiled(0):  # a loop met a type that it does not know, and is not run any more
            return None
        assert ended[0] == size
        return out[:size].tobytes()

    def _cells(self, train: Train) -> Cells:
        """Write the values of a train into the buffer. Returns a row of cells for each column."""
        rows = train.count
        cells = np.zeros((len(self._schema), rows), np.int64)
        entries = [self._entries(pool) if pool is not None else None for pool in train.pools]
        at = self._kept
        self._make_room(sum(_SLOTS.get(f.type, 0) for f in self._schema) * rows)
        for c, f in enumerate(self._schema):
            column, known = train.columns[c], entries[c]
            if known is not None:
                cells[c] = known.take(column) if len(known) else self._null
            elif f.type is Type.BOOLEAN:
                cells[c] = np.where(column, self._true, self._false)
            else:
                self._write_column(f.type, np.ascontiguousarray(column), at, cells[c])
                at += _SLOTS[f.type] * rows
            flags = train.null_mask(c)
            if flags is not None:
                cells[c][~flags] = self._null
        return cells

    def _make_room(self, nbytes: int) -> None:
        if self._kept + nbytes + _ROOM > len(self._buffer):
            grown = np.zeros(2 * (self._kept + nbytes + _ROOM), np.uint8)
            grown[: self._kept] = self._buffer[: self._kept]
            self._buffer = grown

    def _write_column(self, kind: Type, column: Array, at: int, cells: Cells) -> None:
        """Write the values into the buffer from ``at`` on."""
        words = words_of(self._buffer)
        if kind is Type.TIMESTAMP and self._timestamps == "iso":
            writing.TIME_CELLS.run(column, self._quote, self._buffer, at, cells)
        elif kind is Type.DOUBLE or kind is Type.FLOAT:
            is_double = kind is Type.DOUBLE
            bits = column.view(np.uint64) if is_double else column.view(np.uint32).astype(np.uint64)
            digits, exponents = np.empty(len(column), np.uint64), np.empty(len(column), np.int64)
            writing.SHORTEST.run(bits, 52 if is_double else 23, _LOW, _powers(), digits, exponents)
            minus = np.signbit(column)
            writing.DECIMAL_CELLS.run(minus, digits, exponents, _PLAIN[kind], self._buffer, words, at, cells)
            is_finite = np.isfinite(column)
            if not is_finite.all():
                cells[~is_finite] = self._null
        else:
            values = in_unit(column, self._timestamps) if kind is Type.TIMESTAMP else column
            writing.INTEGER_CELLS.run(values.astype(np.int64, copy=False), self._buffer, words, at, cells)

    def _entries(self, pool: StringPool) -> Cells:
        """Return the cells of a pool's entries; they are escaped once."""
        kept = self._pools.get(id(pool))
        known = kept[1] if kept is not None and kept[0] is pool else _NO_CELLS
        values = pool.values[len(known) :]
        if not values and kept is not None:
            return known
        texts = self._escaped(values).tolist()
        if max(map(len, texts), default=0) > writing.SIZE_MASK:
            raise _TooLongError
        joined = b"".join(texts)
        self._make_room(len(joined))
        self._buffer[self._kept : self._kept + len(joined)] = np.frombuffer(joined, np.uint8)
        known = np.concatenate([known, _cells_of(texts, self._kept)])
        self._kept += len(joined)
        self._pools.pop(id(pool), None)
        self._pools[id(pool)] = (pool, known)
        if len(self._pools) > KEPT:
            _, gone = self._pools.pop(next(iter(self._pools)))
            self._dead_bytes += int((gone & writing.SIZE_MASK).sum())
        return known


def _cells_of(texts: Sequence[bytes], at: int) -> Cells:
    """Return the cells of texts that lie one behind another from ``at`` on."""
    sizes = np.array([len(text) for text in texts], np.int64)
    return ((at + np.cumsum(sizes) - sizes) << writing.SIZE_BITS) | sizes


@cache
def _powers() -> npt.NDArray[np.uint64]:
    """Return the upper and the lower half of each power of ten from ``_LOW`` to 324, of 128 bits, rounded up."""
    halves: list[int] = []
    for exponent in range(_LOW, 325):
        shift = 127 - ((exponent * 1741647) >> 19)
        if exponent < 0:
            power = -(-(1 << shift) // 10**-exponent)
        else:
            power = 10**exponent << shift if shift >= 0 else -(-(10**exponent) >> -shift)
        halves += divmod(power, 1 << 64)
    return np.array(halves, np.uint64)
