"""Columns to pieces of text: what the ndjson and csv encoders share.

orjson serialises a whole column, and the text is split at its commas: 30 ns a value, where formatting each value in
Python costs 150. (No number, boolean or ISO time contains a comma.) Each entry of a string pool is escaped once. One
join then interleaves the pieces of the columns with the constant text between them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache

import numpy as np
import numpy.typing as npt
import orjson

from catalog.schema import Type
from router.codecs.base import NS_PER
from storage.strings import StringPool
from storage.train import Array, Train

Escape = Callable[[Sequence[str]], npt.NDArray[np.object_]]
ISO_BYTES = 30  # 2026-01-31T12:00:00.123456789Z


def pieces(train: Train, at: int, timestamps: str, null: bytes, quote: bytes, escape: Escape) -> list[bytes]:
    """Write one column as one piece of text for each tuple. ``quote`` goes around ISO times."""
    f = train.schema.fields[at]
    values = train.columns[at]
    if f.type is Type.STRING:
        pool = train.pools[at]
        assert pool is not None
        out: list[bytes] = escaped(pool, escape).take(values).tolist() if len(pool) else [null] * train.count
    elif f.type is Type.TIMESTAMP and timestamps == "iso":
        few = train.count <= FEW_TIMES
        text = [iso(ns).encode() for ns in values.tolist()] if few else iso_text(values).tolist()
        out = [quote + t + quote for t in text] if quote else text
    else:
        if f.type is Type.TIMESTAMP:
            values = in_unit(values, timestamps)
        out = orjson.dumps(np.ascontiguousarray(values), option=orjson.OPT_SERIALIZE_NUMPY)[1:-1].split(b",")
        if null != b"null" and f.type in (Type.FLOAT, Type.DOUBLE) and not np.isfinite(values).all():
            out = [null if v == b"null" else v for v in out]
    flags = train.null_mask(at)
    if flags is not None:
        for i in np.flatnonzero(~flags).tolist():
            out[i] = null
    return out


def escaped(pool: StringPool, escape: Escape) -> npt.NDArray[np.object_]:
    """Return the pool's entries escaped; each is computed once."""
    return pool.lookup(escape, escape)


def in_unit(values: Array, unit: str) -> Array:
    """Convert nanoseconds to another unit, rounding down."""
    return values if unit == "ns" else values // NS_PER[unit]


def interleave(columns: Sequence[list[bytes]], between: Sequence[bytes], last: bytes) -> bytes:
    """Join the columns to rows, with ``between[i]`` before column i and ``last`` at the end of each row."""
    count = len(columns[0])
    width = 2 * len(columns) + 1
    out = [last] * (count * width)
    for i, column in enumerate(columns):
        out[2 * i :: width] = [between[i]] * count
        out[2 * i + 1 :: width] = column
    return b"".join(out)


FEW_TIMES = 32
"""Up to this many times are written one by one, at 1 us each: ``iso_text`` takes 50 us to start."""


def iso(ns: int) -> str:
    """Write one time as ``iso_text`` does; the seconds come from a cache."""
    seconds, rest = divmod(ns, 1_000_000_000)
    return f"{_second(seconds)}.{rest:09d}Z"


@lru_cache(256)
def _second(seconds: int) -> str:
    return str(np.datetime64(seconds, "s"))


_DIGIT = 48
_TWO = np.array([f"{i:02d}" for i in range(100)], "S2").view(np.uint16)


def iso_text(values: Array) -> npt.NDArray[np.bytes_]:
    """Write nanoseconds as ``2026-01-31T12:00:00.123456789Z``. All texts have one width, so they sort like times.

    Each distinct second is formatted once (a train holds few); the digits of the fraction are computed by column.
    """
    seconds = values // 1_000_000_000
    rest = values - seconds * 1_000_000_000
    out = np.empty((values.shape[0], ISO_BYTES), np.uint8)
    out[:, :20] = _seconds_text(seconds)
    pairs = np.empty((values.shape[0], 4), np.uint16)
    rest = rest.astype(np.uint32)
    first = rest // np.uint32(100_000_000)
    rest = rest - first * np.uint32(100_000_000)
    for i, power in enumerate((1_000_000, 10_000, 100, 1)):
        part = rest // np.uint32(power)
        rest = rest - part * np.uint32(power)
        pairs[:, i] = _TWO[part]
    out[:, 20] = first + _DIGIT
    out[:, 21:29] = pairs.view(np.uint8)
    out[:, 29] = ord("Z")
    return out.reshape(-1).view(f"S{ISO_BYTES}")


def _seconds_text(seconds: Array) -> Array:
    """Write each second as ``2026-01-31T12:00:00.``, one row of bytes for each."""
    if seconds.shape[0] and seconds[0] == seconds[-1] and bool((seconds == seconds[0]).all()):
        distinct, which = seconds[:1], None
    else:
        distinct, which = np.unique(seconds, return_inverse=True)
    text = np.char.add(np.datetime_as_string(distinct.astype("datetime64[s]")).astype("S19"), b".")
    rows = np.ascontiguousarray(text).view(np.uint8).reshape(-1, 20)
    return rows if which is None else rows.take(which, axis=0)
