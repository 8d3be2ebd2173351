"""A segment: consecutive tuples of one place as a Parquet file, with everything that a replay needs.

Columns: the fields of the place, and ``_arrival``. Times have microseconds, because Spark reads no others. A column
``_ns_<name>`` has the nanoseconds beyond; it is NULL, and takes next to no room, where there are none.

The footer says under ``aurorad`` which tuples these are and from when to when they reach, and under ``aurorad.runs``
how they came: for each train its tuples, its watermark, and how many trains had entered the network before (the
*entry*, which orders the trains of several places). A train without tuples is a run of length 0.

Cost (five columns): 20 ns of CPU a tuple to write, 7 to read. Fresh segments are not compressed: zstd takes 60 and 25.
"""

from __future__ import annotations

import base64
import zlib
from collections.abc import Iterator, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from catalog.schema import Field, Schema, Type
from storage.evolution import adapted, obstacles
from storage.files import Files, RealFiles, StorageError
from storage.strings import StringPool
from storage.train import NO_WATERMARK, Array, Mask, Train, concat_codes, constant_ns, tidy_valid

ARRIVAL = "_arrival"
ROW_GROUP_TUPLES = 131_072
PIECE_TUPLES = 32_768
"""A replay joins neighbours up to this: a live tuple waits behind at most one such train."""

ARROW_TYPES: dict[Type, Any] = {
    Type.BOOLEAN: pa.bool_(),
    Type.INT: pa.int32(),
    Type.BIGINT: pa.int64(),
    Type.FLOAT: pa.float32(),
    Type.DOUBLE: pa.float64(),
    Type.STRING: pa.string(),
    Type.TIMESTAMP: pa.timestamp("us", "UTC"),
}


class KeptTrain(NamedTuple):
    """A train in the history of a place. ``first`` is the number of its first tuple, or of the next one."""

    first: int
    train: Train
    entry: int  # trains that had entered the network before it


class SegmentInfo(NamedTuple):
    """The index entry of a segment. Times are from the least to the greatest, in ns."""

    first: int
    last: int
    times: tuple[int, int]  # of the event time; of arrival where there is none
    arrivals: tuple[int, int]
    entries: tuple[int, int]
    nbytes: int
    schema: Schema

    @property
    def tuples(self) -> int:
        return self.last - self.first + 1


class SegmentError(StorageError):
    """A segment cannot be read."""


# -- writing ----------------------------------------------------------------------------------------------------------


def encode_segment(kept: Sequence[KeptTrain], time_field: str | None, slack_ns: int = 0) -> tuple[Any, SegmentInfo]:
    """Return the bytes of a segment (an Arrow buffer) with these trains, and its index entry."""
    filled = [k.train for k in kept if k.train.count]
    schema = filled[0].schema
    arrivals = _arrivals(filled)
    columns = [_column(filled, i) for i in range(len(schema))]
    column = None if time_field is None else schema.index(time_field)
    times = arrivals if column is None else np.concatenate([t.columns[column] for t in filled])
    first = next(k.first for k in kept if k.train.count)
    info = SegmentInfo(
        first, first + len(arrivals) - 1, _span(times), _span(arrivals), (kept[0].entry, kept[-1].entry), 0, schema
    )
    runs = np.array([(k.train.count, k.train.watermark_ns, k.entry) for k in kept], np.int64)
    table = _table(schema, columns, arrivals)
    data = _write(table, schema, _metadata(info, runs, time_field, slack_ns), compression="none")
    return data, info._replace(nbytes=data.size)


def _write(table: Any, schema: Schema, metadata: dict[str, str], *, compression: Literal["none", "zstd"]) -> Any:
    sink = pa.BufferOutputStream()
    times = [f.name for f in schema if f.type is Type.TIMESTAMP] + [ARRIVAL]
    strings: Any = [f.name for f in schema if f.type is Type.STRING]
    with pq.ParquetWriter(
        sink,
        table.schema,
        compression=compression,
        compression_level=1 if compression == "zstd" else None,
        use_dictionary=strings or False,
        column_encoding=dict.fromkeys(times, "DELTA_BINARY_PACKED"),
        write_statistics=times,
        store_schema=False,  # polars would take the strings for categories
    ) as writer:
        writer.write_table(table, ROW_GROUP_TUPLES)
        writer.add_key_value_metadata(metadata)
    return sink.getvalue()


def _table(schema: Schema, columns: Sequence[tuple[Array, Mask | None, StringPool | None]], arrivals: Array) -> Any:
    arrays: list[Any] = []
    beyond: list[tuple[str, Any]] = []
    fields: list[Any] = []
    for f, (values, valid, pool) in zip(schema, columns, strict=True):
        mask = None if valid is None else ~valid
        if pool is not None:
            arrays.append(_strings(values, mask, pool))
        elif f.type is Type.TIMESTAMP:
            micros, rest = _micros(values)
            arrays.append(pa.array(micros, mask=mask).view(ARROW_TYPES[f.type]))
            beyond.append((f"_ns_{f.name}", rest))
        else:
            arrays.append(pa.array(values, mask=mask))
        fields.append(pa.field(f.name, arrays[-1].type, f.nullable))
    micros, rest = _micros(arrivals)
    arrays.append(pa.array(micros).view(ARROW_TYPES[Type.TIMESTAMP]))
    fields.append(pa.field(ARRIVAL, arrays[-1].type, False))
    for name, nanos in [*beyond, (f"_ns_{ARRIVAL}", rest)]:
        arrays.append(nanos)
        fields.append(pa.field(name, pa.int16(), True))
    return pa.Table.from_arrays(arrays, schema=pa.schema(fields))


def _micros(values: Array) -> tuple[Array, Any]:
    """Return whole microseconds, and the nanoseconds beyond: all NULL where there are none."""
    micros = values // 1_000
    rest = values - micros * 1_000
    return micros, pa.array(rest.astype(np.int16)) if rest.any() else pa.nulls(len(values), pa.int16())


def _strings(codes: Array, mask: Mask | None, pool: StringPool) -> Any:
    """Return a column of strings: codes into the strings that are used."""
    values: Sequence[str] = pool.values or [""]
    if len(values) > len(codes) // 4:
        used, codes = np.unique(codes, return_inverse=True)
        values = [values[c] for c in used.tolist()]
    indices: Any = pa.array(codes.astype(np.int32), mask=mask)
    return pa.DictionaryArray.from_arrays(indices, pa.array(values, pa.string()))


def _column(trains: Sequence[Train], at: int) -> tuple[Array, Mask | None, StringPool | None]:
    valid = None
    if any(t.null_mask(at) is not None for t in trains):
        masks = [t.null_mask(at) for t in trains]
        valid = np.concatenate([np.ones(t.count, np.bool_) if m is None else m for t, m in zip(trains, masks)])
    if trains[0].pools[at] is None:
        return np.concatenate([t.columns[at] for t in trains]), valid, None
    codes, pool = concat_codes([(t.columns[at], t.pools[at]) for t in trains])
    return codes, valid, pool


def _arrivals(trains: Sequence[Train]) -> Array:
    return np.concatenate([t.arrival_ns for t in trains])


def _span(values: Array) -> tuple[int, int]:
    return int(values.min()), int(values.max())


def _metadata(info: SegmentInfo, runs: Array, time_field: str | None, slack_ns: int) -> dict[str, str]:
    known = (
        info._asdict()
        | {"time": time_field, "slack_ns": slack_ns}
        | {"schema": {f.name: str(f).partition(": ")[2] for f in info.schema}}
    )
    packed = base64.b64encode(zlib.compress(np.ascontiguousarray(runs.T).tobytes(), 1)).decode()
    return {"aurorad": orjson.dumps(known).decode(), "aurorad.runs": packed}


# -- reading ----------------------------------------------------------------------------------------------------------


class HistorySegment:
    """A segment that is read. ``data`` is bytes, a buffer or a mapped file."""

    def __init__(self, data: Any, name: str) -> None:
        self.name = name
        try:
            source: Any = data if isinstance(data, pa.MemoryMappedFile) else pa.BufferReader(data)
            self._file: Any = pq.ParquetFile(source)
            metadata: Any = self._file.metadata.metadata
            self.info = _info(metadata[b"aurorad"], source.size())
            self._packed = metadata[b"aurorad.runs"]
            known = orjson.loads(metadata[b"aurorad"])
            self.time_field: str | None = known["time"]
            self.slack_ns = int(known["slack_ns"])
            strings = [f.name for f in self.info.schema if f.type is Type.STRING]
            if strings:
                source.seek(0)
                self._file = pq.ParquetFile(source, read_dictionary=strings)
        except (pa.ArrowException, OSError, ValueError, KeyError, TypeError) as error:
            raise SegmentError(name, None, f"not a segment of history: {error}") from error

    def runs(self) -> Array:
        """Return the trains: tuples, watermark and entry of each, in three rows."""
        raw = zlib.decompress(base64.b64decode(self._packed))
        return np.frombuffer(raw, np.int64).reshape(3, -1)

    def trains(self, after: int, schema: Schema, at_most: int = PIECE_TUPLES) -> Iterator[KeptTrain]:
        """Yield the tuples behind a number, as trains of about ``at_most`` tuples with the fields of ``schema``."""
        lengths, watermarks, entries = self.runs()
        ends = np.cumsum(lengths)
        begin, group_at = max(after - self.info.first + 1, 0), 0
        pools: dict[str, StringPool] = {}
        if begin == 0:  # trains without tuples before the first one
            yield from _leading(self.info, watermarks, entries, lengths, schema)
        for group in range(self._file.num_row_groups):
            group_end = group_at + self._file.metadata.row_group(group).num_rows
            if begin < group_end:
                whole = adapted(self._train(group, pools), schema)
                for start, stop, run in _pieces(ends, max(begin, group_at), group_end, at_most):
                    watermark = int(watermarks[run]) if run >= 0 else NO_WATERMARK
                    train = whole.slice(start - group_at, stop - group_at).with_watermark(watermark)
                    yield KeptTrain(self.info.first + start, train, int(entries[max(run, 0)]))
            group_at = group_end

    def why_unreadable(self, schema: Schema) -> str:
        """Say why the tuples cannot be read with these fields; empty when they can."""
        return "; ".join(obstacles(self.info.schema, schema))

    def times(self, time_field: str | None) -> Array:
        """Return the times of all tuples, in ns."""
        return self._times(
            self._read(None, [time_field or ARRIVAL, f"_ns_{time_field or ARRIVAL}"]), time_field or ARRIVAL
        )

    def table(self) -> Any:
        """Return everything as an Arrow table."""
        return self._read(None, None)

    def _read(self, group: int | None, columns: list[str] | None) -> Any:
        try:
            if group is None:
                return self._file.read(columns=columns, use_threads=False)
            return self._file.read_row_group(group, columns=columns, use_threads=False)
        except (pa.ArrowException, OSError, ValueError) as error:
            raise SegmentError(self.name, None, f"cannot be read: {error}") from error

    def _train(self, group: int, pools: dict[str, StringPool]) -> Train:
        table = self._read(group, None)
        schema = self.info.schema
        columns: list[Array] = []
        valid: list[Mask | None] = []
        made: list[StringPool | None] = []
        for f in schema:
            array = table.column(f.name)
            array = array.chunk(0) if array.num_chunks == 1 else array.combine_chunks()
            valid.append(np.asarray(array.is_valid()) if array.null_count else None)
            made.append(None)
            if f.type is Type.STRING:
                codes, made[-1] = _codes(array, pools, f)
                columns.append(codes)
            elif f.type is Type.TIMESTAMP:
                columns.append(self._times(table, f.name))
            else:
                filled = array.fill_null(False if f.type is Type.BOOLEAN else 0) if array.null_count else array
                columns.append(filled.to_numpy(zero_copy_only=False))
        arrivals = self._times(table, ARRIVAL)
        if len(arrivals) and arrivals[0] == arrivals[-1] and not (arrivals != arrivals[0]).any():
            arrivals = constant_ns(int(arrivals[0]), len(arrivals))
        return Train(schema, tuple(columns), arrivals, valid=tidy_valid(valid), pools=tuple(made))

    def _times(self, table: Any, name: str) -> Array:
        micros = table.column(name).combine_chunks()
        micros = micros.fill_null(0) if micros.null_count else micros
        times: Array = micros.view(pa.int64()).to_numpy() * 1_000
        rest = table.column(f"_ns_{name}")
        if rest.null_count < len(rest):
            times += rest.combine_chunks().fill_null(0).to_numpy()
        return times


def _codes(array: Any, pools: dict[str, StringPool], field: Field) -> tuple[Array, StringPool]:
    """Return codes into a pool that the row groups of a segment share."""
    if not hasattr(array, "dictionary"):
        array = array.dictionary_encode()
    pool = pools.setdefault(field.name, StringPool())
    if pool.is_full:
        pool = pools[field.name] = StringPool()
    table = pool.encode(array.dictionary.to_pylist())
    indices = array.indices.fill_null(0) if array.indices.null_count else array.indices
    codes = indices.to_numpy(zero_copy_only=False)
    if len(table) and (table == np.arange(len(table))).all():  # the usual case: every row group has the same strings
        return codes.astype(np.int32, copy=False), pool
    return (table[codes] if len(table) else np.zeros(len(codes), np.int32)), pool


def _leading(
    info: SegmentInfo, watermarks: Array, entries: Array, lengths: Array, schema: Schema
) -> Iterator[KeptTrain]:
    for run in range(len(lengths)):
        if lengths[run]:
            return
        yield KeptTrain(info.first, Train.empty(schema, int(watermarks[run])), int(entries[run]))


def _pieces(ends: Array, begin: int, end: int, at_most: int) -> Iterator[tuple[int, int, int]]:
    """Cut rows into pieces that end where trains end: (first row, row behind the last, the last whole train in it)."""
    at = begin
    while at < end:
        # The last train that ends within the next rows; if there is none, the train is cut.
        run = int(np.searchsorted(ends, min(at + at_most, end), side="right")) - 1
        stop = int(ends[run]) if run >= 0 and ends[run] > at else min(at + at_most, end)
        yield at, stop, run
        at = stop


def _info(text: bytes, nbytes: int) -> SegmentInfo:
    known = orjson.loads(text)
    schema = Schema(tuple(Field.parse(name, kind) for name, kind in known.pop("schema").items()))
    del known["time"], known["slack_ns"]
    spans = {name: tuple(known[name]) for name in ("times", "arrivals", "entries")}
    return SegmentInfo(**{**known, **spans, "schema": schema, "nbytes": nbytes})


def load_segment(files: Files, name: str) -> HistorySegment:
    """Open a segment. A real file is mapped: copying it would take as long as decoding it. FileNotFoundError."""
    if isinstance(files, RealFiles):
        return HistorySegment(pa.memory_map(files.where(name)), files.where(name))
    file = files.attach(name)
    return HistorySegment(file.read(0, file.size), name)


# -- merging ----------------------------------------------------------------------------------------------------------


def merge_segments(segments: Sequence[HistorySegment]) -> tuple[Any, SegmentInfo]:
    """Return one compressed segment with the tuples of neighbours of the same schema."""
    infos = [s.info for s in segments]
    info = SegmentInfo(
        infos[0].first,
        infos[-1].last,
        _hull([i.times for i in infos]),
        _hull([i.arrivals for i in infos]),
        _hull([i.entries for i in infos]),
        0,
        infos[0].schema,
    )
    tables = [s.table() for s in segments]
    plain = [_plain(t, info.schema) for t in tables]
    runs = np.concatenate([s.runs() for s in segments], axis=1).T
    data = _write(
        pa.concat_tables(plain).combine_chunks(),
        info.schema,
        _metadata(info, runs, segments[0].time_field, segments[0].slack_ns),
        compression="zstd",
    )
    return data, info._replace(nbytes=data.size)


def _plain(table: Any, schema: Schema) -> Any:
    """Return a table with plain strings: dictionaries of two segments differ."""
    for at, name in enumerate(table.column_names):
        if name in schema and schema[name].type is Type.STRING:
            table = table.set_column(
                at, table.schema.field(at).with_type(pa.string()), table.column(at).cast(pa.string())
            )
    return table


def _hull(spans: Sequence[tuple[int, ...]]) -> tuple[int, int]:
    return min(s[0] for s in spans), max(s[1] for s in spans)
