"""A copy of a divided state: its blocks on disk are read from the files of one box and written to those of another."""

from __future__ import annotations

from typing import Any

from storage.block_ref import BlockRef
from storage.state_files import StateFiles


def copied(divided: dict[str, Any], source: StateFiles, target: StateFiles) -> dict[str, Any]:
    """Return the plain data of a divided state (``DividedState.snapshot``) with its blocks in other files.

    Raises OSError when the disk has no room, and SpillDamageError when a block cannot be read.
    """

    def copy(ref: Any) -> list[int]:
        payload, count = source.read_block(BlockRef(*ref))
        return list(target.write_block([payload], count))

    parts = [
        {
            **part,
            "ref": None if part["ref"] is None else copy(part["ref"]),
            "blocks": [[copy(ref), tuples] for ref, tuples in part["blocks"]],
        }
        for part in divided["parts"]
    ]
    return {**divided, "parts": parts}
