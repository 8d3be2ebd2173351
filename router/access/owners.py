"""Who owns the name of a reader or a source: the users to whom the file gives it, or the user who used it first.

A first use is kept in the data_dir, one line a name, synced before the client is welcome: after a restart the name
belongs to the same user. Without a data_dir ownership ends with the process, like everything else.
"""

from __future__ import annotations

import os
from threading import Lock

import orjson

from router.access.users import User, Users

FILE = "owners.ndjson"


class NameOwners:
    """Any thread."""

    def __init__(self, data_dir: str | None) -> None:
        self._lock = Lock()
        self._owners: dict[tuple[str, str, str], str] = {}  # by kind, place and name: the user
        self._path = None if data_dir is None else os.path.join(data_dir, FILE)
        self._fd: int | None = None

    def open(self) -> None:
        """Read the owners of earlier runs. Raises OSError."""
        if self._path is None:
            return
        if os.path.exists(self._path):
            with open(self._path, "rb") as file:
                for line in file.read().split(b"\n")[:-1]:  # half a line at the end was never answered
                    self._apply(orjson.loads(line))
        self._compact()

    def _apply(self, entry: list[str]) -> None:
        kind, place, name, user = entry
        if user:
            self._owners[kind, place, name] = user
        else:
            self._owners.pop((kind, place, name), None)

    def _compact(self) -> None:
        assert self._path is not None
        fresh = f"{self._path}.new"
        fd = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        os.write(fd, b"".join(orjson.dumps([*key, user]) + b"\n" for key, user in self._owners.items()))
        os.fsync(fd)
        os.close(fd)
        os.rename(fresh, self._path)
        self._fd = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)

    def may_use(self, users: Users, user: User, kind: str, place: str, name: str) -> bool:
        """Tell whether a user may use a name of this ``kind`` (reader or source) at an output or a stream. A name that
        belongs to nobody belongs to this user from now on, on disk. Raises OSError."""
        if user.name == "":
            return True
        assigned = users.assigned(name)
        if assigned:
            return user in assigned or user.is_admin
        if user.model.names:
            return user.is_admin
        with self._lock:
            owner = self._owners.get((kind, place, name))
            if owner is None and sum(1 for who in self._owners.values() if who == user.name) < user.model.names_at_most:
                self._write([kind, place, name, user.name])
                owner = self._owners[kind, place, name] = user.name
        return owner == user.name or user.is_admin

    def owner(self, kind: str, place: str, name: str) -> str:
        return self._owners.get((kind, place, name), "")

    def drop(self, kind: str, place: str, name: str) -> None:
        """Let a name belong to nobody."""
        with self._lock:
            if self._owners.pop((kind, place, name), None) is not None:
                self._write([kind, place, name, ""])

    def _write(self, entry: list[str]) -> None:
        if self._fd is not None:
            os.write(self._fd, orjson.dumps(entry) + b"\n")
            os.fdatasync(self._fd)

    def close(self) -> None:
        with self._lock:
            fd, self._fd = self._fd, None
        if fd is not None:
            os.close(fd)
