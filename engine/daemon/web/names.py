"""The names of readers and sources of a running daemon: list them, and drop one that nobody needs any more.

A name of a reader keeps the log, and a name of a source keeps the numbers of its batches; both belong to a user where
there are users. A dropped reader begins at the newest tuple when it comes back, and a dropped source may send a batch a
second time. So a name is dropped only while nobody is connected under it.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from catalog.errors import AuroraError
from catalog.network import Network
from engine.run.ingress import Ingress
from router.access.access import Access
from router.server import Server

if TYPE_CHECKING:
    from engine.daemon.durable.keeper import Keeper


class NameRefusedError(AuroraError):
    """A name cannot be dropped. The message says why."""


class Names:
    """Any thread."""

    def __init__(
        self, network: Network, ingress: Ingress, server: Server, keeper: Keeper | None, access: Access
    ) -> None:
        self._network = network
        self._ingress = ingress
        self._server = server
        self._keeper = keeper
        self._access = access

    def listing(self) -> list[dict[str, Any]]:
        """Return every name: its kind, where it is used, who owns it, where it stands, whether it is connected."""
        return [*self._readers(), *self._sources()]

    def _readers(self) -> list[dict[str, Any]]:
        found = []
        for outbox in [] if self._keeper is None else self._keeper.outboxes:
            place = outbox.output.name
            unread = outbox.unread()
            found += [
                self._entry("reader", place, name, acknowledged=number, unread=unread.get(name, 0))
                for name, number in sorted(outbox.names.copy().items())
            ]
        return found

    def _sources(self) -> list[dict[str, Any]]:
        return [
            self._entry("source", stream.name, name, epoch=s.epoch, sequence=s.committed, used=_time(s.used_s))
            for stream in self._network.streams
            for name, s in sorted(self._ingress.numbers.names(stream.number).items())
        ]

    def _entry(self, kind: str, place: str, name: str, **facts: Any) -> dict[str, Any]:
        owner = self._access.owners.owner(kind, place, name)
        is_connected = self._server.is_connected(kind, place, name)
        return {"kind": kind, "at": place, "name": name, "owner": owner, "connected": is_connected, **facts}

    def drop(self, kind: str, place: str, name: str) -> None:
        """Drop a name. Raises NameRefusedError."""
        if not any((n["kind"], n["at"], n["name"]) == (kind, place, name) for n in self.listing()):
            raise NameRefusedError(f"there is no {kind} {name} at {place}")
        if self._server.is_connected(kind, place, name):
            raise NameRefusedError(f"{kind} {name} at {place} is connected")
        if kind == "reader":
            assert self._keeper is not None
            self._keeper.histories[self._network.output(place).number].forget(name)
        else:
            number = self._network.stream(place).number
            if not (self._keeper.drop_source if self._keeper is not None else self._ingress.numbers.drop)(number, name):
                raise NameRefusedError(f"{kind} {name} at {place} cannot be dropped now: see the log")
        self._access.owners.drop(kind, place, name)


def _time(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat() if seconds else ""
