"""The place of a block in the segments on disk: a module of its own, because it needs no pyarrow."""

from __future__ import annotations

from typing import NamedTuple


class BlockRef(NamedTuple):
    """The place of a block on disk."""

    segment: int
    offset: int
    size: int  # including the header
