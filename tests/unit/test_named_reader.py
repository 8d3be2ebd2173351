"""Named readers share one history thread: what a peer that has gone, or goes at once, may cost the others."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any

from router.codecs.ndjson import CODEC
from router.named_reader import FIRST_READ_BYTES, READ_BYTES, NamedReader
from tests.unit.test_train import SCHEMA


class Transport:
    def __init__(self) -> None:
        self.closing = False

    def is_closing(self) -> bool:
        return self.closing

    def write(self, data: bytes) -> None: ...

    def writelines(self, blocks: list[bytes]) -> None: ...

    def close(self) -> None:
        self.closing = True


class History:
    """Has a thousand tuples, and notes what is read of it."""

    readable = 1_000

    def __init__(self) -> None:
        self.reads: list[int] = []

    def subscribe(self, name: str, after: int | None, then: Any) -> int:
        then("")
        return 0

    def read(self, name: str, after: int, limit_bytes: int) -> list[Any]:
        self.reads.append(limit_bytes)
        return []


class Now:
    """The loop and the history thread: everything runs when ``step`` is called."""

    def __init__(self) -> None:
        self.waiting: list[Any] = []

    def call_soon_threadsafe(self, work: Any, *arguments: Any) -> None:
        self.waiting.append(lambda: work(*arguments))

    def submit(self, work: Any, *arguments: Any) -> Future[Any]:
        future: Future[Any] = Future()
        self.waiting.append(lambda: future.set_result(work(*arguments)))
        return future

    def step(self) -> None:
        self.waiting.pop(0)()


def reader(history: History, transport: Transport, now: Now) -> NamedReader:
    made: Any = NamedReader
    found: NamedReader = made("r", transport, history, CODEC.encoder(SCHEMA), now, now)
    found.begin(0, "n")
    now.step()  # the welcome
    return found


def test_what_was_asked_for_by_a_peer_that_has_gone_is_not_read() -> None:
    history, transport, now = History(), Transport(), Now()
    reader(history, transport, now)
    transport.closing = True
    now.step()
    assert not history.reads


def test_a_reader_begins_with_a_short_read_and_goes_on_with_longer_ones() -> None:
    history, now = History(), Now()
    found = reader(history, Transport(), now)
    for _ in range(8):
        now.step()  # the read
        now.step()  # back on the loop
        found.pump()
    assert history.reads[:2] == [FIRST_READ_BYTES, 2 * FIRST_READ_BYTES]
    assert history.reads[-1] == READ_BYTES
