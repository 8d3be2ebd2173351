"""Where state goes that is larger than its memory: below the data_dir, or into a temporary folder.

Each box has files of its own (``storage/state_files.py``), opened when its state is first divided. pyarrow comes with
them, so they are imported only then.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING

from storage.temporary_files import TemporaryFiles

if TYPE_CHECKING:
    from storage.block_ref import BlockRef
    from storage.files import Files
    from storage.state_files import StateFiles


class StateHome:
    """``files`` are those of the data_dir; without them the state ends with the process."""

    def __init__(self, files: Files | None = None) -> None:
        self._temporary = TemporaryFiles("aurorad-state-") if files is None else None
        self._files: Files | TemporaryFiles | None = files or self._temporary
        self._keep_dead = files is not None  # until no checkpoint needs them
        self._by_box: dict[str, StateFiles] = {}

    def of(self, box: str, live: Sequence[BlockRef] = ()) -> StateFiles:
        """Return the files of a box. The first call removes everything in them but the blocks ``live``. Any worker."""
        found = self._by_box.get(box)
        if found is None:
            from storage.state_files import StateFiles

            assert self._files is not None
            found = self._by_box[box] = StateFiles(self._files, box, keep_dead=self._keep_dead)
            found.open(live)
        return found

    @property
    def disk_bytes(self) -> int:
        return sum([files.disk_bytes for files in list(self._by_box.values())])

    @property
    def written_bytes(self) -> int:
        """The bytes that were written since the start."""
        return sum([files.written_bytes for files in list(self._by_box.values())])

    # -- for checkpoints ----------------------------------------------------------------------------------------------

    def remove_unused(self) -> None:
        """Remove the files of boxes that have no state on disk. At the start, after the checkpoint is restored."""
        from storage.state_files import remove_unknown

        assert self._files is not None
        remove_unknown(self._files, set(self._by_box))

    def sync(self) -> None:
        """Sync every block that a box needs. OSError when that fails."""
        for files in list(self._by_box.values()):
            files.sync()

    def collect(self, kept: Mapping[str, Collection[int]]) -> None:
        """Remove the segments that no box and no checkpoint needs. ``kept``: those that checkpoints need, by box."""
        for box, files in list(self._by_box.items()):
            files.collect(kept.get(box, ()))

    def close(self) -> None:
        for files in list(self._by_box.values()):
            files.close()
        if self._temporary is not None:
            self._temporary.close()
