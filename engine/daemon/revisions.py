"""Revisions: every network that the daemon has run, with its file, its time, its author, and what it changed.

The number of a revision is the version of its network, which goes on over restarts. With a data_dir each revision is a
file of ``revisions/``, written before the checkpoint that makes its change count (``durable/checkpointer``). So the
last revision that counts is the one that the newest checkpoint names; a file with a higher number is of a change that a
crash has broken off, and the next change replaces it. Without a data_dir revisions are in memory.

The network of a revision is its file and the groups of boxes that were one box: two equal boxes that run apart must
stay apart after a restart, because one may be some tuples behind the other (``catalog/share``).

Owner: the thread that changes the network, one at a time; any thread reads.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

import orjson

from catalog.network import Network
from router.http.change import ChangeOrigin
from storage.files import Files, StorageError, numbers

log = logging.getLogger("aurorad.change")

FOLDER = "revisions"
KEPT = 1_000
KEPT_BYTES = 128 * 1024**2
"""The oldest revisions are forgotten beyond the one or the other."""


@dataclass(frozen=True, slots=True)
class Revision:
    number: int
    time: str  # ISO 8601, UTC
    door: str  # start, reload, apply, query add, query remove, rollback, ...
    author: str
    text: str  # the network file; empty for a network that was made by code
    is_file: bool  # the file of the start had this text then
    parts: Sequence[Mapping[str, str]]  # what it changed: without the parts that were kept
    groups: Sequence[Sequence[str]]  # names of boxes that are one box

    def to_json(self) -> dict[str, Any]:
        """Return what lists show: all but the text and the groups."""
        return {
            "number": self.number,
            "time": self.time,
            "door": self.door,
            "author": self.author,
            "is_file": self.is_file,
            "parts": list(self.parts),
        }


def make_revision(
    network: Network, text: str, origin: ChangeOrigin, parts: Sequence[Mapping[str, str]], *, is_file: bool
) -> Revision:
    groups = [list(node.names) for node in network.boxes if node.also]
    now = datetime.now(UTC).isoformat(timespec="milliseconds")
    return Revision(network.version, now, origin.door, origin.author, text, is_file, parts, groups)


class Revisions:
    def __init__(self, files: Files | None) -> None:
        """``files`` are those of the data_dir."""
        self._files = files
        self._known: dict[int, Revision] = {}
        self._bytes: dict[int, int] = {}

    def open(self, newest: int) -> None:
        """Read the revisions of the data_dir up to the newest one that counts."""
        if self._files is None:
            return
        for number in numbers(self._files.list(FOLDER), ".json"):
            if number <= newest:
                try:
                    self._known[number], self._bytes[number] = read_revision(self._files, number)
                except StorageError as error:
                    log.warning("a revision cannot be read: %s", error)

    def listing(self) -> list[Revision]:
        """Return the revisions, the newest first."""
        return [self._known[number] for number in sorted(self._known, reverse=True)]

    def find(self, number: int) -> Revision | None:
        return self._known.get(number)

    def write(self, revision: Revision) -> None:
        """Write a revision to disk, before its change counts. OSError when the disk does not take it."""
        data = orjson.dumps(asdict(revision), option=orjson.OPT_INDENT_2)
        self._bytes[revision.number] = len(data)
        if self._files is None:
            return
        name, temporary = _name(revision.number), f"{FOLDER}/{revision.number:010d}.tmp"
        if temporary.rpartition("/")[2] in self._files.list(FOLDER):
            self._files.remove(temporary)
        file = self._files.create(temporary)
        try:
            file.append([data])
            file.sync()
        finally:
            file.close()
        self._files.rename(temporary, name)
        self._files.sync_folder(FOLDER)

    def add(self, revision: Revision) -> None:
        """Take note of a revision that counts now, and forget the oldest ones."""
        self._known[revision.number] = revision
        excess = len(self._known) - KEPT
        for number in sorted(self._known)[:-1]:
            if excess <= 0 and sum(self._bytes.values()) <= KEPT_BYTES:
                break
            excess -= 1
            del self._known[number], self._bytes[number]
            if self._files is not None:
                with suppress(OSError):  # it is tried again by nobody, and does no harm
                    self._files.remove(_name(number))


def read_revision(files: Files, number: int) -> tuple[Revision, int]:
    """Read a revision and its size in bytes. Raises StorageError."""
    name = _name(number)
    try:
        file = files.attach(name)
        try:
            data = file.read(0, file.size)
        finally:
            file.close()
        return Revision(**orjson.loads(data)), len(data)
    except (OSError, ValueError, TypeError) as error:
        raise StorageError(files.where(name), None, f"cannot be read: {error}") from error


def _name(number: int) -> str:
    return f"{FOLDER}/{number:010d}.json"
