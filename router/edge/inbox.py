"""The inbox of a connection whose stream may be shed at the edge: read on, drop by sample, decode when there is time.

While a sender is no faster than decoding, a read is decoded as it comes. Once a read finds the decode thread busy with
the one before, or rows are sampled, the bytes go through the inbox: whole lines, each with the time at which they were
read. The socket is read on meanwhile, so a sender is never held up and the time of arrival is true. Lines that wait
longer than their outputs can bear are dropped, the oldest first.

While rows are sampled, the lines wait until they fill ``FILLED_BYTES``, or for ``GATHER_NS``. Each block becomes a
train: it costs the decoder, every box and every reader a call, whatever its length. Reads of a few milliseconds, of
which a third is kept, would make trains so short that their calls cost more than their rows.

Owner: the I/O thread.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterator
from time import perf_counter_ns
from typing import Protocol

from router.codecs.base import Decoder, Received, Reject
from router.edge.gauge import OVERDUE, SAMPLED, EdgeGauge
from router.edge.sample import EdgePiece, EdgeSample
from router.line_framer import count_lines

INBOX_BYTES = 16 * 1024**2
THREAD_BYTES = 16 * 1024
"""From here on a read goes to the decode thread, so that the I/O thread reads on: a sender that is held up in between
would wait where nobody sees it."""
HICCUP = 6  # times the usual wait, while nothing is dropped
FILLED_BYTES, GATHER_NS = 256 * 1024, 10_000_000
BLOCK_BYTES, BLOCK_NS = 512 * 1024, 30_000_000
"""Reads that wait are decoded together: up to this size, and this far apart. Longer trains cost less a row."""


class DecodeThread(Protocol):
    """Runs ``work`` on the decode thread, then ``done`` with its result on the I/O thread."""

    def __call__(self, work: Callable[[], Received], done: Callable[[Received], None]) -> None: ...


class Later(Protocol):
    """Calls on the I/O thread after a number of seconds."""

    def __call__(self, seconds: float, call: Callable[[], None]) -> None: ...


class EdgeInbox:
    """``take`` receives what was decoded, and the rows that were dropped since the last call."""

    def __init__(
        self,
        gauge: EdgeGauge,
        decoder: Decoder,
        sample: EdgeSample,
        on_thread: DecodeThread,
        take: Callable[[Received, int], None],
        now_ns: Callable[[], int],
        later: Later,
    ) -> None:
        self._gauge = gauge
        self._later = later
        self._is_timed = False  # a call of ``_gathered`` is due
        self._decoder = decoder
        self._sample = sample
        self._on_thread = on_thread
        self._take = take
        self._now_ns = now_ns
        self._waiting: deque[tuple[EdgePiece, int]] = deque()  # with the time of arrival
        self._waiting_bytes = 0
        self._decoding_bytes = 0
        self._lines = 1  # the next line of the decoder, which does not see the lines that are dropped
        self._skips = [(1, 0, 0)]  # from this line of the decoder on: rows and bytes dropped before it
        self._dropped = 0  # rows, not handed to ``take`` yet
        self._is_first = True  # the first read is never thinned: it may hold a header
        self.is_busy = False

    def receive(self, data: bytes, arrival_ns: int) -> None:
        share = 1.0 if self._is_first else self._gauge.share
        self._is_first = False
        if share >= 1.0 and not self.is_busy and not self._waiting and len(data) < THREAD_BYTES:
            self._take(self._decode([(EdgePiece(self._sample.whole(data)), arrival_ns)]), 0)
            return
        for piece in self._sample.cut(data, share):
            self._drop(SAMPLED, piece.skipped_rows)
            self._waiting.append((piece, arrival_ns))
            self._waiting_bytes += len(piece.data)
        self._drop_overdue()
        if not self.is_busy:
            self._submit_when_filled()

    @property
    def undecoded_bytes(self) -> int:
        """Return the bytes that wait, those that are being decoded and those of an unfinished line."""
        return self._waiting_bytes + self._decoding_bytes + self._sample.held_bytes

    def end(self, arrival_ns: int) -> Received:
        """Decode the rest, after the sender has closed and nothing is busy."""
        pieces, self._waiting = list(self._waiting), deque()
        self._waiting_bytes = 0
        if rest := self._sample.end():
            pieces.append((EdgePiece(rest), arrival_ns))
        first = self._decode(pieces) if pieces else Received([], [])
        last = self._decoder.end(arrival_ns)
        return Received([*first.trains, *last.trains], [*first.rejects, *self._placed(last.rejects)])

    def take_dropped(self) -> int:
        """Return the rows that were dropped since the last call."""
        dropped, self._dropped = self._dropped, 0
        return dropped

    def _drop(self, reason: str, rows: int) -> None:
        if rows:
            self._gauge.drop(reason, rows)
            self._dropped += rows

    def _drop_overdue(self) -> None:
        """Drop the lines that have waited too long, or do not fit. The newest read stays. While all rows are decoded, a
        short wait is a hiccup and no overload: then lines may wait longer."""
        at_least_ns = self._now_ns() - self._gauge.wait_ns * (1 if self._gauge.share < 1.0 else HICCUP)
        while len(self._waiting) > 1 and (self._waiting[0][1] < at_least_ns or self._waiting_bytes > INBOX_BYTES):
            piece, _ = self._waiting[0]
            if piece.data and not piece.data.endswith(b"\n"):
                return  # the beginning of a line above the limit: the decoder must see it, to refuse the line
            self._waiting.popleft()
            self._waiting_bytes -= len(piece.data)
            rows = count_lines(piece.data)
            self._drop(OVERDUE, rows)
            after, arrival_ns = self._waiting[0]
            gone = (piece.skipped_rows + rows, piece.skipped_bytes + len(piece.data))
            self._waiting[0] = (
                after._replace(skipped_rows=after.skipped_rows + gone[0], skipped_bytes=after.skipped_bytes + gone[1]),
                arrival_ns,
            )

    def _submit_when_filled(self) -> None:
        """Decode what waits, once it is worth a train."""
        if not self._waiting:
            return
        gather_ns = min(GATHER_NS, self._gauge.wait_ns // 2)
        left_ns = self._waiting[0][1] + gather_ns - self._now_ns()
        if self._gauge.share >= 1.0 or self._waiting_bytes >= FILLED_BYTES or left_ns <= 0:
            self._submit()
        elif not self._is_timed:
            self._is_timed = True
            self._later(left_ns / 1e9, self._gathered)

    def _gathered(self) -> None:
        self._is_timed = False
        if not self.is_busy:
            self._submit_when_filled()

    def _submit(self) -> None:
        pieces, self._waiting = list(self._waiting), deque()
        self._decoding_bytes, self._waiting_bytes = self._waiting_bytes, 0
        self.is_busy = True
        self._on_thread(lambda: self._decode(pieces), self._decoded)

    def _decoded(self, received: Received) -> None:
        self.is_busy = False
        self._decoding_bytes = 0
        dropped = self.take_dropped()
        if self._waiting:
            self._drop_overdue()
            self._submit_when_filled()
        self._take(received, dropped)

    def _decode(self, pieces: list[tuple[EdgePiece, int]]) -> Received:
        """Decode pieces, in order. On one thread at a time."""
        out = Received([], [])
        begun_ns = perf_counter_ns()
        for data, arrival_ns in self._blocks(pieces):
            got = self._decoder.receive(data, arrival_ns)
            out.trains.extend(got.trains)
            out.rejects.extend(self._placed(got.rejects))
        del self._skips[:-1]
        if pieces:
            self._gauge.latest_wait_ns = max(0, self._now_ns() - pieces[0][1])
        self._gauge.decode_ns += perf_counter_ns() - begun_ns
        return out

    def _blocks(self, pieces: list[tuple[EdgePiece, int]]) -> Iterator[tuple[bytes, int]]:
        """Yield the bytes of pieces that came about the same time together, and note what was dropped between them."""
        block: list[bytes] = []
        size, first_ns = 0, 0
        for piece, arrival_ns in pieces:
            if piece.skipped_rows:
                _, rows, nbytes = self._skips[-1]
                self._skips.append((self._lines, rows + piece.skipped_rows, nbytes + piece.skipped_bytes))
            if not piece.data:
                continue
            if block and (size + len(piece.data) > BLOCK_BYTES or arrival_ns - first_ns > BLOCK_NS):
                yield b"".join(block), first_ns
                block, size = [], 0
            if not block:
                first_ns = arrival_ns
            block.append(piece.data)
            size += len(piece.data)
            self._lines += count_lines(piece.data)
        if block:
            yield block[0] if len(block) == 1 else b"".join(block), first_ns

    def _placed(self, rejects: list[Reject]) -> list[Reject]:
        """Return the rejects with their places among all bytes, those that were dropped included."""
        found = []
        for r in rejects:
            at = bisect_right(self._skips, r.line, key=lambda skip: skip[0]) - 1
            _, rows, nbytes = self._skips[at]
            found.append(r._replace(line=r.line + rows, offset=r.offset + nbytes))
        return found
