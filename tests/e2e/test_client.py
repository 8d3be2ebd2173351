"""The Python client against the real daemon: refused rows, refused clients, closing, restarts; sync and async."""

from __future__ import annotations

import asyncio
import signal
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from aurorad_client import (
    AsyncReader,
    AsyncSender,
    ClosedError,
    ProtocolError,
    Reader,
    Receipt,
    RefusedError,
    RejectedRowsError,
    Sender,
    UnreachableError,
)

from engine.daemon.daemon import Daemon
from engine.run.network_file import read_network
from tests.e2e.daemon import free_ports, running

HOST = "127.0.0.1"
NETWORK = """
engine: {{{data}}}
http: {{listen: off}}
streams:
  t: {{schema: {{a: bigint, s: string?}}, source: {{tcp: 127.0.0.1:{source}, format: {format}}}, overload: block}}
outputs:
  o: {{from: t, sink: {{tcp: 127.0.0.1:{sink}, format: {format}}}}}
"""


def network(folder: Path | None, format: str = "ndjson", source: int = 0, sink: int = 0) -> str:
    data = "" if folder is None else f"data_dir: {folder / 'data'}"
    return NETWORK.format(data=data, format=format, source=source, sink=sink)


@contextmanager
def daemon_on(
    folder: Path | None, format: str = "ndjson", *, ports: tuple[int, int] = (0, 0), crash: bool = False
) -> Iterator[tuple[int, int]]:
    """Run a daemon in this process. Yields the ports of its stream and its output. ``crash``: it ends as if killed."""
    daemon = Daemon(read_network(network(folder, format, *ports), {}))
    daemon.start()
    try:
        yield daemon.server.address("stream t")[1], daemon.server.address("output o")[1]
    finally:
        daemon.failed = crash
        daemon.stop(5.0)


def rows(first: int, last: int) -> list[dict[str, Any]]:
    return [{"a": n, "s": f"s{n}"} for n in range(first, last)]


def taken(receipt: Receipt) -> tuple[int, int, list[tuple[int, int | None, str]]]:
    return receipt.acknowledged, receipt.rejected, [(r.batch, r.row, r.reason) for r in receipt.reasons]


# -- refused rows ------------------------------------------------------------------------------------------------------

MIXED = [{"a": 1}, {"a": "high"}, {"b": 2}, {"a": 3}, {"a": None}]
SAID = [(2, 1, "wrong_type"), (2, 2, "missing_field"), (2, 4, "null")]


@pytest.mark.parametrize("ack", ["disk", "memory"])
def test_a_sender_learns_of_refused_rows(tmp_path: Path, ack: str) -> None:
    with daemon_on(tmp_path if ack == "disk" else None) as (source, _):
        with Sender(HOST, source, "x", epoch=1, ack=ack) as sender:
            sender.send(rows(0, 5))
            sender.send(MIXED)
            receipt = sender.flush()
            assert taken(receipt) == (2, 3, SAID)
            assert "batch 2, row 1: " in str(receipt.reasons[0])
            sender.send(rows(5, 9))
            assert taken(sender.flush()) == (3, 0, [])
            assert sender.rejected == 3
        with Sender(HOST, source, "x", epoch=1, ack=ack) as sender:
            assert (sender.resumed_at, sender.rejected) == (3, 0), "those before were another's"
            sender.send([{"a": "low"}])
            assert taken(sender.flush()) == (4, 1, [(4, 0, "wrong_type")])


@pytest.mark.parametrize("ack", ["disk", "memory"])
def test_an_async_sender_learns_of_refused_rows(tmp_path: Path, ack: str) -> None:
    async def send(port: int) -> Receipt:
        async with AsyncSender(HOST, port, "x", epoch=1, ack=ack) as sender:
            await sender.send(rows(0, 5))
            await sender.send(MIXED)
            return await sender.flush()

    with daemon_on(tmp_path if ack == "disk" else None) as (source, _):
        assert taken(asyncio.run(send(source))) == (2, 3, SAID)


def test_a_strict_sender_raises_and_the_good_rows_are_in(tmp_path: Path) -> None:
    async def strictly(port: int) -> None:
        async with AsyncSender(HOST, port, "async", strict=True) as sender:
            await sender.send([{"a": "low"}])

    with daemon_on(tmp_path) as (source, sink), Reader(HOST, sink, "r", idle_s=60.0) as reader:
        sender = Sender(HOST, source, "x", strict=True)
        sender.send(MIXED)
        with pytest.raises(RejectedRowsError, match="refused 3 rows\n  batch 1, row 1: ") as raised:
            sender.flush()
        assert raised.value.rejected == 3 and raised.value.reasons[1].reason == "missing_field"
        sender.flush()
        sender.close()
        assert [row["a"] for row in next(iter(reader)).rows] == [1, 3]
        with pytest.raises(RejectedRowsError, match="refused 1 row\n"), Sender(HOST, source, "y", strict=True) as other:
            other.send([{"a": "low"}])
        with pytest.raises(RejectedRowsError, match="refused 1 row\n"):
            asyncio.run(strictly(source))


def test_refused_rows_of_arrow_are_counted_without_a_row(tmp_path: Path) -> None:
    with daemon_on(tmp_path, "arrow") as (source, _), Sender(HOST, source, "x", format="arrow") as sender:
        sender.send(pa.table({"a": [1, None, 3], "s": ["x", "y", "z"]}))
        receipt = sender.flush()
        assert receipt.rejected == 1
        assert [(r.row, r.reason, r.rows) for r in receipt.reasons] == [(None, "null", 1)]


def test_a_client_of_the_first_protocol_gets_the_fields_it_knows(tmp_path: Path) -> None:
    with daemon_on(tmp_path) as (source, _), socket.create_connection((HOST, source), timeout=60) as old:
        answers = old.makefile("rb")
        old.sendall(b'{"_hello":{"source":"x","epoch":1,"ack":"disk"}}\n')
        assert answers.readline() == b'{"_welcome":{"sequence":0,"ack":"disk","batch_bytes":16777216}}\n'
        old.sendall(b'{"_batch":1,"tuples":1,"bytes":8}\n{"a":1}\n')
        assert answers.readline() == b'{"_ack":1,"on":"disk"}\n'
        old.sendall(b'{"_batch":2,"tuples":1,"bytes":8}\n{"b":1}\n')
        assert answers.readline().startswith(b'{"_ack":2,"on":"disk","rejected":1,')
        answers.close()


# -- refused clients ---------------------------------------------------------------------------------------------------


def test_a_named_reader_without_data_dir_fails_at_once_with_the_servers_reason() -> None:
    async def read(port: int) -> None:
        async with AsyncReader(HOST, port, "r", timeout_s=600):
            pass

    begun = time.monotonic()
    with daemon_on(None) as (_, sink):
        with pytest.raises(RefusedError, match=r"named reader needs engine\.data_dir"):
            Reader(HOST, sink, "r", timeout_s=600)
        with pytest.raises(RefusedError, match=r"named reader needs engine\.data_dir"):
            asyncio.run(read(sink))
    assert time.monotonic() - begun < 60


def test_a_refused_reader_has_its_reason_behind_the_rows_of_a_busy_output() -> None:
    with daemon_on(None) as (source, sink):
        is_over = threading.Event()

        def traffic() -> None:
            with socket.create_connection((HOST, source)) as feeder:
                while not is_over.wait(0.0005):
                    feeder.sendall(b'{"a":1}\n' * 100)

        feeder = threading.Thread(target=traffic)
        feeder.start()
        try:
            for _ in range(20):
                with pytest.raises(RefusedError, match=r"named reader needs engine\.data_dir"):
                    Reader(HOST, sink, "r", timeout_s=60)
        finally:
            is_over.set()
            feeder.join()


def test_a_sender_that_wants_a_disk_and_swapped_ports_are_refused_with_what_to_do() -> None:
    with daemon_on(None) as (source, sink):
        with pytest.raises(RefusedError, match='use "ack": "memory"'):
            Sender(HOST, source, "x")
        with pytest.raises(RefusedError, match="this is the port of an output"):
            Sender(HOST, sink, "x", ack="memory")
        with pytest.raises(RefusedError, match="this is the port of a stream"):
            Reader(HOST, source, "r")


def test_a_client_of_another_format_and_a_batch_above_the_limit_are_refused(tmp_path: Path) -> None:
    with daemon_on(tmp_path) as (source, sink):
        with pytest.raises(RefusedError, match="this stream has the format ndjson, and the client uses arrow"):
            Sender(HOST, source, "x", format="arrow")
        with pytest.raises(RefusedError, match="this output has the format ndjson, and the client uses arrow"):
            Reader(HOST, sink, "r", format="arrow")
        with Sender(HOST, source, "y") as sender:
            with pytest.raises(ValueError, match="send fewer than 40 rows at once"):
                sender.send([{"a": 1, "s": "x" * 500_000}] * 40)
            sender.send(rows(0, 3))
            assert taken(sender.flush()) == (1, 0, [])


@pytest.mark.parametrize("client", ["sender", "reader"])
def test_nobody_there_is_unreachable_after_the_time_out(client: str) -> None:
    [port] = free_ports(1)
    with pytest.raises(UnreachableError, match=f"127.0.0.1:{port} not reached within 0.2 s"):
        Sender(HOST, port, "x", timeout_s=0.2) if client == "sender" else Reader(HOST, port, "r", timeout_s=0.2)


def test_a_port_of_something_else_is_a_protocol_error() -> None:
    with socket.create_server((HOST, 0)) as listener:

        def answer() -> None:
            connection, _ = listener.accept()
            connection.recv(4096)
            connection.sendall(b"220 mail.example ESMTP\r\n")
            connection.close()

        server = threading.Thread(target=answer)
        server.start()
        with pytest.raises(ProtocolError, match="220 mail"):
            Sender(HOST, listener.getsockname()[1], "x")
        server.join()


@pytest.mark.parametrize(
    "wrong",
    [{"port": 0}, {"source": ""}, {"ack": "tape"}, {"format": "xml"}, {"window": 0}, {"timeout_s": 0}],
    ids=str,
)
def test_wrong_arguments_are_refused_before_anything_is_sent(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        Sender(**{"host": HOST, "port": 1, "source": "x", **wrong})
    with pytest.raises(ValueError, match="name"):
        Reader(HOST, 1, "")
    with pytest.raises(ValueError, match="name"):
        Reader(HOST, 1, after=4)


# -- closing -----------------------------------------------------------------------------------------------------------


def test_a_closed_reader_does_not_reconnect(tmp_path: Path) -> None:
    with daemon_on(tmp_path) as (source, sink):
        reader = Reader(HOST, sink, "r")
        with Sender(HOST, source, "x") as sender:
            sender.send(rows(0, 3))
        batches = iter(reader)
        assert len(next(batches).rows) == 3
        reader.close()
        assert list(batches) == [], "a loop ends"
        with pytest.raises(ClosedError):
            iter(reader)
        assert reader.reconnects == 0
        with pytest.raises(ClosedError):
            sender.send(rows(3, 4))
        with pytest.raises(ClosedError):
            sender.flush()


def test_closing_from_another_thread_ends_a_loop_that_waits(tmp_path: Path) -> None:
    with daemon_on(tmp_path) as (_, sink):
        reader = Reader(HOST, sink, "r")
        loop = threading.Thread(target=lambda: list(reader))
        loop.start()
        reader.close()
        loop.join(60)
        assert not loop.is_alive()


def test_closing_in_another_task_ends_an_async_loop_that_waits(tmp_path: Path) -> None:
    async def close_while_reading(port: int) -> list[Any]:
        async with AsyncReader(HOST, port, "r") as reader:

            async def read() -> list[Any]:
                return [batch async for batch in reader]

            task = asyncio.create_task(read())
            await asyncio.sleep(0)
            await reader.close()
            got = await asyncio.wait_for(task, 60)
            with pytest.raises(ClosedError):
                reader.__aiter__()
            return got

    with daemon_on(tmp_path) as (_, sink):
        assert asyncio.run(close_while_reading(sink)) == []


def test_a_name_that_is_given_up_begins_at_the_newest_row(tmp_path: Path) -> None:
    with daemon_on(tmp_path) as (source, sink):
        reader = Reader(HOST, sink, "r")
        with Sender(HOST, source, "x") as sender:
            sender.send(rows(0, 3))
        assert next(iter(reader)).last == 3
        reader.forget()
        with Reader(HOST, sink, "r") as again:
            assert again.after == 3, "without an acknowledgement a known name would begin at 0"


# -- without data_dir --------------------------------------------------------------------------------------------------


def test_a_reader_without_a_name_needs_no_data_dir() -> None:
    async def first(port: int, source: int) -> list[dict[str, Any]]:
        async with AsyncReader(HOST, port) as reader, AsyncSender(HOST, source, "y", ack="memory") as sender:
            await sender.send(rows(3, 6))
            got: list[dict[str, Any]] = []
            async for batch in reader:
                got += batch.rows
                await batch.ack()
                if len(got) == 3:
                    break
            return got

    with daemon_on(None) as (source, sink):
        with Reader(HOST, sink) as reader, Sender(HOST, source, "x", ack="memory") as sender:
            sender.send(rows(0, 3))
            sender.flush()
            got: list[dict[str, Any]] = []
            for batch in reader:
                got += batch.rows
                batch.ack()
                if batch.last == 3:
                    break
            assert got == rows(0, 3)
            with pytest.raises(ValueError, match="no name"):
                reader.forget()
        assert asyncio.run(first(sink, source)) == rows(3, 6)


# -- restarts ----------------------------------------------------------------------------------------------------------


def test_killed_and_started_again_sync_clients_go_on(tmp_path: Path) -> None:
    http, source, sink = free_ports(3)
    text = network(tmp_path, source=source, sink=sink).replace("http: {listen: off}", "")
    got: list[int] = []
    with running(tmp_path, text, http) as daemon:
        reader = Reader(HOST, sink, "r")
        sender = Sender(HOST, source, "x", epoch=1)
        for n in range(0, 100, 10):
            sender.send(rows(n, n + 10))
        got += [row["a"] for row in next(iter(reader)).rows]
        daemon.end(signal.SIGKILL)
    with running(tmp_path, text, http):
        for n in range(100, 200, 10):
            sender.send(rows(n, n + 10))
        assert sender.flush().acknowledged == 20 and sender.reconnects == 1
        for batch in reader:
            got += [row["a"] for row in batch.rows]
            batch.ack()
            if len(got) >= 200:
                break
        assert got == list(range(200)) and reader.reconnects == 1
        sender.close()
        reader.close()


def test_async_clients_go_on_after_a_crash_of_the_server(tmp_path: Path) -> None:
    source, sink = ports = (*free_ports(2),)

    async def clients(is_half: threading.Event, is_back: threading.Event) -> list[int]:
        got: list[int] = []
        async with AsyncReader(HOST, sink, "r") as reader, AsyncSender(HOST, source, "x", epoch=1) as sender:

            async def read() -> None:
                async for batch in reader:
                    got.extend(row["a"] for row in batch.rows)
                    await batch.ack()
                    if len(got) >= 200:
                        return

            task = asyncio.create_task(read())
            for n in range(0, 200, 10):
                await sender.send(rows(n, n + 10))
                if n == 90:
                    is_half.set()
                    await asyncio.to_thread(is_back.wait, 60)
            assert (await sender.flush()).acknowledged == 20
            await task
            assert reader.reconnects == 1 and sender.reconnects == 1
        return got

    is_half, is_back = threading.Event(), threading.Event()
    result: list[list[int]] = []
    with daemon_on(tmp_path, ports=ports, crash=True):
        thread = threading.Thread(target=lambda: result.append(asyncio.run(clients(is_half, is_back))))
        thread.start()
        assert is_half.wait(60)
    is_back.set()
    with daemon_on(tmp_path, ports=ports):
        thread.join(60)
    assert result == [list(range(200))]


def test_a_server_without_a_disk_that_restarts_gets_the_rest() -> None:
    source, sink = ports = (*free_ports(2),)
    with daemon_on(None, ports=ports):
        sender = Sender(HOST, source, "x", epoch=1, ack="memory")
        sender.send(rows(0, 10))
        sender.flush()
    with daemon_on(None, ports=ports), Reader(HOST, sink) as reader:
        with sender:
            sender.send(rows(10, 15))
        assert sender.epoch == 2 and next(iter(reader)).rows == rows(10, 15)


def test_tasks_share_an_async_sender(tmp_path: Path) -> None:
    async def send(port: int) -> int:
        async with AsyncSender(HOST, port, "x", window=2) as sender:

            async def some(start: int) -> list[int]:
                return [await sender.send(rows(n, n + 1)) for n in range(start, start + 20)]

            numbers = await asyncio.gather(*(some(100 * task) for task in range(5)))
            assert sorted(n for given in numbers for n in given) == list(range(1, 101))
            return (await sender.flush()).acknowledged

    with daemon_on(tmp_path) as (source, _):
        assert asyncio.run(send(source)) == 100
