"""A temporary folder to spill to, for a network without a data_dir."""

from __future__ import annotations

import tempfile

from storage.files import RealFiles
from storage.spill_files import SpillFiles


class TemporarySpill:
    """Spill files of a network without a data_dir: in a folder that goes away with the process."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="aurorad-spill-")
        self.files = SpillFiles(RealFiles(self._folder.name))

    def close(self) -> None:
        self.files.close()
        self._folder.cleanup()
