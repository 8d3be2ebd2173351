"""A disk in memory that forgets what was not synced: the interface of ``storage/files.py`` with power failures.

Synced bytes survive a crash. Of the other bytes a crash keeps any part: nothing, a prefix, or scattered sectors, and
the file may end anywhere. Names behave alike: when a file was created, renamed or removed since the last sync of its
folder, the change may or may not survive, but changes survive in the order in which they were made.

Every file operation is counted. So a test can cut the power before any of them (``crash_before``), fail a sync
(``fail_syncs``) or fill the disk (``capacity_bytes``).
"""

from __future__ import annotations

import errno
from collections.abc import Sequence
from random import Random

from storage.files import Bytes, DiskSpace, File

SECTOR = 512


class PowerCut(BaseException):
    """The power fails now. Not an Exception, so that no error handler of the product catches it."""


class Inode:
    """The bytes of a file: those on the disk, and those that the kernel shows."""

    def __init__(self, durable: bytes = b"") -> None:
        self.durable = durable
        self.live = bytearray(durable)
        self.steps: list[
            tuple[int, bytes] | int
        ] = []  # since the last sync: (offset, bytes), or a truncation to a size

    def synced(self) -> None:
        self.durable = bytes(self.live)
        self.steps.clear()

    def after_crash(self, rng: Random) -> Inode:
        kind = rng.randrange(4)
        if not self.steps or kind == 0:
            return Inode(self.durable)
        data = bytearray(self.durable)
        for step in self.steps[: rng.randint(1, len(self.steps)) if kind < 3 else len(self.steps)]:
            if isinstance(step, int):
                del data[step:]
                continue
            offset, written = step
            if len(data) < offset:
                data.extend(bytes(offset - len(data)))
            if kind == 1:
                written = written[: rng.randint(0, len(written))]
            data[offset : offset + len(written)] = written
            if kind == 1 and len(written) < len(step[1]):
                break
        if kind == 3:
            self._scatter(data, rng)
        return Inode(bytes(data))

    def _scatter(self, data: bytearray, rng: Random) -> None:
        """Zero random sectors behind the durable bytes: the disk writes sectors in any order."""
        for start in range(len(self.durable) // SECTOR * SECTOR, len(data), SECTOR):
            if rng.random() < 0.5:
                first = max(start, len(self.durable))
                data[first : start + SECTOR] = bytes(len(data[first : start + SECTOR]))


class CrashFile:
    def __init__(self, disk: CrashFiles, name: str, inode: Inode) -> None:
        self._disk = disk
        self._inode = inode
        self.name = name

    @property
    def size(self) -> int:
        return len(self._inode.live)

    def append(self, parts: Sequence[Bytes]) -> None:
        data = b"".join(bytes(p) for p in parts)
        self._disk.count_operation(f"append {len(data)} to {self.name}")
        room = self._disk.space().free_bytes
        taken = data[: max(0, room)]
        self._inode.steps.append((self.size, taken))
        self._inode.live += taken
        if len(taken) < len(data):
            raise OSError(errno.ENOSPC, "No space left on device", self.name)

    def sync(self) -> None:
        number = self._disk.count_operation(f"sync {self.name}")
        if number in self._disk.fail_syncs:
            # Like the kernel: mark the pages clean, and never write them.
            self._inode.steps.clear()
            self._disk.lost.append(self.name)
            raise OSError(errno.EIO, "Input/output error", self.name)
        if self.name in self._disk.lost:
            return  # reports success, although earlier bytes are lost
        self._inode.synced()

    def begin_sync(self, offset: int) -> None:
        """Do nothing, and count no operation: a power cut may keep unsynced bytes in any case."""

    def truncate(self, size: int) -> None:
        self._disk.count_operation(f"truncate {self.name}")
        del self._inode.live[size:]
        self._inode.steps.append(size)

    def read(self, offset: int, size: int) -> bytes:
        return bytes(self._inode.live[offset : offset + size])

    def close(self) -> None:
        pass


class CrashFiles:
    def __init__(self, names: dict[str, Inode] | None = None, capacity_bytes: int = 2**62) -> None:
        self.names = dict(names or {})  # as the kernel shows them
        self._durable = dict(self.names)
        self._moves: list[
            tuple[str, str, Inode | None]
        ] = []  # (folder, name, its new inode) since the folder's last sync
        self.capacity_bytes = capacity_bytes
        self.operations: list[str] = []
        self.crash_before: int | None = None
        self.is_off = False
        self.fail_syncs: set[int] = set()
        self.lost: list[str] = []  # files with a failed sync

    def count_operation(self, what: str) -> int:
        number = len(self.operations)
        if self.crash_before is not None and number >= self.crash_before:
            self.is_off = True
            raise PowerCut(what)
        self.operations.append(what)
        return number

    def look(self, *_: object) -> None:
        """Raise PowerCut when the power is off. For a thread that waits for another, which may have ended so."""
        if self.is_off:
            raise PowerCut("in another thread")

    def crash(self, rng: Random) -> CrashFiles:
        """Return the disk that a start after a power failure finds."""
        names = dict(self._durable)
        kept = rng.randint(0, len(self._moves))
        for _, name, inode in self._moves[:kept]:
            if inode is None:
                names.pop(name, None)
            else:
                names[name] = inode
        fresh: dict[int, Inode] = {}
        for inode in names.values():
            if id(inode) not in fresh:
                fresh[id(inode)] = inode.after_crash(rng)
        return CrashFiles({name: fresh[id(inode)] for name, inode in names.items()}, self.capacity_bytes)

    def killed(self) -> CrashFiles:
        """Return the disk that a start after a kill finds: the kernel has kept everything."""
        return CrashFiles({name: Inode(bytes(i.live)) for name, i in self.names.items()}, self.capacity_bytes)

    # -- the interface ------------------------------------------------------------------------------------------------

    def create(self, name: str) -> File:
        self.count_operation(f"create {name}")
        if name in self.names:
            raise FileExistsError(errno.EEXIST, "File exists", name)
        inode = Inode()
        self._move(name, inode)
        return CrashFile(self, name, inode)

    def attach(self, name: str) -> File:
        if name not in self.names:
            raise FileNotFoundError(errno.ENOENT, "No such file", name)
        return CrashFile(self, name, self.names[name])

    def list(self, folder: str) -> list[str]:
        prefix = f"{folder}/" if folder else ""
        return sorted({n[len(prefix) :].split("/")[0] for n in self.names if n.startswith(prefix)})

    def rename(self, old: str, new: str) -> None:
        self.count_operation(f"rename {old} {new}")
        inode = self.names[old]
        # The new name first: a crash between the two finds the file under both names, never under none.
        self.names[new] = inode
        del self.names[old]
        self._moves += [(_folder(new), new, inode), (_folder(old), old, None)]

    def remove(self, name: str) -> None:
        self.count_operation(f"remove {name}")
        del self.names[name]
        self._moves.append((_folder(name), name, None))

    def sync_folder(self, folder: str) -> None:
        self.count_operation(f"sync_folder {folder}")
        for at, name, inode in self._moves:
            if at == folder:
                if inode is None:
                    self._durable.pop(name, None)
                else:
                    self._durable[name] = inode
        self._moves = [m for m in self._moves if m[0] != folder]

    def space(self) -> DiskSpace:
        used = sum(len(inode.live) for inode in self.names.values())
        return DiskSpace(max(0, self.capacity_bytes - used), self.capacity_bytes)

    def where(self, name: str) -> str:
        return name

    def flip(self, name: str, bit: int) -> None:
        """Flip a bit, on the disk and in the bytes that the kernel shows."""
        inode = self.names[name]
        inode.live[bit // 8] ^= 1 << (bit % 8)
        inode.synced()

    def _move(self, name: str, inode: Inode) -> None:
        self.names[name] = inode
        self._moves.append((_folder(name), name, inode))


def _folder(name: str) -> str:
    return name.rpartition("/")[0]
