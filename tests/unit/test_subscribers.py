"""Outlets: who gets what, what is dropped for whom, and that every tuple is accounted for.

Real sockets (a pair of them, no network), the real loop, no clock.
"""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import uvloop

from catalog.schema import Schema
from router.codecs import CODECS
from router.plain_reader import EncodedAccount, Handed, Subscriber
from router.reader_connection import SinkConnection
from router.subscribers import ALL_BUFFERS, Outlet, Wake
from storage.train import Train

SCHEMA = Schema.of(n="bigint", s="string")
BUFFER_BYTES = 200_000


def train(*numbers: int, text: str = "x") -> Train:
    return Train.from_pylists(SCHEMA, {"n": list(numbers), "s": [text] * len(numbers)}, 1)


class Host:
    """What a sink connection needs of a server."""

    def register(self, connection: Any) -> bool:
        return True

    def unregister(self, connection: Any) -> None:
        pass


class Bench:
    """An outlet on a running loop, and readers at the other end of socket pairs."""

    def __init__(self, when_slow: str = "drop", format: str = "ndjson") -> None:
        self.loop = asyncio.get_running_loop()
        self.blocked: list[bool] = []
        self.outlet = Outlet(
            0,
            "out",
            encoder=CODECS[format].encoder(SCHEMA, "ns"),
            wake=Wake(self.loop),
            buffer_bytes=BUFFER_BYTES,
            when_slow=when_slow,
            gate=lambda _, blocked: self.blocked.append(blocked),
        )

    async def connect(self) -> socket.socket:
        ours, theirs = socket.socketpair()
        for end in (ours, theirs):
            end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 16_384)
            end.setblocking(False)
        await self.loop.create_connection(lambda: SinkConnection(Host(), self.outlet), sock=ours)  # type: ignore[arg-type]
        return theirs

    async def read_until(self, reader: socket.socket, condition: Callable[[bytes], bool]) -> bytes:
        data = b""
        while not condition(data):
            piece = await asyncio.wait_for(self.loop.sock_recv(reader, 1 << 20), 30)
            if not piece:
                break
            data += piece
        return data

    async def settle(self, condition: Callable[[], bool]) -> None:
        for _ in range(3000):
            if condition():
                return
            await asyncio.sleep(0.005)
        raise AssertionError("it did not come to pass")

    def check_laws(self) -> None:
        for r in self.outlet.readings():
            assert r.offered == r.delivered + r.pending + r.dropped, r


def run(test: Callable[[], Awaitable[None]]) -> None:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(test())  # type: ignore[arg-type]


def test_every_subscriber_gets_every_tuple_from_its_coming() -> None:
    async def test() -> None:
        bench = Bench()
        bench.outlet.deliver(train(0))
        first = await bench.connect()
        bench.outlet.deliver(train(1, 2))
        assert await bench.read_until(first, lambda d: d.count(b"\n") == 2) == b'{"n":1,"s":"x"}\n{"n":2,"s":"x"}\n'
        second = await bench.connect()
        bench.outlet.deliver(train(3))
        for reader in (first, second):
            assert await bench.read_until(reader, lambda d: b"\n" in d) == b'{"n":3,"s":"x"}\n'
        assert bench.outlet.emitted == 4
        assert sorted(r.offered for r in bench.outlet.readings()) == [1, 3]
        bench.check_laws()

    run(test)


def test_nobody_listens_nothing_is_encoded() -> None:
    class Unwilling:
        def encode(self, train: Train) -> bytes:
            raise AssertionError("encoded for nobody")

    outlet = Outlet(0, "out", encoder=Unwilling())  # type: ignore[arg-type]
    outlet.deliver(train(1))
    assert outlet.emitted == 1 and not outlet.has_subscribers


def test_one_encoding_for_all_subscribers() -> None:
    async def test() -> None:
        bench = Bench()
        calls = []
        encode = bench.outlet._encoder.encode  # type: ignore[union-attr]
        bench.outlet._encoder.encode = lambda t: calls.append(t) or encode(t)  # type: ignore
        readers = [await bench.connect() for _ in range(5)]
        bench.outlet.deliver(train(1))
        for reader in readers:
            await bench.read_until(reader, lambda d: b"\n" in d)
        assert len(calls) == 1

    run(test)


def test_a_header_comes_first_and_once() -> None:
    async def test() -> None:
        bench = Bench(format="csv")
        reader = await bench.connect()
        bench.outlet.deliver(train(1))
        bench.outlet.deliver(train(2))
        assert await bench.read_until(reader, lambda d: d.count(b"\n") == 3) == b"n,s\n1,x\n2,x\n"

    run(test)


def test_a_slow_reader_loses_whole_trains_and_is_told() -> None:
    """It stops reading, falls behind, reads again: what it gets, with the gaps, adds up; the fast one loses nothing."""

    async def test() -> None:
        bench = Bench("drop")
        slow = await bench.connect()
        fast = await bench.connect()
        fast_task = asyncio.create_task(bench.read_until(fast, lambda d: d.count(b"\n") == 3000))
        for i in range(3000):
            bench.outlet.deliver(train(i, text="y" * 400))
            if i % 50 == 0:  # the fast one is given time to read
                await bench.settle(lambda: bench.outlet.readings()[1].pending_bytes == 0)
        got_fast = await fast_task
        slow_reading = next(r for r in bench.outlet.readings() if r.dropped)
        assert slow_reading.pending_bytes <= BUFFER_BYTES + 600_000  # its buffer, and what the transport holds
        bench.check_laws()
        numbers = [int(line.split(b",")[0][5:]) for line in got_fast.splitlines()]
        assert numbers == list(range(3000))

        got = await bench.read_until(slow, lambda d: b"_gap" in d)
        bench.outlet.deliver(train(9999))
        got += await bench.read_until(slow, lambda d: b"9999" in d)
        check_with_gaps(got, 3000)
        await bench.settle(lambda: bench.outlet.is_drained)
        bench.check_laws()
        assert all(r.pending == 0 for r in bench.outlet.readings())

    run(test)


def check_with_gaps(data: bytes, count: int) -> None:
    """Every number is there or inside a gap, in order."""
    import json

    expected = 0
    for line in data.splitlines():
        row = json.loads(line)
        if "_gap" in row:
            expected += row["_gap"]
        elif row["n"] < count:
            assert row["n"] == expected
            expected += 1
    assert expected == count


def test_block_drops_nothing_and_says_so() -> None:
    async def test() -> None:
        bench = Bench("block")
        reader = await bench.connect()
        sent = 0
        while not bench.blocked:
            bench.outlet.deliver(train(sent, text="z" * 1000))
            sent += 1
            await asyncio.sleep(0)
            assert sent < 10_000
        assert bench.blocked == [True] and bench.outlet.blocked
        for _ in range(3):  # what was already on its way is taken
            bench.outlet.deliver(train(sent, text="z"))
            sent += 1
        got = await bench.read_until(reader, lambda d: d.count(b"\n") == sent)
        assert [int(line.split(b",")[0][5:]) for line in got.splitlines()] == list(range(sent))
        await bench.settle(lambda: bench.outlet.is_drained)
        assert bench.blocked == [True, False]
        bench.check_laws()

    run(test)


def test_a_blocked_outlet_is_free_again_when_its_reader_goes() -> None:
    async def test() -> None:
        bench = Bench("block")
        reader = await bench.connect()
        while not bench.blocked:
            bench.outlet.deliver(train(1, text="z" * 1000))
            await asyncio.sleep(0)
        reader.close()
        await bench.settle(lambda: bench.blocked == [True, False])
        [gone] = bench.outlet.readings()
        assert gone.dropped > 0
        bench.check_laws()

    run(test)


def test_disconnect_cuts_only_the_slow_one() -> None:
    async def test() -> None:
        bench = Bench("disconnect")
        slow = await bench.connect()
        fast = await bench.connect()
        quick = bench.outlet._subscribers[1]
        task = asyncio.create_task(bench.read_until(fast, lambda d: d.count(b"\n") == 2000))
        for i in range(2000):
            bench.outlet.deliver(train(i, text="y" * 400))
            if i % 50 == 0:
                await bench.settle(lambda: bench.outlet.readings() is not None and quick.pending == 0)
        assert (await task).count(b"\n") == 2000
        await bench.settle(lambda: len(bench.outlet.readings()) == 2)
        gone = bench.outlet.readings()[-1]
        assert gone.dropped > 0
        bench.check_laws()
        slow.close()

    run(test)


def test_many_deliveries_are_one_hop() -> None:
    """A worker that delivers a hundred trains between two turns of the loop wakes it once."""

    async def test() -> None:
        bench = Bench()
        reader = await bench.connect()
        hops = []
        loop = bench.loop
        real = loop.call_soon_threadsafe

        class Counting:
            def call_soon_threadsafe(self, *args: Any) -> Any:
                hops.append(1)
                return real(*args)

        bench.outlet._wake.loop = Counting()  # type: ignore
        worker = threading.Thread(target=lambda: [bench.outlet.deliver(train(i)) for i in range(100)])
        worker.start()
        worker.join()  # on purpose on the loop's thread: it cannot turn meanwhile
        got = await bench.read_until(reader, lambda d: d.count(b"\n") == 100)
        assert got.count(b"\n") == 100
        assert len(hops) == 1

    run(test)


def test_callbacks_get_trains_and_can_leave() -> None:
    outlet = Outlet(0, "out")
    got: list[int] = []
    stop = outlet.subscribe(lambda t: got.append(t.count))
    outlet.deliver(train(1, 2))
    stop()
    outlet.deliver(train(3))
    assert got == [2]
    [reading] = outlet.readings()
    assert (reading.offered, reading.delivered) == (2, 2)


def test_a_callback_that_fails_is_removed_and_the_others_go_on(caplog: pytest.LogCaptureFixture) -> None:
    outlet = Outlet(0, "out")
    got: list[int] = []

    def bad(_: Train) -> None:
        raise ValueError("no")

    outlet.subscribe(bad)
    outlet.subscribe(lambda t: got.append(t.count))
    outlet.deliver(train(1))
    outlet.deliver(train(2))
    assert got == [1, 1]
    assert "failed and was removed" in caplog.text


def test_punctuations_reach_nobody() -> None:
    outlet = Outlet(0, "out")
    got: list[Train] = []
    outlet.subscribe(got.append)
    outlet.deliver(Train.empty(SCHEMA, watermark_ns=5))
    assert got == [] and outlet.emitted == 0


def test_pending_counts_what_the_transport_holds() -> None:
    class Transport:
        buffered = 10

        def get_write_buffer_size(self) -> int:
            return self.buffered

        def is_closing(self) -> bool:
            return False

    transport = Transport()
    account = EncodedAccount()
    subscriber = Subscriber("peer", transport, account)  # type: ignore[arg-type]
    subscriber.offered = 5
    subscriber.handed_bytes = 20
    chunks = [account.chunk(b"x" * 10, tuples, 0) for tuples in (2, 3)]
    for number, chunk in enumerate(chunks):
        account.hold(chunk)
        subscriber.in_transport.append(Handed(10 * (number + 1), chunk.tuples, 0, (chunk,)))
    subscriber.count_delivered()
    assert (subscriber.delivered, subscriber.pending, account.nbytes) == (2, 3, 10)
    transport.buffered = 0
    subscriber.count_delivered()
    assert (subscriber.delivered, subscriber.pending, account.nbytes) == (5, 0, 0)


def test_readers_that_stopped_at_different_places_hold_two_buffers_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each alone may hold its buffer. Together they would hold as many buffers as there are readers."""

    monkeypatch.setattr("router.subscribers.WRITES_BYTES", 64 * 1024)

    async def test() -> None:
        bench = Bench()
        text, readers = "y" * 900, []
        for number in range(12):  # each comes a buffer later than the one before, and reads nothing
            readers.append(await bench.connect())
            for _ in range(12):
                bench.outlet.deliver(train(*range(20 * number, 20 * number + 20), text=text))
                await asyncio.sleep(0)
            held = bench.outlet._account.nbytes
            assert held <= ALL_BUFFERS * (BUFFER_BYTES + 25_000) + len(readers) * 16 * 1024, (number, held)
            bench.check_laws()
        good = await bench.connect()
        bench.outlet.deliver(train(7, text="last"))
        assert await bench.read_until(good, lambda d: b"last" in d)
        last = await bench.read_until(readers[-1], lambda d: b"last" in d)  # now it reads: the newest is still there
        rows = last.count(b'"n"')
        gaps = sum([int(line[8:-1]) for line in last.splitlines() if line.startswith(b'{"_gap":')])
        assert rows + gaps == 12 * 20 + 1, "what it did not get is in the gap marker"
        bench.check_laws()

    run(test)
