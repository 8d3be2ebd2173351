"""Trains as bytes: the form of a train in the log, the spill files and the checkpoints.

A train is a small header, one Arrow record batch (columns, validity, and arrivals where they differ), and one more
batch with the strings of each string pool that it uses. All batches are Arrow IPC messages. The catalog has their
schema, so a record contains none. Two encoded trains share nothing: each can be read alone, and a segment can be
removed without reading the others.

Cost, 10,000 tuples of four columns: 6 us to encode, 20 us to decode, without a copy either way. Arrow writes a head in
front of the columns, which contains only their lengths. Without NULLs it is the same for all trains of one length. So
it is made once (``_Layout``), and the other parts of a train are the columns themselves. A pool is written whole while
it is not much larger than the train, and its bytes are cached with the pool; of a larger pool only the used strings are
written. A reader that meets the same pool again returns the same object, so trains that were written together join
cheaply.

Refused: dictionary batches of Arrow, because a single message could not be read alone; pickle, which executes code from
the data that it reads.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa

from catalog.schema import Schema, Type
from storage.files import Bytes
from storage.strings import StringPool
from storage.train import Array, Mask, Pools, Train, constant_ns, tidy_valid

_HEADER = struct.Struct("<IHHqq")  # tuples, pools, flags, watermark, the arrival of all or 0
_POOL = struct.Struct("<II")  # entries, bytes of the message that follows
_ARRIVALS_DIFFER = 1
_ALIGNED = 8  # Arrow pads each buffer to a multiple of this
_WHOLE_POOL = 256
"""A pool up to this size is always written whole: finding the used strings would cost more."""

_ARROW = {
    Type.BOOLEAN: pa.bool_(),
    Type.INT: pa.int32(),
    Type.BIGINT: pa.int64(),
    Type.FLOAT: pa.float32(),
    Type.DOUBLE: pa.float64(),
    Type.STRING: pa.int32(),
    Type.TIMESTAMP: pa.int64(),
}
_STRINGS = pa.schema([pa.field("strings", pa.large_string())])


class EncodingError(ValueError):
    """Bytes that are no train of this schema. Since a CRC has passed, the schema must be a different one."""


@lru_cache(maxsize=4_096)
def _arrow_schema(schema: Schema, arrivals: bool) -> pa.Schema:
    fields = [pa.field(str(i), _ARROW[f.type], nullable=f.nullable) for i, f in enumerate(schema.fields)]
    return pa.schema([*fields, pa.field("arrival", pa.int64(), nullable=False)] if arrivals else fields)


def encode_train(train: Train) -> list[Bytes]:
    """Return the parts to write one after another; their total size is a multiple of eight bytes."""
    differ = train.count > 0 and train.arrival_ns.strides[0] != 0
    columns, pools, owners = _codes_and_pools(train)
    if differ:
        columns.append(train.arrival_ns)
    arrival_ns = 0 if differ or not train.count else int(train.arrival_ns[0])
    header = _HEADER.pack(train.count, len(pools), _ARRIVALS_DIFFER if differ else 0, train.watermark_ns, arrival_ns)
    parts: list[Bytes] = [header, owners]
    for entries, message in pools:
        parts += [_POOL.pack(entries, len(message)), message]
    if train.valid is None and train.count:
        parts += _layout(train.schema, differ, train.count).parts(columns)
    else:
        masks = [train.null_mask(i) for i in range(len(train.schema))]
        parts.append(_message(columns, masks + [None] * differ, _arrow_schema(train.schema, differ)))
    return parts


class _Layout:
    """Arrow's form of one number of tuples without NULLs: a head, and each column padded to ``_ALIGNED`` bytes."""

    __slots__ = ("_dtypes", "_head", "_schema")

    def __init__(self, schema: Schema, arrivals: bool) -> None:
        self._schema = _arrow_schema(schema, arrivals)
        self._dtypes = [f.type.dtype for f in schema.fields] + [np.dtype(np.int64)] * arrivals
        self._head: bytes | None = None

    def parts(self, columns: Sequence[Array]) -> list[Bytes]:
        if self._head is None:
            return [self._first(columns)]
        parts: list[Bytes] = [self._head]
        for column, dtype in zip(columns, self._dtypes, strict=True):
            assert column.dtype == dtype
            data = _bits_or_values(column).data.cast("B")
            parts.append(data)
            if padding := -len(data) % _ALIGNED:
                parts.append(bytes(padding))
        return parts

    def _first(self, columns: Sequence[Array]) -> Bytes:
        """Let Arrow write the whole message, which costs no more than the head alone, and keep the head."""
        message = _message(columns, [None] * len(columns), self._schema)
        sizes = [_bits_or_values(column).nbytes for column in columns]
        self._head = bytes(message[: len(message) - sum([size + -size % _ALIGNED for size in sizes])])
        return message


@lru_cache(maxsize=1_024)
def _layout(schema: Schema, arrivals: bool, count: int) -> _Layout:
    return _Layout(schema, arrivals)


def _message(columns: Sequence[Array], masks: Sequence[Mask | None], schema: pa.Schema) -> memoryview:
    arrays: list[Any] = [_to_arrow(c, m) for c, m in zip(columns, masks, strict=True)]
    return memoryview(pa.RecordBatch.from_arrays(arrays, schema=schema).serialize())


def _to_arrow(values: Array, valid: Mask | None) -> Any:
    """Convert without a copy, except booleans and validity, which Arrow keeps as bits."""
    bits = None if valid is None else _buffer(np.packbits(valid, bitorder="little"))
    data = _buffer(_bits_or_values(values))
    return pa.Array.from_buffers(pa.from_numpy_dtype(values.dtype), len(values), [bits, data])


def _bits_or_values(values: Array) -> Array:
    return np.packbits(values, bitorder="little") if values.dtype == np.bool_ else np.ascontiguousarray(values)


def _buffer(values: Any) -> pa.Buffer:
    return pa.py_buffer(values)


def _codes_and_pools(train: Train) -> tuple[list[Array], list[tuple[int, Bytes]], bytes]:
    """Return the columns with codes into the written pools, each pool once as (entries, message), and their owners."""
    columns: list[Array] = list(train.columns)
    members: dict[int, list[int]] = {}
    for i in train.schema.string_columns:
        members.setdefault(id(train.pools[i]), []).append(i)
    order = {pool: n for n, pool in enumerate(members)}
    owners = np.array([order[id(train.pools[i])] for i in train.schema.string_columns], np.uint16).tobytes()
    pools: list[tuple[int, Bytes]] = []
    for at in members.values():
        pool = train.pools[at[0]]
        assert pool is not None
        entries = len(pool)
        if entries <= max(_WHOLE_POOL, train.count):
            pools.append((entries, _whole_pool(pool, entries)))
            continue
        used = np.zeros(entries, np.bool_)
        for i in at:
            used[columns[i]] = True
        kept = used.nonzero()[0]
        codes = np.cumsum(used, dtype=np.int32) - np.int32(1)
        for i in at:
            columns[i] = codes.take(columns[i])
        values = pool.values
        pools.append((len(kept), _pool_message([values[c] for c in kept.tolist()])))
    return columns, pools, owners + bytes(-len(owners) % 8)


def _whole_pool(pool: StringPool, entries: int) -> Bytes:
    """Encode a pool and cache the bytes with it: most trains of a stream refer to a pool that no longer grows."""
    cache: dict[str, Any] = pool.attach("encoded", dict)
    found = cache.get("last")
    if found is None or found[0] != entries:
        found = (entries, _pool_message(pool.values[:entries]))
        cache["last"] = found
    message: Bytes = found[1]
    return message


def _pool_message(values: Sequence[str]) -> Bytes:
    batch = pa.RecordBatch.from_arrays([pa.array(values, pa.large_string())], schema=_STRINGS)
    return bytes(memoryview(batch.serialize()))


class TrainReader:
    """Decodes trains. Remembers the last pools, to return one object for equal pools. Owner: one thread."""

    def __init__(self, remembered: int = 16) -> None:
        self._pools: dict[bytes, StringPool] = {}
        self._remembered = remembered

    def decode(self, data: Bytes, schema: Schema) -> Train:
        """Decode a train that shares the memory of ``data``."""
        view = memoryview(data)
        try:
            return self._decode(view, schema)
        except (struct.error, pa.ArrowInvalid, ValueError, IndexError, OSError) as error:
            raise EncodingError(f"not a train of {schema}: {error}") from error

    def _decode(self, view: memoryview, schema: Schema) -> Train:
        count, pools, flags, watermark_ns, arrival_ns = _HEADER.unpack_from(view)
        strings = schema.string_columns
        owners = np.frombuffer(view, np.uint16, len(strings), _HEADER.size).tolist()
        at = _HEADER.size + (2 * len(strings) + 7) // 8 * 8
        read: list[StringPool] = []
        for _ in range(pools):
            entries, size = _POOL.unpack_from(view, at)
            at += _POOL.size
            read.append(self._pool(bytes(view[at : at + size]), entries))
            at += size
        differ = bool(flags & _ARRIVALS_DIFFER)
        batch = pa.ipc.read_record_batch(pa.py_buffer(view[at:]), _arrow_schema(schema, differ))
        if batch.num_rows != count:
            raise EncodingError(f"{batch.num_rows} tuples instead of {count}")
        columns = tuple([_values(batch.column(i), f.type) for i, f in enumerate(schema.fields)])
        valid = tidy_valid([_valid(batch.column(i)) for i in range(len(schema))])
        arrivals = _values(batch.column(len(schema)), Type.BIGINT) if differ else constant_ns(arrival_ns, count)
        pools_of = _spread(schema, [read[n] for n in owners], columns)
        return Train(schema, columns, arrivals, valid=valid, pools=pools_of, watermark_ns=watermark_ns)

    def _pool(self, message: bytes, entries: int) -> StringPool:
        pool = self._pools.pop(message, None)
        if pool is None:
            strings: Any = pa.ipc.read_record_batch(pa.py_buffer(message), _STRINGS).column(0)
            pool = StringPool(strings.to_pylist())
            if len(pool) != entries:
                raise EncodingError(f"a pool of {len(pool)} strings instead of {entries}")
        self._pools[message] = pool  # now the newest; the oldest is evicted first
        while len(self._pools) > self._remembered:
            del self._pools[next(iter(self._pools))]
        return pool


def _values(column: Any, type: Type) -> Array:
    data: Any = column.buffers()[1]
    count = len(column)
    if type is Type.BOOLEAN:
        bits: Array = np.unpackbits(np.frombuffer(data, np.uint8), count=count, bitorder="little").view(np.bool_)
        return bits
    return np.frombuffer(data, type.dtype, count) if count else np.empty(0, type.dtype)


def _valid(column: Any) -> Mask | None:
    bits: Any = column.buffers()[0]
    if bits is None or not len(column):
        return None
    flags: Mask = np.unpackbits(np.frombuffer(bits, np.uint8), count=len(column), bitorder="little").view(np.bool_)
    return flags


def _spread(schema: Schema, owned: list[StringPool], columns: tuple[Array, ...]) -> Pools:
    """Return the pool of each column. Check the codes here: a bad one would crash its reader much later."""
    pools: list[StringPool | None] = [None] * len(schema)
    for i, pool in zip(schema.string_columns, owned, strict=True):
        if len(columns[i]) and (int(columns[i].min()) < 0 or int(columns[i].max()) >= max(1, len(pool))):
            raise EncodingError("a string code outside its pool")
        pools[i] = pool
    return tuple(pools)
