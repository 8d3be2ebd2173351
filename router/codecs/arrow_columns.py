"""Arrow arrays to a train's columns. Shared by the Arrow codec and by the text codecs' readers of large blocks.

Fixed-width arrays without NULLs become columns without a copy: the column holds on to the buffer that came out of the
socket. Strings become codes: the distinct ones are interned, and a table maps Arrow's codes to the pool's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from catalog.schema import Field, Type
from router.codecs.base import Intake
from router.codecs.values import MisfitError, finite, scale
from storage.train import Array, Mask, Train, constant_ns, tidy_valid

Arrow = Any  # a pyarrow Array; its stubs do not follow its kernels
Unquote = Callable[[list[bytes]], list[str]]
_ZERO = np.zeros(1, np.int32)


def validity(array: Arrow) -> Mask | None:
    """None when nothing is NULL."""
    return np.asarray(array.is_valid()) if array.null_count else None


def values(array: Arrow) -> Array:
    """A fixed-width array as numpy, zero (or false) where it is NULL."""
    if array.null_count:
        array = array.fill_null(False if str(array.type) == "bool" else 0)
    out: Array = array.to_numpy(zero_copy_only=False)
    return out


def distinct(array: Arrow) -> tuple[list[Any], Array]:
    """The distinct strings of an array, and for each row its place among them (0 where it is NULL)."""
    if not hasattr(array, "dictionary"):
        array = array.dictionary_encode()
    if array.dictionary.null_count:
        array = array.dictionary_decode().dictionary_encode()
    indices = array.indices
    codes = values(indices).astype(np.int32, copy=False)
    if len(array.dictionary) <= len(array):
        return array.dictionary.to_pylist(), codes
    used, places = np.unique(codes, return_inverse=True)  # a dictionary may be far larger than a batch
    return array.dictionary.take(used).to_pylist(), places.astype(np.int32, copy=False)


def text_train(
    intake: Intake, arrays: Sequence[Arrow | None], arrival_ns: int, unquote: Unquote | None = None
) -> Train:
    """Columns that a text reader has parsed: doubles for both float types, integers in the source's unit or times for
    timestamps. None for a column that is not there; ``unquote`` turns distinct strings as they stand in the text into
    what they mean. Raises MisfitError under the rules of values.py."""
    count = next(len(a) for a in arrays if a is not None)
    columns: list[Array] = []
    valid: list[Mask | None] = []
    texts: list[list[str]] = []
    for f, array in zip(intake.schema.fields, arrays):
        if array is None:
            columns.append(np.zeros(count, f.type.dtype))
            valid.append(np.zeros(count, np.bool_))
            texts.extend([[]] if f.type is Type.STRING else [])
            continue
        flags = validity(array)
        if flags is not None and not f.nullable:
            raise MisfitError
        valid.append(flags)
        if f.type is Type.STRING:
            strings, codes = distinct(array)
            texts.append(strings if unquote is None else unquote(strings))
            columns.append(codes)
        else:
            columns.append(_fixed(f, array, intake.ns_per_unit))
    return assemble(intake, columns, valid, texts, count, arrival_ns)


def assemble(
    intake: Intake,
    columns: list[Array],
    valid: list[Mask | None],
    texts: Sequence[list[str]],
    count: int,
    arrival_ns: int,
) -> Train:
    """``columns`` of strings hold places in their ``texts``, which become codes of the stream's pool here."""
    fields = intake.schema.fields
    pools = None
    if texts:
        pool, tables = intake.strings.intern(texts)
        table = iter(tables)
        for i, f in enumerate(fields):
            if f.type is Type.STRING:
                codes = next(table)
                columns[i] = (codes if codes.size else _ZERO).take(columns[i])
        pools = tuple([pool if f.type is Type.STRING else None for f in fields])
    return Train(intake.schema, tuple(columns), constant_ns(arrival_ns, count), valid=tidy_valid(valid), pools=pools)


def _fixed(f: Field, array: Arrow, ns_per_unit: int) -> Array:
    column = values(array)
    if f.type is Type.FLOAT or f.type is Type.DOUBLE:
        return finite(column, f.type)
    if f.type is Type.TIMESTAMP:
        return column.view(np.int64) if column.dtype.kind == "M" else scale(column, ns_per_unit)
    return column
