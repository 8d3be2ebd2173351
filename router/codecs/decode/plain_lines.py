"""csv by compiled loops: 300 ns a row of NEXMark's bids, which have seven fields. Arrow's reader takes 1,100.

It decodes a block only where it must agree with the line by line decoder: no quote, no carriage return, as many fields
on each line as in the header, and only plain values. It returns None for any other block, and until its loops are
compiled.
"""

from __future__ import annotations

import numpy as np

from catalog.schema import Type
from router.codecs.base import Intake
from router.codecs.decode.draft import Draft
from router.codecs.decode.plain_fields import COMPILED_BYTES, PlainBlock, are_compiled
from router.codecs.decode.values import MisfitError
from router.compiled.fields import SPLIT
from storage.train import Train


class PlainLines:
    """Decodes the blocks of one connection, whose header is known."""

    def __init__(self, intake: Intake, names: list[str]) -> None:
        self._intake = intake
        self._names = names
        self._from_bytes = COMPILED_BYTES if intake.columnar_bytes is None else intake.columnar_bytes

    def decode(self, data: bytes, arrival_ns: int) -> Train | None:
        """Make a train of all lines, or return None."""
        # With one column an empty line would be a field.
        if len(data) < self._from_bytes or len(self._names) < 2 or b'"' in data or b"\r" in data:
            return None
        if data[-1:] != b"\n" or not are_compiled(SPLIT):
            return None
        block = PlainBlock(self._intake, data)
        edges = np.empty((len(self._names) + 1, data.count(b"\n")), np.int64)
        done = np.zeros(1, np.int64)
        SPLIT.run(block.text, block.words, edges, done)
        if not done[0]:
            return None
        draft = Draft(self._intake, edges.shape[1])
        try:
            for f in self._intake.schema.fields:
                if f.name not in self._names:
                    draft.add_missing(f)
                    continue
                at = self._names.index(f.name)
                left, right = edges[at], edges[at + 1]
                if f.type is Type.STRING:
                    block.add_texts(draft, left, right, right - left > 1 if f.nullable else None)
                else:
                    block.add(draft, f, left, right)
            return draft.train(arrival_ns)
        except (MisfitError, UnicodeDecodeError):
            return None
