"""The mark beside the log: up to which position its groups were synced, so that clients may have acknowledgements.

The log itself cannot tell that its end was cut off, or that its files are gone: what is left looks like a shorter log.
So every commit also notes its position here, in other files. A start compares: a log that ends below the mark has lost
acknowledged records, and is refused.

The mark is written after the log's own sync, and without a sync of its own: it costs 4 us a group. The kernel keeps it
when the process is killed. After a power failure the mark may be older than the log, never newer: then it protects
less, and refuses nothing that is whole. ``sync`` is called when the log is idle.

Two small files take turns, because a file only grows or is truncated (``files.py``): while one is begun anew, the other
has the mark. A record is 16 bytes: magic 4 | CRC-32 of the position 4 | position 8.

Owner: the log's.
"""

from __future__ import annotations

import struct

from storage.checksum import crc32
from storage.files import File, Files

MARK_FILE_BYTES = 64 * 1024
_MAGIC = b"AuM1"
_RECORD = struct.Struct("<4sIQ")
_POSITION = struct.Struct("<Q")


class LogMark:
    def __init__(self, files: Files, folder: str) -> None:
        self._files = files
        self.folder = folder
        self._names = (f"{folder}/0.mark", f"{folder}/1.mark")
        self._open: list[File | None] = [None, None]
        self._at = 0  # the file that grows
        self._is_new = True  # nothing was noted since the start
        self.position = 0  # the highest that was noted
        self.failures = 0  # notes that could not be written: the mark is older than the log then

    def find(self) -> int:
        """Return the highest position that was noted; 0 without a mark."""
        there = set(self._files.list(self.folder))
        for n, name in enumerate(self._names):
            if name.rpartition("/")[2] in there:
                file = self._open[n] = self._files.attach(name)
                if (found := _highest(file.read(0, file.size))) >= self.position:
                    self.position, self._at = found, n
        return self.position

    def note(self, position: int) -> None:
        """Note that everything below a position is on disk. A full disk is no error: the mark stays where it was."""
        self.position = position
        try:
            self._writable().append([_RECORD.pack(_MAGIC, crc32(_POSITION.pack(position)), position)])
        except OSError:
            self.failures += 1  # a file that ends in a part of a record is not written to again: see _writable

    def _writable(self) -> File:
        file = self._open[self._at]
        if file is not None and (self._is_new or file.size >= MARK_FILE_BYTES or file.size % _RECORD.size):
            # Also after a start: a power failure may have left garbage behind the last good record.
            self._is_new = False
            self._at = 1 - self._at
            file = self._open[self._at]
            if file is not None:
                file.truncate(0)
        if file is None:
            file = self._open[self._at] = self._files.create(self._names[self._at])
            self._files.sync_folder(self.folder)
        return file

    def sync(self) -> None:
        file = self._open[self._at]
        if file is not None:
            file.sync()

    def close(self) -> None:
        for file in self._open:
            if file is not None:
                file.close()
        self._open = [None, None]


def _highest(data: bytes) -> int:
    """Return the highest position of the good records at the beginning of a file."""
    best = 0
    for offset in range(0, len(data) - _RECORD.size + 1, _RECORD.size):
        magic, crc, position = _RECORD.unpack_from(data, offset)
        if magic != _MAGIC or crc != crc32(_POSITION.pack(position)):
            break
        best = max(best, position)
    return best
