"""A named reader: it gets an output's history from where it stopped, in numbered blocks.

A plain subscriber gets, from memory, the tuples that are emitted while it is connected. A named reader reads the
history, which is on disk, at its own pace. It needs no memory but for the blocks on their way through the socket, and
after an absence it gets the tuples that it missed. The history thread reads and encodes, one block at a time for each
reader. Everything else runs on the I/O thread.

The server sends the welcome only when the name is on disk. After the welcome the reader misses nothing, even when the
server crashes.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress

from catalog.readings import SubscriberReading
from router.boundary import NumberedTrain, OutputHistory
from router.client_protocol import encode_line
from router.codecs.base import Encoder

log = logging.getLogger("aurorad.router")

READ_BYTES = 512 * 1024
FIRST_READ_BYTES = 16 * 1024
"""All readers share one history thread. A reader's first read is short, and each one after it twice as long: peers that
connect, ask for everything and go must not keep the others waiting."""


class NamedReader:
    """One connection of a named subscriber. Owner: the I/O thread."""

    def __init__(
        self,
        name: str,
        transport: asyncio.WriteTransport,
        history: OutputHistory,
        encoder: Encoder,
        loop: asyncio.AbstractEventLoop,
        executor: ThreadPoolExecutor,
        most_bytes: Callable[[], int] = lambda: READ_BYTES,
    ) -> None:
        """``most_bytes``: of one read, now."""
        self.name = name
        self.transport = transport
        self.paused = False
        self.may_be_gone = False  # it has closed its sending side: it can acknowledge nothing any more
        self._history = history
        self._encoder = encoder
        self._loop = loop
        self._executor = executor
        self._most_bytes = most_bytes
        self._is_reading = False
        self._read_bytes = FIRST_READ_BYTES
        self._is_welcomed = False
        self._closed = False
        self._start = self._sent_up_to = 0  # numbers of tuples: the one before the first sent, and the last sent
        self._missed = 0  # tuples that the history no longer had

    def begin(self, after: int | None, nonce: str) -> None:
        """Subscribe by name. The welcome follows when the name is on disk."""

        def is_on_disk(why: str) -> None:  # on the committer's thread
            with suppress(RuntimeError):  # the loop has ended, and the connection with it
                self._loop.call_soon_threadsafe(self._welcome, nonce, why)

        self._start = self._sent_up_to = self._history.subscribe(self.name, after, is_on_disk)

    def _welcome(self, nonce: str, why: str) -> None:
        """Welcome the reader and begin to send; with ``why``, the reason why the name is not on disk, close instead."""
        if self._closed or self.transport.is_closing():
            return
        if why:
            self.transport.write(
                encode_line(_welcome={"nonce": nonce, "after": self._sent_up_to}) + encode_line(_error=why)
            )
            self.close()
            return
        self._is_welcomed = True
        self.transport.write(encode_line(_welcome={"nonce": nonce, "after": self._sent_up_to}))
        self.pump()

    def acknowledge(self, number: int) -> None:
        self._history.acknowledge(self.name, min(number, self._sent_up_to))

    def forget(self) -> None:
        """Give the name up, as the reader asked, and close."""
        self._history.forget(self.name)
        self.close()

    def close_as_replaced(self) -> None:
        """Tell this reader that another connection reads under its name now, and close."""
        if not self.transport.is_closing():
            self.transport.write(encode_line(_error="another connection reads under this name now"))
        self.close()

    def close(self) -> None:
        self._closed = True
        self.transport.close()

    def pump(self) -> None:
        """Have the next blocks read, unless a read is under way, the socket is full or there is nothing to read."""
        if not self._is_welcomed or self._is_reading or self.paused or self._closed or self.transport.is_closing():
            return
        if self._sent_up_to < self._history.readable:
            self._is_reading = True
            future = self._executor.submit(self._read, self._sent_up_to)
            future.add_done_callback(self._return_to_loop)

    def _read(self, after: int) -> tuple[list[bytes], int, int]:
        """Return blocks to send, their last tuple's number, and how many tuples are missing. On the history thread."""
        out: list[bytes] = []
        missed = 0
        if self._closed or self.transport.is_closing():  # since the read was asked for
            return out, after, missed
        for piece in self._history.read(self.name, after, self._read_bytes):
            if piece.first > after + 1:
                out.append(encode_line(_gap={"from": after + 1, "to": piece.first - 1}))
                missed += piece.first - 1 - after
            out += self._encode_block(piece)
            after = piece.last
        return out, after, missed

    def _encode_block(self, piece: NumberedTrain) -> list[bytes]:
        encoder = self._encoder
        payload = encoder.begin() + encoder.encode(piece.train) + encoder.end()
        more = {"repeat": True} if piece.is_repeat else {}
        return [encode_line(_batch=piece.first, tuples=piece.train.count, bytes=len(payload), **more), payload]

    def _return_to_loop(self, future: Future[tuple[list[bytes], int, int]]) -> None:
        try:
            self._loop.call_soon_threadsafe(self._send_blocks, future)
        except RuntimeError:
            self._closed = True  # the loop has ended, and the connection with it

    def _send_blocks(self, future: Future[tuple[list[bytes], int, int]]) -> None:
        self._is_reading = False
        error = future.exception()
        if error is not None:
            log.error("cannot read the history for the reader %s: %s", self.name, error)
            self.transport.write(encode_line(_error=f"the server cannot read the history: {error}"))
            self.close()
            return
        blocks, after, missed = future.result()
        if not self.transport.is_closing():
            self.transport.writelines(blocks)
            self._sent_up_to = after
            self._missed += missed
            self._read_bytes = min(2 * self._read_bytes, self._most_bytes())
            if blocks:
                self.pump()

    def reading(self) -> SubscriberReading:
        readable = max(self._history.readable, self._sent_up_to)
        sent = self._sent_up_to - self._start - self._missed
        return SubscriberReading(self.name, readable - self._start, sent, readable - self._sent_up_to, self._missed)
