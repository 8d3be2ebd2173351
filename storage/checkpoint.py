"""Checkpoints: the state that results from the log up to a position, made atomic by a rename.

A checkpoint is a set of parts (one for each box, one for the queues, one for the rest) and a manifest that names them.
Each is a file with a CRC. The parts are written and synced first, then the manifest under a temporary name. The rename
to its final name and a sync of the folder complete the checkpoint: before, none of it counts; after, all of it does.

Incremental: a part that has not changed since the last checkpoint is not written again; the new manifest names the
existing file. ``stamp`` identifies what a part's content depends on: equal stamps mean equal content.

Small parts share a file, a bundle: a thousand boxes would cost a thousand syncs. A bundle stays as long as a manifest
names one part of it. So a part that has not changed is still written again when its bundle is not among the last few
(``reusable``).

Two checkpoints are kept. A start uses the newest one whose manifest and parts are all good, and counts the bad ones
that it skips. Pruning of the log asks for ``oldest_kept``: no kept checkpoint needs the log below that position. Files
that no kept manifest names are removed after the rename, never before.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import orjson

from storage.checksum import crc32
from storage.files import Bytes, File, Files, StorageError, numbers

KEPT = 2
FOLDER = "checkpoint"
_DIGITS = 10
_OURS = re.compile(r"\d{10}(-\d+)?\.(json|part|tmp)")
_FOOTER = struct.Struct("<4sIQ")  # magic, CRC, bytes before it
_MAGIC = b"AuC1"
_WRITE_BYTES = 1024**2
"""The amount to write before a sync. With 100 MB at once, every sync of the log would wait behind them."""


class CheckpointError(StorageError):
    """A checkpoint that cannot be used."""


BUNDLED_BYTES = 64 * 1024
"""A part below this size goes into the bundle of its checkpoint."""

BUNDLES = 8
"""Parts of the last bundles are not written again if they have not changed."""


class CheckpointPart(NamedTuple):
    """A part to write. ``make`` returns the bytes; it is not called when the last checkpoint has the same stamp."""

    stamp: str
    make: Callable[[], Sequence[Bytes]]


class FoundCheckpoint(NamedTuple):
    """A checkpoint whose files are all good."""

    number: int
    position: int  # of the log: the checkpoint contains the effect of everything before it
    parts: Mapping[str, bytes]
    facts: Mapping[str, Any]  # small data of the writer, kept in the manifest


class WrittenCheckpoint(NamedTuple):
    number: int
    position: int
    written_bytes: int
    reused_bytes: int


class Checkpoints:
    """Owner: the thread that makes checkpoints; before it runs, the one that starts the daemon."""

    def __init__(self, files: Files, pace: Callable[[], None]) -> None:
        """``pace`` is called between two pieces of a large part, so that other users of the disk get a turn."""
        self._files = files
        self._pace = pace
        self._manifests: dict[int, dict[str, Any]] = {}  # the kept ones, by number
        self._next = 1
        self.passed_over: list[CheckpointError] = []  # bad checkpoints that ``open`` skipped

    def open(self) -> FoundCheckpoint | None:
        """Return the newest good checkpoint; None when the folder has none. Raises when all of them are bad."""
        manifests = numbers(self._files.list(FOLDER), ".json")
        self._next = max([self._next, *(int(name[:_DIGITS]) + 1 for name in self._ours())])
        best: FoundCheckpoint | None = None
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

    def newest_facts(self) -> Mapping[str, Any] | None:
        """Return the facts of the newest checkpoint whose files are there; None without one. Changes nothing."""
        there = set(self._files.list(FOLDER))
        for number in reversed(numbers(there, ".json")):
            try:
                manifest = orjson.loads(self._read_file(f"{FOLDER}/{number:010d}.json"))
            except (CheckpointError, orjson.JSONDecodeError):
                continue
            if {part["file"].rpartition("/")[2] for part in manifest["parts"].values()} <= there:
                facts: Mapping[str, Any] = manifest["facts"]
                return facts
        return None

    def _ours(self) -> list[str]:
        """List our own files, bad ones included, because a name is never used twice. Ignore files of others."""
        return [name for name in self._files.list(FOLDER) if _OURS.fullmatch(name)]

    def _read(self, number: int, *, with_parts: bool) -> FoundCheckpoint:
        manifest_name = f"{FOLDER}/{number:010d}.json"
        try:
            manifest: dict[str, Any] = orjson.loads(self._read_file(manifest_name))
        except orjson.JSONDecodeError as error:
            raise CheckpointError(self._files.where(manifest_name), 0, str(error)) from error
        parts = self._read_parts(manifest["parts"]) if with_parts else {}
        self._manifests[number] = manifest
        return FoundCheckpoint(number, manifest["position"], parts, manifest["facts"])

    def _read_parts(self, entries: Mapping[str, Any]) -> dict[str, bytes]:
        files: dict[str, bytes] = {}
        parts: dict[str, bytes] = {}
        for name, part in entries.items():
            file = part["file"]
            if "at" not in part:
                parts[name] = self._read_file(file)
                continue
            if file not in files:
                files[file] = self._read_file(file)
            parts[name] = files[file][part["at"] : part["at"] + part["bytes"]]
        return parts

    def _read_file(self, name: str) -> bytes:
        where = self._files.where(name)
        try:
            file = self._files.attach(name)
        except OSError as error:
            raise CheckpointError(where, 0, error.strerror or "cannot be opened") from error
        try:
            data = file.read(0, file.size)
        except OSError as error:
            raise CheckpointError(where, 0, error.strerror or "cannot be read") from error
        finally:
            file.close()
        if len(data) < _FOOTER.size:
            raise CheckpointError(where, 0, "shorter than its footer")
        magic, crc, size = _FOOTER.unpack_from(data, len(data) - _FOOTER.size)
        if magic != _MAGIC or size != len(data) - _FOOTER.size or crc32(memoryview(data)[:size]) != crc:
            raise CheckpointError(where, 0, "the CRC does not match")
        return data[:size]

    # -- writing ------------------------------------------------------------------------------------------------------

    def write(self, position: int, parts: Mapping[str, CheckpointPart], facts: Mapping[str, Any]) -> WrittenCheckpoint:
        """Write a checkpoint. On OSError the earlier checkpoints are unchanged and nothing of the new one is left."""
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
        return WrittenCheckpoint(number, position, written, total - written)

    def _write_parts(
        self, number: int, position: int, parts: Mapping[str, CheckpointPart], facts: Mapping[str, Any], made: list[str]
    ) -> dict[str, Any]:
        last, reusable = self._last_parts, self.reusable()
        entries: dict[str, Any] = {}
        bundle: list[Bytes] = []
        size = 0
        for n, (name, part) in enumerate(parts.items(), 1):
            if name in reusable and last[name]["stamp"] == part.stamp:
                entries[name] = last[name]
                continue
            content = part.make()
            nbytes = sum([len(piece) for piece in content])
            entry = entries[name] = {"file": f"{FOLDER}/{number:010d}-{n}.part", "stamp": part.stamp, "bytes": nbytes}
            if nbytes < BUNDLED_BYTES:
                entry |= {"file": f"{FOLDER}/{number:010d}-0.part", "at": size}
                bundle += content
                size += nbytes
            else:
                self._write_file(entry["file"], content, made)
        if bundle:
            self._write_file(f"{FOLDER}/{number:010d}-0.part", bundle, made)
        return {"position": position, "parts": entries, "facts": dict(facts)}

    @property
    def _last_parts(self) -> Mapping[str, Any]:
        return self._manifests[max(self._manifests)]["parts"] if self._manifests else {}

    def reusable(self) -> set[str]:
        """Return the parts of the last checkpoint that the next one need not write again if they have not changed."""
        last = self._last_parts
        recent = sorted({part["file"] for part in last.values() if "at" in part})[-BUNDLES:]
        return {name for name, part in last.items() if "at" not in part or part["file"] in recent}

    def _publish(self, number: int, manifest: dict[str, Any], made: list[str]) -> None:
        name, temporary = f"{FOLDER}/{number:010d}.json", f"{FOLDER}/{number:010d}.tmp"
        self._write_file(temporary, [orjson.dumps(manifest)], made)
        self._sync_part_names()
        self._files.rename(temporary, name)
        made[-1] = name
        self._files.sync_folder(FOLDER)

    def _sync_part_names(self) -> None:
        """Sync the names of the parts before the name of the manifest, which refers to them."""
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
            file.append([_FOOTER.pack(_MAGIC, crc, size)])
            self._sync(file)
        finally:
            file.close()
        return size

    def _sync(self, file: File) -> None:
        file.sync()

    # -- what is kept -------------------------------------------------------------------------------------------------

    @property
    def oldest_kept(self) -> int | None:
        """The position below which no kept checkpoint needs the log; None without a checkpoint."""
        return min((m["position"] for m in self._manifests.values()), default=None)

    @property
    def newest(self) -> int:
        """The number of the newest checkpoint; 0 without one."""
        return max(self._manifests, default=0)

    def facts(self) -> list[Mapping[str, Any]]:
        """Return the facts of every kept checkpoint."""
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
            pass  # already gone


def _chunks(parts: Sequence[Bytes]) -> list[list[Bytes]]:
    """Split parts into chunks of at most ``_WRITE_BYTES``."""
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
