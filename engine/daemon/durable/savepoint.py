"""Savepoints: a copy of a data_dir of one moment, made while the daemon runs, from which another start goes on exactly.

A savepoint is a checkpoint and the log behind it. It is made in this order:

1. Notes of files and Spark are copied first. They may be older than the log, never newer: a row that they do not know
   of yet is recognised by its number.
2. A checkpoint is made. Until the savepoint is complete no other one is made, and no log is deleted.
3. The end of the log is noted, between two groups. Everything before it never changes again. Checkpoint files and
   complete segments get a second name (a hard link), the last segment is copied up to the end, spilled queues and small
   files are copied.
4. The manifest gets a checksum of every file, and its rename completes the savepoint.

A backup is a savepoint in another folder, and a restore is a copy of one that was checked. The files of a savepoint
are never written to: a restore copies them.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson

from catalog.errors import AuroraError
from engine.daemon.durable.checkpointer import Checkpointer
from engine.daemon.durable.cut import CutError
from storage.checkpoint import FOLDER as CHECKPOINTS
from storage.files import RealFiles
from storage.log import Log
from storage.log_mark import LogMark

FOLDER = "savepoints"
MANIFEST = "savepoint.json"
VERSION = 1
NOTES = ("files", "spark", "owners.ndjson")
LEFT_OUT = ("lock", FOLDER)
HISTORY = "history"  # its files never change
BY_MOMENT = ("log", CHECKPOINTS, "spill")  # only what belongs to the moment
COPY_BYTES = 4 * 1024**2
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


class SavepointError(AuroraError):
    """A savepoint, a backup or a restore cannot be made. The message says why."""


def make_savepoint(root: str, name: str, journal: Log, checkpointer: Checkpointer) -> Path:
    """Make a savepoint below a data_dir and return its folder. Raises SavepointError."""
    if not _NAME.fullmatch(name):
        raise SavepointError("the name of a savepoint has letters, digits, dots, - and _, at most 100")
    target = Path(root, FOLDER, name)
    building = target.with_name(f".{name}.new")
    if target.exists():
        raise SavepointError(f"there is a savepoint {name} already")
    try:
        shutil.rmtree(building, ignore_errors=True)
        building.mkdir(parents=True, mode=0o700)
        _copy_there(Path(root), building, NOTES)
        with checkpointer.held() as moment:
            _save_moment(Path(root), building, journal, moment.number, moment.end, moment.spill)
        write_manifest(building, {"checkpoint": moment.number, "end": moment.end})
        os.rename(building, target)
        _sync_folder(target.parent)
    except (OSError, CutError, TimeoutError) as error:
        shutil.rmtree(building, ignore_errors=True)
        raise SavepointError(f"the savepoint cannot be made: {error}") from error
    return target


def _save_moment(root: Path, to: Path, journal: Log, checkpoint: int, end: int, spill: list[str]) -> None:
    known = {*LEFT_OUT, *BY_MOMENT, *NOTES, HISTORY, journal.mark_folder}
    for file in _files(root / HISTORY):
        if file.suffix != ".tmp":
            _link(file, to / file.relative_to(root))
    _copy_there(root, to, tuple(entry.name for entry in root.iterdir() if entry.name not in known))
    manifest = f"{checkpoint:010d}.json"
    (to / CHECKPOINTS).mkdir()
    for name in [manifest, *_parts(root / CHECKPOINTS / manifest)]:
        _link(root / CHECKPOINTS / name, to / CHECKPOINTS / name)
    for name in spill:
        _copy(root / name, to / name)
    for name, size, is_complete in journal.segments_up_to(end):
        if is_complete:
            _link(root / name, to / name)
        else:
            _copy(root / name, to / name, size)
    mark = LogMark(RealFiles(str(to)), journal.mark_folder)
    mark.note(end)
    mark.sync()
    mark.close()


def _parts(manifest: Path) -> list[str]:
    """Return the files of the parts that a checkpoint's manifest names, each once."""
    data = orjson.loads(manifest.read_bytes()[:-16])  # behind the JSON stands the footer of storage/checkpoint.py
    return list(dict.fromkeys(part["file"].rpartition("/")[2] for part in data["parts"].values()))


def _link(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(source, target)
    except FileExistsError:
        raise  # a copy would write into the source, if it is this very file
    except OSError:  # another file system, or one without links
        _copy(source, target)


def _copy(source: Path, target: Path, size: int | None = None) -> None:
    """Copy a file, or its first ``size`` bytes, and sync the copy."""
    target.parent.mkdir(parents=True, exist_ok=True)
    left = source.stat().st_size if size is None else size
    with source.open("rb") as reading, target.open("wb") as writing:
        os.fchmod(writing.fileno(), 0o640)
        while left > 0 and (piece := reading.read(min(COPY_BYTES, left))):
            writing.write(piece)
            left -= len(piece)
        writing.flush()
        os.fsync(writing.fileno())
    if left > 0 and size is not None:
        raise SavepointError(f"{source} is shorter than it was")


def _copy_there(root: Path, to: Path, names: tuple[str, ...]) -> None:
    for name in names:
        source = root / name
        if source.is_file():
            _copy(source, to / name)
        elif source.is_dir():
            for file in _files(source):
                try:
                    _copy(file, to / file.relative_to(root))
                except FileNotFoundError:
                    continue  # removed in the meantime: it was done


def _files(folder: Path) -> Iterator[Path]:
    return (path for path in sorted(folder.rglob("*")) if path.is_file() and not path.is_symlink())


def write_manifest(folder: Path, facts: dict[str, Any]) -> None:
    """Write the checksums of all files of a savepoint."""
    files = {
        str(path.relative_to(folder)): {"bytes": path.stat().st_size, "sha256": checksum(path)}
        for path in _files(folder)
        if path.name != MANIFEST
    }
    made = datetime.now(UTC).isoformat(timespec="seconds")
    data = orjson.dumps({"version": VERSION, "made": made, **facts, "files": files}, option=orjson.OPT_INDENT_2)
    with (folder / MANIFEST).open("wb") as out:
        out.write(data)
        out.flush()
        os.fsync(out.fileno())
    _sync_folder(folder)


def check_savepoint(folder: Path) -> dict[str, Any]:
    """Compare every file with the manifest, and return the manifest. Raises SavepointError."""
    try:
        manifest: dict[str, Any] = orjson.loads((folder / MANIFEST).read_bytes())
        if manifest["version"] > VERSION:
            raise SavepointError(f"{folder} was made by a newer aurorad")
        wanted: dict[str, Any] = manifest["files"]
        for name, facts in wanted.items():
            path = folder / name
            if not path.is_file():
                raise SavepointError(f"{path} is missing")
            if path.stat().st_size != facts["bytes"] or checksum(path) != facts["sha256"]:
                raise SavepointError(f"{path} is not as it was saved")
    except (OSError, orjson.JSONDecodeError, KeyError, TypeError) as error:
        raise SavepointError(f"{folder} is no savepoint or backup: {error}") from error
    return manifest


def copy_savepoint(source: Path, target: Path) -> dict[str, Any]:
    """Copy a savepoint, checked before and after, with its manifest. ``target`` must be new or empty."""
    manifest = check_savepoint(source)
    _make_empty(target)
    for name in [*manifest["files"], MANIFEST]:
        _copy(source / name, target / name)
    check_savepoint(target)
    _sync_folder(target)
    return manifest


def restore(source: Path, target: Path) -> dict[str, Any]:
    """Make a data_dir of a savepoint or a backup. Raises SavepointError; then nothing of it is left."""
    check_savepoint(source)
    _make_empty(target)
    try:
        manifest = copy_savepoint(source, target)
    except (SavepointError, OSError):
        shutil.rmtree(target, ignore_errors=True)
        raise
    (target / MANIFEST).unlink()
    _sync_folder(target)
    return manifest


def backup_stopped(root: Path, target: Path) -> dict[str, Any]:
    """Copy the data_dir of a daemon that does not run. The caller holds its lock."""
    _make_empty(target)
    for file in _files(root):
        name = file.relative_to(root)
        if name.parts[0] not in LEFT_OUT:
            _copy(file, target / name)
    write_manifest(target, {})
    return check_savepoint(target)


def _make_empty(target: Path) -> None:
    if target.exists() and any(target.iterdir()):
        raise SavepointError(f"{target} is not empty")
    target.mkdir(parents=True, exist_ok=True, mode=0o700)


def checksum(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _sync_folder(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
