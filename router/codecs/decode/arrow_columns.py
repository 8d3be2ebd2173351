"""Arrow arrays to a train's columns. Shared by the Arrow codec and by the text codecs' readers of large blocks.

A fixed-width array without NULLs becomes a column without a copy: the column keeps the buffer that the socket filled.
Strings become codes: the distinct strings are interned, and a table maps Arrow's codes to those of the pool.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from catalog.schema import Field, Type
from router.codecs.base import Intake
from router.codecs.decode.draft import Draft
from router.codecs.decode.values import MisfitError, finite, scale
from storage.train import Array, Mask, Train

Arrow = Any  # a pyarrow Array; its stubs do not follow its kernels


def validity(array: Arrow) -> Mask | None:
    """Return where there are values; None when nothing is NULL."""
    return np.asarray(array.is_valid()) if array.null_count else None


def values(array: Arrow) -> Array:
    """Return a fixed-width array as numpy, with zero (or false) for NULL."""
    if array.null_count:
        array = array.fill_null(False if str(array.type) == "bool" else 0)
    out: Array = array.to_numpy(zero_copy_only=False)
    return out


def distinct(array: Arrow) -> tuple[list[str], Array]:
    """Return the distinct strings of an array, and for each row its place among them (0 for NULL)."""
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


def text_train(intake: Intake, arrays: Sequence[Arrow | None], arrival_ns: int) -> Train:
    """Make a train of columns that a text reader has parsed: doubles for both float types, integers in the source's
    unit or times for timestamps, None for a missing column. Raises MisfitError under the rules of values.py."""
    draft = Draft(intake, next(len(a) for a in arrays if a is not None))
    for f, array in zip(intake.schema.fields, arrays):
        if array is None:
            draft.add_missing(f)
            continue
        flags = validity(array)
        if flags is not None and not f.nullable:
            raise MisfitError
        if f.type is Type.STRING:
            draft.add_strings(*distinct(array), flags)
        else:
            draft.add(_fixed(f, array, intake.ns_per_unit), flags)
    return draft.train(arrival_ns)


def _fixed(f: Field, array: Arrow, ns_per_unit: int) -> Array:
    column = values(array)
    if f.type is Type.FLOAT or f.type is Type.DOUBLE:
        return finite(column, f.type)
    if f.type is Type.TIMESTAMP:
        return column.view(np.int64) if column.dtype.kind == "M" else scale(column, ns_per_unit)
    return column
