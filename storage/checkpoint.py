"""Checkpoints: everything that the log up to a position has come to, atomic by rename.

A checkpoint is a set of parts (one a box, one for the queues, one for the rest), each a file with its CRC, and a
manifest that names them. The parts are written and synced first, the manifest last, under a temporary name; the
rename gives it its name, and the folder is synced. Before that moment the checkpoint does not exist, after it all of
it does.

Incremental: a part that has not changed since the last checkpoint is not written again; the manifest names the file
that is there. ``stamp`` says what a part's content depends on; equal stamps, equal content.

Two checkpoints are kept. The newest whose manifest and parts are all whole is what a start uses; a bad one is passed
over and counted. Whoever prunes the log asks ``oldest_kept``: below the position of the older one it is not needed.
Files that no kept manifest names are removed after the rename, never before.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import orjson

from storage.checksum import crc32
from storage.files import Bytes, File, Files, StorageError, numbers
from storage.plants import planted

KEPT = 2
FOLDER = "checkpoint"
_DIGITS = 10
_OURS = re.compile(r"\d{10}(-\d+)?\.(json|part|tmp)")
_FOOT = struct.Struct("<4sIQ")  # magic, CRC, bytes before it
_MAGIC = b"AuC1"
_WRITE_BYTES = 1024**2
"""Written and synced at a time: 100 MB handed to the disk at once would hold up every sync of the log behind them."""


class CheckpointError(StorageError):
    """A checkpoint that cannot be used."""


class Part(NamedTuple):
    """What to write. ``make`` gives the bytes; it is not called when the last checkpoint has the same stamp."""

    stamp: str
    make: Callable[[], Sequence[Bytes]]


class Found(NamedTuple):
    """A checkpoint that is whole."""

    number: int
    position: int  # of the log: what lies before it is in here
    parts: Mapping[str, bytes]
    facts: Mapping[str, Any]  # small things that whoever wrote it put into the manifest


class Written(NamedTuple):
    number: int
    position: int
    written_bytes: int
    reused_bytes: int


class Checkpoints:
    """Owner: the thread that makes checkpoints; before it runs, the one that starts the daemon."""

    def __init__(self, files: Files, pace: Callable[[], None] = lambda: None) -> None:
        """``pace`` is called between two pieces of a large part: whoever shares the disk gets a turn."""
        self._files = files
        self._pace = pace
        self._manifests: dict[int, dict[str, Any]] = {}  # the kept ones, by number
        self._next = 1
        self.passed_over: list[CheckpointError] = []  # bad ones, when it was opened

    def open(self) -> Found | None:
        """The newest whole checkpoint; None when there is none at all. Raises when there are some and all are bad."""
        manifests = numbers(self._files.list(FOLDER), ".json")
        self._next = max([self._next, *(int(name[:_DIGITS]) + 1 for name in self._ours())])
        best: Found | None = None
        for number in reversed(manifests):
            try:
                found = self._read(number, with_parts=best is None)
            except CheckpointError as error:
                self.passed_over.append(error)
            else:
                best = best or found
        if best is None and manifests:
            raise self.passed_over[0]
        return best

    def _ours(self) -> list[str]:
        """Every file of ours, bad ones too: a name is never used twice. What else lies there is left alone."""
        return [name for name in self._files.list(FOLDER) if _OURS.fullmatch(name)]

    def _read(self, number: int, *, with_parts: bool) -> Found:
        manifest_name = f"{FOLDER}/{number:010d}.json"
        try:
            manifest: dict[str, Any] = orjson.loads(self._whole(manifest_name))
        except orjson.JSONDecodeError as error:
            raise CheckpointError(self._files.where(manifest_name), 0, str(error)) from error
        parts = {name: self._whole(part["file"]) for name, part in manifest["parts"].items()} if with_parts else {}
        self._manifests[number] = manifest
        return Found(number, manifest["position"], parts, manifest["facts"])

    def _whole(self, name: str) -> bytes:
        where = self._files.where(name)
        try:
            file = self._files.attach(name)
        except OSError as error:
            raise CheckpointError(where, 0, error.strerror or "it cannot be opened") from error
        try:
            data = file.read(0, file.size)
        except OSError as error:
            raise CheckpointError(where, 0, error.strerror or "it cannot be read") from error
        finally:
            file.close()
        if len(data) < _FOOT.size:
            raise CheckpointError(where, 0, "shorter than its foot")
        magic, crc, size = _FOOT.unpack_from(data, len(data) - _FOOT.size)
        if magic != _MAGIC or size != len(data) - _FOOT.size or crc32(memoryview(data)[:size]) != crc:
            raise CheckpointError(where, 0, "the CRC does not match")
        return data[:size]

    # -- writing ------------------------------------------------------------------------------------------------------

    def write(self, position: int, parts: Mapping[str, Part], facts: Mapping[str, Any]) -> Written:
        """OSError when it cannot be: then the checkpoints that were there are still there, and nothing else."""
        number = self._next
        self._next += 1
        made: list[str] = []
        try:
            manifest = self._write_parts(number, position, parts, facts, made)
            self._publish(number, manifest, made)
        except OSError:
            for name in made:
                self._remove(name)
            raise
        self._manifests[number] = manifest
        self._forget_old()
        written = sum(p["bytes"] for p in manifest["parts"].values() if p["file"] in made)
        total = sum(p["bytes"] for p in manifest["parts"].values())
        return Written(number, position, written, total - written)

    def _write_parts(
        self, number: int, position: int, parts: Mapping[str, Part], facts: Mapping[str, Any], made: list[str]
    ) -> dict[str, Any]:
        last = self._manifests[max(self._manifests)]["parts"] if self._manifests else {}
        entries: dict[str, Any] = {}
        for n, (name, part) in enumerate(parts.items()):
            before = last.get(name)
            if before is not None and before["stamp"] == part.stamp:
                entries[name] = before
                continue
            file_name = f"{FOLDER}/{number:010d}-{n}.part"
            size = self._write_file(file_name, part.make(), made)
            entries[name] = {"file": file_name, "stamp": part.stamp, "bytes": size}
        return {"position": position, "parts": entries, "facts": dict(facts)}

    def _publish(self, number: int, manifest: dict[str, Any], made: list[str]) -> None:
        name, temporary = f"{FOLDER}/{number:010d}.json", f"{FOLDER}/{number:010d}.tmp"
        self._write_file(temporary, [orjson.dumps(manifest)], made)
        if not planted("checkpoint_in_place"):
            self._files.sync_folder(FOLDER)  # the parts' names, before the name that refers to them
        self._files.rename(temporary, name)
        made[-1] = name
        self._files.sync_folder(FOLDER)

    def _write_file(self, name: str, parts: Sequence[Bytes], made: list[str]) -> int:
        file = self._files.create(name)
        made.append(name)
        try:
            crc = 0
            for n, chunk in enumerate(_chunks(parts)):
                if n:
                    self._sync(file)
                    self._pace()
                for part in chunk:
                    crc = crc32(part, crc)
                file.append(chunk)
            size = file.size
            file.append([_FOOT.pack(_MAGIC, crc, size)])
            self._sync(file)
        finally:
            file.close()
        return size

    def _sync(self, file: File) -> None:
        if not planted("checkpoint_in_place"):
            file.sync()

    # -- what is kept -------------------------------------------------------------------------------------------------

    @property
    def oldest_kept(self) -> int | None:
        """The position below which no checkpoint that is kept needs the log; None: there is no checkpoint."""
        return min((m["position"] for m in self._manifests.values()), default=None)

    def facts(self) -> list[Mapping[str, Any]]:
        """Those of every checkpoint that is kept."""
        return [m["facts"] for m in self._manifests.values()]

    def _forget_old(self) -> None:
        for number in sorted(self._manifests)[:-KEPT]:
            del self._manifests[number]
        wanted = {f"{n:010d}.json" for n in self._manifests}
        wanted |= {p["file"].split("/")[-1] for m in self._manifests.values() for p in m["parts"].values()}
        for name in self._ours():
            if name not in wanted:
                self._remove(f"{FOLDER}/{name}")

    def _remove(self, name: str) -> None:
        try:
            self._files.remove(name)
        except FileNotFoundError:
            pass  # a file that is not there is what was wanted


def _chunks(parts: Sequence[Bytes]) -> list[list[Bytes]]:
    """Pieces of at most ``_WRITE_BYTES``."""
    out: list[list[Bytes]] = [[]]
    size = 0
    for part in parts:
        view = memoryview(part)
        for start in range(0, max(1, len(view)), _WRITE_BYTES):
            piece = view[start : start + _WRITE_BYTES]
            if size + len(piece) > _WRITE_BYTES and out[-1]:
                out.append([])
                size = 0
            out[-1].append(piece)
            size += len(piece)
    return out
