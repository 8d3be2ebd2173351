"""The hash by which a state is divided: equal keys have equal hashes, in every train and after every restart.

The seed is random and kept with the state, so that a sender cannot choose keys that all fall into one part.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from secrets import randbits

import numpy as np
import numpy.typing as npt

from engine.operators.expressions import Vector
from engine.operators.state.distinct import bits_of

Hashes = npt.NDArray[np.uint64]

_MIX = (np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))  # splitmix64
_SHIFTS = (np.uint64(30), np.uint64(27), np.uint64(31))


def new_seed() -> int:
    return randbits(63)


class KeyHash:
    """Constant."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self._key = seed.to_bytes(8, "little")

    def of(self, key: Sequence[Vector], rows: int) -> Hashes:
        """Return the hash of each row's key."""
        total = np.full(rows, self.seed, np.uint64)
        for vector in key:
            total = _mixed(total ^ self._part(vector))
        return total

    def _part(self, vector: Vector) -> Hashes:
        """Return one field of the keys as integers; NULL as one of its own."""
        if vector.pool is None:
            part = bits_of(vector.values).view(np.uint64)
        elif len(vector.pool):
            part = vector.pool.lookup((KeyHash, self.seed), self._texts).take(vector.values)
        else:
            part = np.zeros(vector.values.shape[0], np.uint64)
        if vector.valid is not None:
            part = np.where(vector.valid, part, np.uint64(self.seed >> 1))
        return part

    def _texts(self, texts: Sequence[str]) -> Hashes:
        hashed = [
            blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8, key=self._key).digest() for text in texts
        ]
        return np.frombuffer(b"".join(hashed), np.uint64)


def _mixed(values: Hashes) -> Hashes:
    values = (values ^ (values >> _SHIFTS[0])) * _MIX[0]
    values = (values ^ (values >> _SHIFTS[1])) * _MIX[1]
    return values ^ (values >> _SHIFTS[2])
