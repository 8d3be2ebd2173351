"""Recognise the tuples of a replay that were emitted before the crash.

A replay computes the same tuples, though perhaps in another order where paths meet. So this module keeps the tuples
that the log holds behind the checkpoint as a multiset, and takes the tuples of the replay off it. A tuple that is found
was emitted before, and is not emitted again; a tuple that is not found is new. Tuples that are left over in the end
were emitted before and did not come again. Then the replay was not the same (a box that reads the time of day, late
tuples), and the new tuples are flagged as possible repeats.

A row is compared by a hash of 64 bits over its values, without its arrival. For ten million rows the chance that two
different ones are taken for equal is below one in 100,000. The hash runs by column, without a loop over tuples.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

from catalog.schema import Type
from storage.train import Train

Hashes = npt.NDArray[np.uint64]

_PRIME = np.uint64(0x9E3779B97F4A7C15)
_NULL = np.uint64(0xC2B2AE3D27D4EB4F)
_SHIFT = np.uint64(29)


def _of_strings(strings: Sequence[str]) -> Hashes:
    return np.array([hash(s) & 0xFFFFFFFFFFFFFFFF for s in strings], np.uint64)


def row_hashes(train: Train) -> Hashes:
    """Return one hash a row. Equal rows have equal hashes, within this process."""
    total: Hashes = np.full(train.count, _PRIME, np.uint64)
    for i, f in enumerate(train.schema.fields):
        column, pool = train.columns[i], train.pools[i]
        if pool is not None:
            table = pool.lookup("hash64", _of_strings)
            bits: Hashes = table.take(column) if len(pool) else np.zeros(train.count, np.uint64)
        elif f.type in (Type.DOUBLE, Type.FLOAT):
            bits = column.astype(np.float64).view(np.uint64)
        else:
            bits = column.astype(np.int64).view(np.uint64)
        valid = train.null_mask(i)
        if valid is not None:
            bits = np.where(valid, bits, _NULL)
        total = (total ^ bits) * _PRIME
        total ^= total >> _SHIFT
    return total


class Regenerated:
    """One output's. Written under the outbox's lock."""

    def __init__(self, emitted: Iterable[Train]) -> None:
        hashes = [row_hashes(t) for t in emitted if t.count]
        self._keys, counts = np.unique(np.concatenate(hashes) if hashes else np.empty(0, np.uint64), return_counts=True)
        self._left: npt.NDArray[np.int64] = counts.astype(np.int64)

    @property
    def left(self) -> int:
        """How many tuples were emitted before and have not come again."""
        return int(self._left.sum())

    def new(self, train: Train) -> Train:
        """Return the tuples that were not emitted before, and take the others off."""
        if not train.count or not len(self._keys):
            return train
        hashes = row_hashes(train)
        at = np.minimum(np.searchsorted(self._keys, hashes), len(self._keys) - 1)
        known = self._keys[at] == hashes
        if not known.any():
            return train
        rank = _ranks(at, known)
        again = known & (rank < self._left[at])
        np.subtract.at(self._left, at[again], 1)
        return train.where(~again)


def _ranks(at: npt.NDArray[np.intp], known: npt.NDArray[np.bool_]) -> npt.NDArray[np.int64]:
    """Return for each row how many equal rows come before it in this train."""
    group = np.where(known, at, -1)  # an unknown row equals no other
    order = np.argsort(group, kind="stable")
    grouped = group[order]
    starts = np.r_[True, grouped[1:] != grouped[:-1]]
    first = np.maximum.accumulate(np.where(starts, np.arange(len(at)), 0))
    rank = np.empty(len(at), np.int64)
    rank[order] = np.arange(len(at)) - first
    return rank
