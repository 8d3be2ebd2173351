"""Readers with a name: they get an output's history from where they stopped, in numbered blocks.

A plain subscriber gets what is emitted while it is there, from memory. A named one reads the history, which is on disk,
at its own pace: nothing waits for it in memory but what is on its way through the socket, and a reader that was away
gets what it missed. Reading and encoding happen on a thread of their own, one block at a time for each reader; the rest
runs on the I/O thread.

A reader is welcomed when its name is on disk and not before: from its welcome on nothing is missed, whatever happens.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import Protocol

from catalog.readings import SubscriberReading
from router.codecs.base import Encoder
from router.session import line
from storage.train import Train

log = logging.getLogger("aurorad.router")

READ_BYTES = 512 * 1024


class Piece(Protocol):
    """Tuples of a history; ``first`` and ``last`` are the numbers of the first and the last one."""

    @property
    def first(self) -> int: ...

    @property
    def last(self) -> int: ...

    @property
    def train(self) -> Train: ...

    @property
    def is_repeat(self) -> bool: ...


class History(Protocol):
    """Of one output; the engine's. Any thread."""

    @property
    def readable(self) -> int:
        """The highest number that may be read."""

    def subscribe(self, name: str, after: int | None, then: Callable[[str], None]) -> int:
        """The number behind which this name goes on. ``then`` hears "" when the name is on disk, or why it is not."""

    def acknowledge(self, name: str, number: int) -> None: ...

    def forget(self, name: str) -> None: ...

    def read(self, name: str, after: int, limit_bytes: int) -> Sequence[Piece]: ...


class NamedReader:
    """One connection of a named subscriber. Owner: the I/O thread."""

    def __init__(
        self,
        name: str,
        transport: asyncio.WriteTransport,
        history: History,
        encoder: Encoder,
        loop: asyncio.AbstractEventLoop,
        executor: ThreadPoolExecutor,
    ) -> None:
        self.name = name
        self.transport = transport
        self.paused = False
        self._history = history
        self._encoder = encoder
        self._loop = loop
        self._executor = executor
        self._is_reading = False
        self._is_welcome = False
        self._closed = False
        self._start = self._at = 0  # numbers: where it began, and up to where it was sent
        self._missed = 0

    def begin(self, after: int | None, nonce: str) -> None:
        def kept(why: str) -> None:  # on the committer's thread
            with suppress(RuntimeError):  # the loop is gone, and the connection with it
                self._loop.call_soon_threadsafe(self._welcome, nonce, why)

        self._start = self._at = self._history.subscribe(self.name, after, kept)

    def _welcome(self, nonce: str, why: str) -> None:
        if self._closed or self.transport.is_closing():
            return
        if why:
            self.transport.write(line(_welcome={"nonce": nonce, "after": self._at}) + line(_error=why))
            self.close()
            return
        self._is_welcome = True
        self.transport.write(line(_welcome={"nonce": nonce, "after": self._at}))
        self.pump()

    def acknowledge(self, number: int) -> None:
        self._history.acknowledge(self.name, min(number, self._at))

    def forget(self) -> None:
        self._history.forget(self.name)
        self.close()

    def close(self) -> None:
        self._closed = True
        self.transport.close()

    def pump(self) -> None:
        """Read the next block, unless one is being read, the socket is full or there is none."""
        if not self._is_welcome or self._is_reading or self.paused or self._closed or self.transport.is_closing():
            return
        if self._at < self._history.readable:
            self._is_reading = True
            future = self._executor.submit(self._read, self._at)
            future.add_done_callback(self._hop)

    def _read(self, after: int) -> tuple[list[bytes], int, int]:
        """On the history thread: blocks to send, up to which number they go, and how many are missing."""
        out: list[bytes] = []
        missed = 0
        for piece in self._history.read(self.name, after, READ_BYTES):
            if piece.first > after + 1:
                out.append(line(_gap={"from": after + 1, "to": piece.first - 1}))
                missed += piece.first - 1 - after
            out += self._block(piece)
            after = piece.last
        return out, after, missed

    def _block(self, piece: Piece) -> list[bytes]:
        encoder = self._encoder
        payload = encoder.begin() + encoder.encode(piece.train) + encoder.end()
        more = {"repeat": True} if piece.is_repeat else {}
        return [line(_batch=piece.first, tuples=piece.train.count, bytes=len(payload), **more), payload]

    def _hop(self, future: Future[tuple[list[bytes], int, int]]) -> None:
        try:
            self._loop.call_soon_threadsafe(self._have_read, future)
        except RuntimeError:
            self._closed = True  # the loop is gone, and the connection with it

    def _have_read(self, future: Future[tuple[list[bytes], int, int]]) -> None:
        self._is_reading = False
        error = future.exception()
        if error is not None:
            log.error("the history for %s cannot be read: %s", self.name, error)
            self.transport.write(line(_error=f"the history cannot be read: {error}"))
            self.close()
            return
        blocks, after, missed = future.result()
        if not self.transport.is_closing():
            self.transport.writelines(blocks)
            self._at = after
            self._missed += missed
            if blocks:
                self.pump()

    def reading(self) -> SubscriberReading:
        readable = max(self._history.readable, self._at)
        sent = self._at - self._start - self._missed
        return SubscriberReading(self.name, readable - self._start, sent, readable - self._at, self._missed)


MakeHistory = Callable[[int], History | None]
"""The history of an output by its number; None where none is kept."""
