"""NaN and the infinities in formats of text, which have no number for them.

``nan`` of the sink chooses: ``null`` writes NULL, ``string`` writes the words NaN, Infinity and -Infinity. Both are
counted. To find out whether a train has such a value costs nothing where the text holds no NULL.
"""

from __future__ import annotations

import numpy as np

from catalog.schema import Schema, Type
from storage.train import Array, Train

_WORDS = (b"NaN", b"Infinity", b"-Infinity")


class NotFinite:
    """Counts and writes the values of one output that are not finite. Owner: the encoder."""

    def __init__(self, schema: Schema, nan: str) -> None:
        self.fields = tuple(at for at, f in enumerate(schema) if f.type in (Type.FLOAT, Type.DOUBLE))
        self.as_words = nan == "string"
        self.count = 0

    def find(self, train: Train) -> dict[int, Array]:
        """Return by column the places of the values that are not finite, and count them."""
        found: dict[int, Array] = {}
        for at in self.fields:
            odd = ~np.isfinite(train.columns[at])
            valid = train.null_mask(at)
            if valid is not None:
                odd &= valid
            places = np.flatnonzero(odd)
            if places.shape[0]:
                found[at] = places
                self.count += places.shape[0]
        return found


def word(value: float) -> bytes:
    return _WORDS[0] if value != value else _WORDS[1] if value > 0 else _WORDS[2]


def put_words(pieces: list[bytes], places: Array, values: Array, quote: bytes) -> None:
    """Put the word of each value at its place among the pieces of a column."""
    for at, value in zip(places.tolist(), values.take(places).tolist(), strict=True):
        pieces[at] = quote + word(value) + quote
