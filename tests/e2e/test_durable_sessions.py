"""Numbered batches and named readers over real sockets, with the daemon in this process."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from aurorad_client import Reader, RefusedError, Sender

from engine.daemon.daemon import Daemon
from engine.daemon.durable.keeper import Keeper
from engine.run.network_file import read_network
from qos_monitor.conservation import residuals
from tests.e2e.daemon import wait_for

NETWORK = """
engine: {{{data} checkpoint: 1h}}
http: {{listen: off}}
streams:
  t: {{schema: {{a: bigint, s: string?}}, source: {{tcp: 127.0.0.1:0, format: {format}}}}}
boxes:
  some: {{filter: t, where: "a % 2 = 0"}}
outputs:
  o: {{from: some, sink: {{tcp: 127.0.0.1:0, format: {format}}}}}
"""


@contextmanager
def daemon_on(folder: Path | None, format: str = "ndjson") -> Iterator[Daemon]:
    data = "" if folder is None else f"data_dir: {folder / 'data'},"
    daemon = Daemon(read_network(NETWORK.format(data=data, format=format), {}))
    daemon.start()
    try:
        yield daemon
    finally:
        daemon.stop(5.0)


def ports(daemon: Daemon) -> tuple[int, int]:
    return daemon.server.address("stream t")[1], daemon.server.address("output o")[1]


def rows(first: int, last: int) -> list[dict[str, Any]]:
    return [{"a": n, "s": f"s{n}"} for n in range(first, last)]


def even(first: int, last: int) -> list[dict[str, Any]]:
    return [r for r in rows(first, last) if r["a"] % 2 == 0]


def take(reader: Reader, count: int) -> list[dict[str, Any]]:
    got: list[dict[str, Any]] = []
    for batch in reader:
        got += batch.rows
        batch.ack()
        if len(got) >= count:
            return got
    return got


def check_laws(daemon: Daemon) -> None:
    assert daemon.engine.drain(10)
    assert not any(residuals(daemon.readings()).values())


class Raw:
    """A client without a protocol of its own: it sends exactly what a test gives it."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=20)
        self.file = self.socket.makefile("rb")

    def say(self, **content: Any) -> None:
        self.socket.sendall(json.dumps(content).encode() + b"\n")

    def batch(self, sequence: int, given: list[dict[str, Any]], **more: Any) -> None:
        payload = b"".join(json.dumps(r).encode() + b"\n" for r in given)
        self.say(**{"_batch": sequence, "tuples": len(given), "bytes": len(payload), **more})
        self.socket.sendall(payload)

    def hear(self) -> dict[str, Any]:
        line = self.file.readline()
        return json.loads(line) if line else {}

    def close(self) -> None:
        self.file.close()
        self.socket.close()


@contextmanager
def raw(port: int, **hello: Any) -> Iterator[Raw]:
    client = Raw(port)
    try:
        if hello:
            client.say(_hello=hello)
        yield client
    finally:
        client.close()


@pytest.mark.parametrize("format", ["ndjson", "arrow"])
def test_what_is_sent_comes_out_numbered_and_a_restart_goes_on(tmp_path: Path, format: str) -> None:
    def as_sent(given: list[dict[str, Any]]) -> Any:
        schema = pa.schema({"a": pa.int64(), "s": pa.string()})
        return given if format == "ndjson" else pa.Table.from_pylist(given, schema)

    def as_got(batches: list[Any]) -> list[dict[str, Any]]:
        return [r for b in batches for r in (b.rows if format == "ndjson" else b.rows.to_pylist())]

    with daemon_on(tmp_path, format) as daemon:
        source, sink = ports(daemon)
        reader = Reader("127.0.0.1", sink, "r", format=format, idle_s=0.5)
        with Sender("127.0.0.1", source, "x", epoch=1, format=format) as sender:
            for start in range(0, 100, 10):
                sender.send(as_sent(rows(start, start + 10)))
        batches = []
        for batch in reader:
            batches.append(batch)
            if batch.last == 30:
                break
        got = as_got(batches)[:30]
        reader.ack(30)
        wait_for(lambda: daemon.keeper is not None and daemon.keeper.outboxes[0].names == {"r": 30}, "it is noted")
        reader.close()
    with daemon_on(tmp_path, format) as daemon:
        source, sink = ports(daemon)
        assert daemon.keeper is not None and daemon.keeper.recovered.tuples == 0
        sender = Sender("127.0.0.1", source, "x", epoch=1, format=format)
        assert sender.resumed_at == 10
        sender.send(as_sent(rows(100, 120)))
        sender.flush()
        sender.close()
        reader = Reader("127.0.0.1", sink, "r", format=format, idle_s=1.0)
        assert reader.after == 30
        later = list(reader)
        reader.close()
        assert got + as_got(later) == even(0, 120)
        assert later[0].first == 31
        check_laws(daemon)


def test_a_batch_that_comes_again_is_dropped_and_acknowledged_again(tmp_path: Path) -> None:
    with daemon_on(tmp_path) as daemon, raw(ports(daemon)[0], source="x", epoch=3, ack="disk") as client:
        assert client.hear() == {"_welcome": {"sequence": 0, "ack": "disk", "batch_bytes": 16 * 2**20}}
        for sequence in (1, 1, 2, 1):
            client.batch(sequence, rows(sequence * 10, sequence * 10 + 5))
        said = [client.hear()]
        while said[-1] != {"_ack": 2, "on": "disk"}:
            said.append(client.hear())
        wait_for(lambda: daemon.readings().streams[0].duplicates == 10, "duplicates are counted")
        stream = daemon.readings().streams[0]
        assert (stream.received, stream.admitted) == (20, 10)
        check_laws(daemon)


def test_a_gap_and_an_old_epoch_are_refused_and_nothing_of_them_is_taken(tmp_path: Path) -> None:
    with daemon_on(tmp_path) as daemon:
        port = ports(daemon)[0]
        with raw(port, source="x", epoch=5, ack="disk") as client:
            client.hear()
            client.batch(2, rows(0, 4))
            refused = client.hear()
            assert (refused["_refused"], refused["expected"]) == (2, 1)
            client.batch(1, rows(0, 4))
            assert client.hear()["_ack"] == 1
        with raw(port, source="x", epoch=4, ack="disk") as client:
            assert "newer epoch" in client.hear()["_error"]
            assert client.hear() == {}
        stream = daemon.readings().streams[0]
        assert (stream.received, stream.admitted, stream.rejected) == (8, 4, {"refused": 4})


def test_bad_tuples_in_a_batch_are_refused_one_by_one_and_the_batch_counts(tmp_path: Path) -> None:
    with daemon_on(tmp_path) as daemon, raw(ports(daemon)[0], source="x", epoch=1) as client:
        client.hear()
        client.batch(1, [{"a": 1}, {"a": "no"}, {"b": 1}, {"a": 2}])
        client.batch(2, [{"a": None}])
        while client.hear().get("_ack") != 2:
            pass
        stream = daemon.readings().streams[0]
        assert (stream.received, stream.admitted, sum(stream.rejected.values())) == (5, 2, 3)


@pytest.mark.parametrize(
    ("lines", "why"),
    [
        ([{"_hello": {"source": "", "epoch": 1}}], "source must be a string"),
        ([{"_hello": {"source": "x", "epoch": -1}}], "epoch must be a whole number"),
        ([{"_hello": {"source": "x", "epoch": 1, "ack": "paper"}}], "ack must be disk or memory"),
        ([{"_hello": 5}], "the first line must be"),
        ([{"_hello": {"source": "x", "epoch": 1}}, {"a": 1}], "only batches may follow hello"),
        ([{"_hello": {"source": "x", "epoch": 1}}, {"_batch": 1, "tuples": 1, "bytes": 2**40}], "bytes must be"),
        ([{"_hello": {"source": "x", "epoch": 1}}, {"_batch": 1, "tuples": 2**62, "bytes": 5}], "tuples must be"),
    ],
    ids=["no name", "epoch", "ack", "no object", "no batch", "too large", "too many"],
)  # fmt: skip
def test_who_does_not_speak_the_protocol_is_told_so(tmp_path: Path, lines: list[Any], why: str) -> None:
    with daemon_on(tmp_path) as daemon, raw(ports(daemon)[0]) as client:
        for line in lines:
            client.say(**line)
        said = client.hear()
        if "_welcome" in said:
            said = client.hear()
        assert why in said["_error"]
        assert client.hear() == {}


def test_a_batch_with_another_number_of_tuples_than_it_says_is_refused_whole(tmp_path: Path) -> None:
    with daemon_on(tmp_path) as daemon, raw(ports(daemon)[0], source="x", epoch=1) as client:
        client.hear()
        client.batch(1, rows(0, 3), tuples=4)
        assert "3 tuples instead of 4" in client.hear()["_error"]
        stream = daemon.readings().streams[0]
        assert (stream.received, stream.admitted, stream.rejected) == (3, 0, {"malformed": 3}), (
            "what came, not what it says"
        )


def test_a_client_that_comes_back_takes_its_source_over(tmp_path: Path) -> None:
    with daemon_on(tmp_path) as daemon:
        port = ports(daemon)[0]
        with raw(port, source="x", epoch=1) as old, raw(port) as new:
            old.hear()
            new.say(_hello={"source": "x", "epoch": 1})
            new.hear()
            assert "another connection" in old.hear()["_error"]
            new.batch(1, rows(0, 2))
            assert new.hear()["_ack"] == 1


def test_without_a_data_dir_there_are_memory_acks_only() -> None:
    with daemon_on(None) as daemon:
        source, sink = ports(daemon)
        with pytest.raises(RefusedError, match="memory"):
            Sender("127.0.0.1", source, "x")
        with Sender("127.0.0.1", source, "x", epoch=1, ack="memory") as sender:
            sender.send(rows(0, 10))
            sender.send(rows(10, 20))
        again = Sender("127.0.0.1", source, "x", epoch=1, ack="memory")
        assert again.resumed_at == 2
        again.close()
        assert daemon.readings().streams[0].admitted == 20
        with raw(sink, name="r") as client:
            assert "data_dir" in client.hear()["_error"]


def test_plain_connections_do_not_notice(tmp_path: Path) -> None:
    """With a data_dir a plain sender needs nothing, and a plain reader gets plain lines."""
    with daemon_on(tmp_path) as daemon:
        source, sink = ports(daemon)
        with raw(sink) as reader:
            wait_for(lambda: daemon.readings().outputs[0].readers == 1, "the reader is there")
            with raw(source) as sender:
                sender.socket.sendall(b'{"')  # as short as a line can begin
                sender.socket.sendall(b'a":2}\n{"a":3}\n{"a":4}')
            assert [reader.hear(), reader.hear()] == [{"a": 2, "s": None}, {"a": 4, "s": None}]


def _has_results(keeper: Keeper, count: int) -> bool:
    return keeper.outboxes[0].readable == count


def test_a_reader_that_was_away_too_long_is_told_what_it_missed(tmp_path: Path) -> None:
    with daemon_on(tmp_path) as daemon:
        assert daemon.keeper is not None
        keeper = daemon.keeper
        keeper.log.segment_bytes = 4_096
        keeper.checkpointer.retain_bytes = 8_192
        source, sink = ports(daemon)
        Reader("127.0.0.1", sink, "r").close()
        with Sender("127.0.0.1", source, "x", epoch=1) as sender:
            for start in range(0, 4_000, 100):
                sender.send(rows(start, start + 100))
                sender.flush()
                # One batch's results a group: the log is pruned by whole segments, and a segment holds whole groups.
                # On a busy machine the scheduler falls behind the log, and many results would share one group.
                wait_for(partial(_has_results, keeper, (start + 100) // 2), "the results are in the history")
        assert keeper.checkpointer.make() and keeper.checkpointer.make() and keeper.checkpointer.make()
        assert keeper.log.durable - keeper.log.start < 40_000
        reader = Reader("127.0.0.1", sink, "r", idle_s=1.0)
        batches = list(reader)
        reader.close()
        missed = batches[0].missing
        assert 0 < missed < 2_000
        assert [r["a"] for b in batches for r in b.rows] == list(range(2 * missed, 4_000, 2))


def test_a_named_reader_that_does_not_read_costs_no_memory_and_delays_nobody(tmp_path: Path) -> None:
    with daemon_on(tmp_path) as daemon:
        source, sink = ports(daemon)
        with raw(sink, name="lazy", nonce="n") as lazy:
            wait_for(lambda: any(s.name == "lazy" for s in daemon.readings().outputs[0].subscribers), "it is there")
            reader = Reader("127.0.0.1", sink, "keen", idle_s=1.0)
            with Sender("127.0.0.1", source, "x", epoch=1) as sender:
                for start in range(0, 60_000, 2_000):
                    sender.send([{"a": n, "s": "x" * 200} for n in range(start, start + 2_000)])
            got = take(reader, 30_000)
            reader.close()
            assert [r["a"] for r in got] == list(range(0, 60_000, 2))
            assert daemon.engine.storage.used_bytes == 0
            assert "_welcome" in lazy.hear()
