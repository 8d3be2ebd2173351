"""The state of one box on disk: plain data in blocks of append-only segments, each block with a CRC.

The same files as those of spilled queues (``storage/spill_files.py``), with another content: a block is the plain data
of a part of a state, or tuples that wait for such a part (``storage/tree.py``). A checkpoint refers to the blocks.

Segments are small, because a part that is never touched again keeps its whole segment on disk.

Owner: the worker that runs the box. ``sync`` and ``collect`` belong to the checkpoint thread.
"""

from __future__ import annotations

from typing import Any

from storage.block_ref import BlockRef
from storage.encode import EncodingError
from storage.files import Files
from storage.spill_files import SpillDamageError, SpillFiles
from storage.tree import TreeError, decode_tree, encode_tree

STATE_FOLDER = "state"
SEGMENT_BYTES = 8 * 1024**2


class StateFiles(SpillFiles):
    def __init__(self, files: Files, box: str, *, keep_dead: bool = False) -> None:
        super().__init__(files, f"{STATE_FOLDER}/{box}", SEGMENT_BYTES, keep_dead=keep_dead)

    def write_data(self, data: Any) -> BlockRef:
        """Write plain data as a block. OSError when there is no room; then nothing is left of it."""
        return self.write_block(encode_tree(data))

    def read_data(self, ref: BlockRef) -> Any:
        """Return the data of a block. SpillDamageError when it cannot be read back."""
        payload, _ = self.read_block(ref)
        try:
            return decode_tree(payload)
        except (TreeError, EncodingError) as error:
            raise SpillDamageError(self.name_of(ref), ref.offset, str(error)) from error


def remove_unknown(files: Files, boxes: set[str]) -> None:
    """Remove the files of boxes that the network no longer has."""
    for box in files.list(STATE_FOLDER):
        if box not in boxes:
            for name in files.list(f"{STATE_FOLDER}/{box}"):
                files.remove(f"{STATE_FOLDER}/{box}/{name}")
