"""A disk that forgets: the interface of ``storage/files.py`` in memory, with what a power cut may do to it.

What was synced stays. Of what was not, a crash keeps anything: nothing, a part of it in order, or scattered sectors,
with the file's end anywhere. Names behave alike: a file that was made, renamed or removed since its folder was last
synced may or may not be there, though in the order in which it happened. Every deed is counted, so a test can end the
world before any of them (``crash_before``), fail a sync (``fail_syncs``) or fill the disk (``capacity_bytes``).
"""

from __future__ import annotations

import errno
from collections.abc import Sequence
from random import Random

from storage.files import Bytes, File, Space

SECTOR = 512


class PowerCut(BaseException):
    """The world ends here. Not an Exception: no handler of errors may catch it."""


class Inode:
    """A file's bytes: those on the disk, and those that the kernel shows."""

    def __init__(self, durable: bytes = b"") -> None:
        self.durable = durable
        self.live = bytearray(durable)
        self.steps: list[tuple[int, bytes] | int] = []  # since the last sync: (offset, bytes), or cut to a size

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
        """Sectors beyond what was durable came out in any order: those that did not hold zeros or what was there."""
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
        self._disk.deed(f"append {len(data)} to {self.name}")
        room = self._disk.space().free_bytes
        taken = data[: max(0, room)]
        self._inode.steps.append((self.size, taken))
        self._inode.live += taken
        if len(taken) < len(data):
            raise OSError(errno.ENOSPC, "No space left on device", self.name)

    def sync(self) -> None:
        number = self._disk.deed(f"sync {self.name}")
        if number in self._disk.fail_syncs:
            # As the kernel does: the pages count as clean from now on and are never written.
            self._inode.steps.clear()
            self._disk.lost.append(self.name)
            raise OSError(errno.EIO, "Input/output error", self.name)
        if self.name in self._disk.lost:
            return  # says that all is well, and has lost what it had before
        self._inode.synced()

    def begin_sync(self, offset: int) -> None:
        """No deed: a power cut may keep what was not synced anyway."""

    def truncate(self, size: int) -> None:
        self._disk.deed(f"truncate {self.name}")
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
        self._moves: list[tuple[str, str, Inode | None]] = []  # (folder, name, what it is then) since its last sync
        self.capacity_bytes = capacity_bytes
        self.deeds: list[str] = []
        self.crash_before: int | None = None
        self.is_off = False
        self.fail_syncs: set[int] = set()
        self.lost: list[str] = []  # files of which a sync has failed

    def deed(self, what: str) -> int:
        number = len(self.deeds)
        if self.crash_before is not None and number >= self.crash_before:
            self.is_off = True
            raise PowerCut(what)
        self.deeds.append(what)
        return number

    def look(self, *_: object) -> None:
        """For a thread that waits for another: that one may be what the power cut has ended."""
        if self.is_off:
            raise PowerCut("in another thread")

    def crash(self, rng: Random) -> CrashFiles:
        """The disk that the next start finds."""
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
        """What a process finds after one that was killed: the kernel has kept everything."""
        return CrashFiles({name: Inode(bytes(i.live)) for name, i in self.names.items()}, self.capacity_bytes)

    # -- the interface ------------------------------------------------------------------------------------------------

    def create(self, name: str) -> File:
        self.deed(f"create {name}")
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
        self.deed(f"rename {old} {new}")
        inode = self.names[old]
        # The new name first: a crash in between finds the file under both, never under none.
        self.names[new] = inode
        del self.names[old]
        self._moves += [(_folder(new), new, inode), (_folder(old), old, None)]

    def remove(self, name: str) -> None:
        self.deed(f"remove {name}")
        del self.names[name]
        self._moves.append((_folder(name), name, None))

    def sync_folder(self, folder: str) -> None:
        self.deed(f"sync_folder {folder}")
        for at, name, inode in self._moves:
            if at == folder:
                if inode is None:
                    self._durable.pop(name, None)
                else:
                    self._durable[name] = inode
        self._moves = [m for m in self._moves if m[0] != folder]

    def space(self) -> Space:
        used = sum(len(inode.live) for inode in self.names.values())
        return Space(max(0, self.capacity_bytes - used), self.capacity_bytes)

    def where(self, name: str) -> str:
        return name

    def flip(self, name: str, bit: int) -> None:
        """Bit rot, on the disk and in what the kernel shows."""
        inode = self.names[name]
        inode.live[bit // 8] ^= 1 << (bit % 8)
        inode.synced()

    def _move(self, name: str, inode: Inode) -> None:
        self.names[name] = inode
        self._moves.append((_folder(name), name, inode))


def _folder(name: str) -> str:
    return name.rpartition("/")[0]
