"""Where state goes that is larger than its memory: below the data_dir, or into a temporary folder.

Each box has files of its own (``storage/state_files.py``), opened when its state is first divided. pyarrow comes with
them, so they are imported only then. Their folder has the name of the box. A box that gets another name while the
daemon runs keeps its folder (``BoxFiles.home``), and a later box of the old name gets another one.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import count
from threading import Lock
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
        self._by_home: dict[str, StateFiles] = {}
        self._naming = Lock()
        self._retired: set[str] = set()
        self._given: set[str] = set()  # names of folders that boxes have, also of those that are not open yet

    def of(self, home: str, live: Sequence[BlockRef] = ()) -> StateFiles:
        """Return the files of a folder. The first call removes everything in it but the blocks ``live``. Any worker."""
        found = self._by_home.get(home)
        if found is None:
            from storage.state_files import StateFiles

            assert self._files is not None
            found = self._by_home[home] = StateFiles(self._files, home, keep_dead=self._keep_dead)
            found.open(live)
        return found

    def new_home(self, box: str) -> str:
        """Return the name of a folder that no other box has. Any worker."""
        with self._naming:
            names = (box if n == 1 else f"{box}~{n}" for n in count(1))
            home = next(name for name in names if name not in self._by_home and name not in self._given)
            self._given.add(home)
            return home

    def claim(self, home: str) -> None:
        """Note that a box has this folder: a checkpoint says so."""
        self._given.add(home)

    def retire(self, home: str) -> None:
        """Note that the box of a folder is gone. Its files go when no checkpoint needs them."""
        self._retired.add(home)
        if not self._keep_dead:
            self._remove(home)

    def _remove(self, home: str) -> None:
        self._retired.discard(home)
        if (files := self._by_home.pop(home, None)) is not None:
            files.remove_all()
        self._given.discard(home)

    @property
    def disk_bytes(self) -> int:
        return sum([files.disk_bytes for files in list(self._by_home.values())])

    @property
    def written_bytes(self) -> int:
        """The bytes that were written since the start."""
        return sum([files.written_bytes for files in list(self._by_home.values())])

    # -- for checkpoints ----------------------------------------------------------------------------------------------

    def remove_unused(self) -> None:
        """Remove the files of boxes that have no state on disk. At the start, after the checkpoint is restored."""
        from storage.state_files import remove_unknown

        assert self._files is not None
        remove_unknown(self._files, set(self._by_home))

    def sync(self) -> None:
        """Sync every block that a box needs. OSError when that fails."""
        for files in list(self._by_home.values()):
            files.sync()

    def collect(self, kept: Mapping[str, Collection[int]]) -> None:
        """Remove the segments that no box and no checkpoint needs. ``kept``: those that checkpoints need, by folder."""
        for home, files in list(self._by_home.items()):
            if home in self._retired and not kept.get(home):
                self._remove(home)
            else:
                files.collect(kept.get(home, ()))

    def close(self) -> None:
        for files in list(self._by_home.values()):
            files.close()
        if self._temporary is not None:
            self._temporary.close()


class BoxFiles:
    """The files of one box (``engine/operators/bounded/box.OpenFiles``). Owner: the worker that runs the box."""

    def __init__(self, state_home: StateHome, box: str) -> None:
        self._state_home = state_home
        self._box = box
        self.home = ""  # the name of its folder, once it has one

    def __call__(self, live: Sequence[BlockRef] = ()) -> StateFiles:
        self.home = self.home or self._state_home.new_home(self._box)
        return self._state_home.of(self.home, live)

    def restore(self, home: str) -> None:
        """Have this folder again. Before the box is restored."""
        self.home = home
        if home:
            self._state_home.claim(home)

    def retire(self) -> None:
        """Give the folder up: the box is gone."""
        if self.home:
            self._state_home.retire(self.home)
