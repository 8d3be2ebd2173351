"""The server on real sockets of loopback: who may come, what is refused, and what stops the reading.

No engine behind it: what is admitted goes into a list, or straight to the outlet.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pyarrow as pa
import pyarrow.ipc as pa_ipc
import pytest
import uvloop

from catalog.config.models import TcpSink, TcpSource
from catalog.errors import ListenError
from catalog.network import Arc, Network, Output, PortRef, Stream
from catalog.qos import QoS
from catalog.schema import Schema
from router.boundary import Origin
from router.limits import Limits
from router.outlets import make_outlets
from router.server import Server
from router.subscribers import Wake
from storage.source_numbers import SourceNumbers
from storage.train import Train

SCHEMA = Schema.of(n="bigint", s="string?")
ANY_PORT = "127.0.0.1:0"


def network(format: str = "ndjson", source: str = ANY_PORT, **sink: Any) -> Network:
    stream = Stream(
        0, "trades", SCHEMA, (0,), None, 0, "block", TcpSource.model_validate({"tcp": source, "format": format})
    )
    arc = Arc(0, "trades->out", PortRef(stream=0), SCHEMA, output=0)
    out = TcpSink.model_validate({"tcp": ANY_PORT, "format": format, "timestamps": "ns", **sink})
    return Network((stream,), (), (arc,), (Output(0, "out", SCHEMA, 0, QoS(), out),))


class Bench:
    """A server whose clock and room are the test's: the entrance (``router/boundary.py``) is this object."""

    refusal = ""
    keeps_batches = False

    def __init__(self, net: Network | None = None, **options: Any) -> None:
        self.trains: list[Train] = []
        self.has_room = True
        self.now_ns = 1
        self.forward = False
        self._pairs: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []
        self.numbers = SourceNumbers(1)
        net = net or network()
        wake = Wake(asyncio.get_running_loop())
        outlets = make_outlets(net, wake, lambda output, blocked: None)
        self.server = Server(net, wake, self, outlets, now_ns=lambda: self.now_ns, **options)  # type: ignore[arg-type]

    def admit(self, stream: int, train: Train, origin: Origin) -> bool:
        self.trains.append(train)
        if self.forward:
            self.server.outlets[0].deliver(train)
        return True

    def may_read(self, stream: int) -> bool:
        return self.has_room

    def when_room(self, listener: Callable[[], None]) -> None: ...

    @property
    def rows(self) -> list[Any]:
        return [n for t in self.trains for n in t.to_pylist(0)]

    async def sender(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await self._connect("stream trades")

    async def reader(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await self._connect("output out")

    async def _connect(self, listener: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        pair = await asyncio.open_connection(*self.server.address(listener))
        self._pairs.append(pair)  # a writer that is forgotten closes
        return pair

    async def until(self, condition: Callable[[], bool]) -> None:
        for _ in range(4000):
            if condition():
                return
            await asyncio.sleep(0.005)
        raise AssertionError("it did not come to pass")


def run(test: Callable[[], Awaitable[None]]) -> None:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(test())  # type: ignore[arg-type]


def lines(*numbers: int) -> bytes:
    return b"".join(b'{"n":%d}\n' % n for n in numbers)


def test_good_lines_pass_bad_ones_are_kept_with_their_place() -> None:
    async def test() -> None:
        bench = Bench()
        await bench.server.start()
        _, writer = await bench.sender()
        writer.write(lines(1) + b"nonsense\n" + lines(2) + b'{"n":"x"}\n{"n":3}')  # the last without its newline
        writer.write_eof()
        await bench.until(lambda: bench.rows == [1, 2, 3])
        port = bench.server.ports[0]
        assert port.received == 5 and port.rejected == {"malformed": 1, "wrong_type": 1}
        letters = bench.server.dead_letters.to_json()
        assert [(x["line"], x["reason"], x["stream"]) for x in letters] == [
            (4, "wrong_type", "trades"),
            (2, "malformed", "trades"),
        ]
        assert json.dumps(letters)
        await bench.until(lambda: port.connections == 0)
        await bench.server.close()

    run(test)


def test_through_and_out() -> None:
    async def test() -> None:
        bench = Bench()
        bench.forward = True
        await bench.server.start()
        reader, _ = await bench.reader()
        _, writer = await bench.sender()
        await bench.until(lambda: bench.server.outlets[0].has_subscribers)
        writer.write(lines(1, 2))
        assert await reader.readline() == b'{"n":1,"s":null}\n'
        assert await reader.readline() == b'{"n":2,"s":null}\n'
        assert {int(t.arrival_ns[0]) for t in bench.trains} == {1}
        await bench.server.close()

    run(test)


@pytest.mark.parametrize("format", ["ndjson", "csv", "arrow"])
def test_large_and_small_reads_of_many_connections_keep_their_order(format: str) -> None:
    """Large reads go to the decode thread, small ones do not; each connection's tuples stay in order."""

    async def test() -> None:
        bench = Bench(network(format))
        await bench.server.start()
        count, each = 4, 20_000
        writers = [(await bench.sender())[1] for _ in range(count)]
        for number, writer in enumerate(writers):
            writer.write(encoded(format, range(number * each, (number + 1) * each)))
            writer.write_eof()
        await bench.until(lambda: len(bench.rows) == count * each)
        for number in range(count):
            mine = [n for n in bench.rows if number * each <= n < (number + 1) * each]
            assert mine == list(range(number * each, (number + 1) * each))
        assert bench.server.ports[0].received == count * each
        await bench.server.close()

    run(test)


def encoded(format: str, numbers: range) -> bytes:
    if format == "ndjson":
        return lines(*numbers)
    if format == "csv":
        return b"n\n" + b"".join(b"%d\n" % n for n in numbers)
    sink = pa.BufferOutputStream()
    batch = pa.record_batch([pa.array(numbers, pa.int64())], names=["n"])
    with pa_ipc.new_stream(sink, batch.schema) as writer:
        for start in range(0, len(numbers), 777):
            writer.write_batch(batch.slice(start, 777))
    return sink.getvalue().to_pybytes()


@pytest.mark.parametrize("format", ["ndjson", "csv", "arrow"])
def test_rows_dropped_undecoded_are_counted_and_the_rest_keeps_its_order(format: str) -> None:
    async def test() -> None:
        bench = Bench(network(format), edge_wait_ns={0: 10**18})
        await bench.server.start()
        _, writer = await bench.sender()
        port, data = bench.server.ports[0], encoded(format, range(200_000))
        writer.write(data[:400])
        await bench.until(lambda: port.received_bytes == 400)
        port.edge.share = 0.25
        writer.write(data[400:])
        writer.write_eof()
        await bench.until(lambda: port.received + sum(port.edge.dropped.values()) == 200_000)
        assert len(bench.rows) == port.received and bench.rows == sorted(bench.rows)
        assert 0.1 < len(bench.rows) / 200_000 < 0.5
        await bench.server.close()

    run(test)


def test_another_schema_is_one_clear_error_and_the_end() -> None:
    async def test() -> None:
        bench = Bench(network("arrow"))
        await bench.server.start()
        reader, writer = await bench.sender()
        writer.write(pa.schema([("m", pa.string())]).serialize().to_pybytes())
        assert await reader.read() == b"error: the schema does not match: field n is missing\n"
        assert bench.server.ports[0].rejected == {"wrong_schema": 1}
        writer.close()
        await bench.server.close()

    run(test)


def test_a_port_in_use_names_the_listener() -> None:
    async def test() -> None:
        first = Bench()
        await first.server.start()
        taken = "{}:{}".format(*first.server.address("stream trades"))
        second = Bench(network(source=taken))
        with pytest.raises(ListenError, match=f"stream trades: cannot listen on {taken}: the port is in use"):
            await second.server.start()
        await first.server.close()

    run(test)


def test_no_room_stops_every_reading_until_there_is() -> None:
    async def test() -> None:
        bench = Bench()
        await bench.server.start()
        _, early = await bench.sender()
        bench.has_room = False
        early.write(lines(1))
        await bench.until(lambda: bench.rows == [1])
        _, late = await bench.sender()
        early.write(lines(2))
        late.write(lines(3))
        await asyncio.sleep(0.05)
        assert bench.rows == [1]
        bench.server.room_again()  # it was taken again meanwhile: nothing moves
        await asyncio.sleep(0.05)
        assert bench.rows == [1]
        bench.has_room = True
        await asyncio.get_running_loop().run_in_executor(None, bench.server.room_again)
        await bench.until(lambda: sorted(bench.rows) == [1, 2, 3])
        await bench.server.close()

    run(test)


def test_a_full_house_refuses_and_the_silent_make_way() -> None:
    async def test() -> None:
        bench = Bench(limits=Limits(connections=3))
        await bench.server.start()
        silent = [await bench.sender() for _ in range(2)]
        _, speaker = await bench.sender()
        speaker.write(lines(1))
        await bench.until(lambda: bench.rows == [1])
        refused, _ = await bench.sender()
        assert await refused.read() == b""  # nobody has had ten seconds yet
        assert bench.server.places.refused == 1
        bench.now_ns += 11 * 10**9
        _, newcomer = await bench.sender()
        newcomer.write(lines(2))
        await bench.until(lambda: bench.rows == [1, 2])
        assert bench.server.places.evicted == 1
        assert await silent[0][0].read() == b""
        speaker.write(lines(3))
        await bench.until(lambda: bench.rows == [1, 2, 3])
        await bench.server.close()

    run(test)


def test_a_line_in_many_small_pieces_costs_only_its_bytes() -> None:
    async def test() -> None:
        bench = Bench()
        await bench.server.start()
        _, slow = await bench.sender()
        _, other = await bench.sender()
        for i, byte in enumerate(lines(7)):
            slow.write(bytes([byte]))
            other.write(lines(1000 + i))
            await bench.until(lambda i=i: 1000 + i in bench.rows)
        await bench.until(lambda: 7 in bench.rows)
        await bench.server.close()

    run(test)


def test_a_reader_that_never_reads_holds_up_nobody() -> None:
    async def test() -> None:
        bench = Bench(network(buffer="64KiB"))
        bench.forward = True
        await bench.server.start()
        _, deaf_writer = await bench.reader()
        deaf_writer.transport.pause_reading()
        reader, _ = await bench.reader()
        await bench.until(lambda: len(bench.server.outlets[0].readings()) == 2)
        _, writer = await bench.sender()
        total = 60_000
        writer.write(b"".join(b'{"n":%d,"s":"%b"}\n' % (i, b"x" * 100) for i in range(total)))
        last = b""
        while f'"n":{total - 1},'.encode() not in last:
            last = last[-200:] + await asyncio.wait_for(reader.read(1 << 20), 30)
        await bench.until(lambda: sum(r.dropped for r in bench.server.outlets[0].readings()) > 0)
        for r in bench.server.outlets[0].readings():
            assert r.offered == r.delivered + r.pending + r.dropped == total
        await bench.server.close()

    run(test)


def test_stop_reading_then_flush_leaves_nothing_behind() -> None:
    async def test() -> None:
        bench = Bench()
        bench.forward = True
        await bench.server.start()
        reader, _ = await bench.reader()
        await bench.until(lambda: bench.server.outlets[0].has_subscribers)
        _, writer = await bench.sender()
        writer.write(lines(*range(50_000)))
        await bench.until(lambda: bool(bench.rows))
        bench.server.stop_reading()
        drain = asyncio.create_task(reader.read(-1))
        assert await bench.server.flush(20)
        taken = len(bench.rows)
        assert bench.server.ports[0].received == taken
        with pytest.raises(OSError):
            await bench.sender()
        await bench.server.close()
        assert (await drain).count(b"\n") == taken
        assert len(bench.rows) == taken

    run(test)


def test_a_subscriber_that_half_closes_still_reads() -> None:
    async def test() -> None:
        bench = Bench()
        bench.forward = True
        await bench.server.start()
        reader, reader_writer = await bench.reader()
        reader_writer.write(b"hello?\n")
        reader_writer.write_eof()
        await bench.until(lambda: bench.server.outlets[0].has_subscribers)
        await asyncio.sleep(0.02)
        _, writer = await bench.sender()
        writer.write(lines(1))
        assert await reader.readline() == b'{"n":1,"s":null}\n'
        await bench.server.close()

    run(test)
