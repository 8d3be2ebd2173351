"""A stop with open windows, joins and sorts: the real daemon says what was inside, and closes, keeps or drops it."""

from __future__ import annotations

import json
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from aurorad_client import Reader, Sender

from engine.daemon.daemon import Daemon
from engine.run.network_file import read_network
from qos_monitor.conservation import breaches
from tests.e2e.daemon import RunningDaemon, connect, free_ports, ndjson, running, send, wait_for

OLD_S = 1_700_000_000  # long ago: only a watermark of the stream's own tuples may judge these times


def network(ports: list[int], engine: str = "") -> str:
    a, b, windows, pairs, sorted_, counted = ports
    return f"""
engine: {{{engine}}}
streams:
  a: {{schema: {{ts: timestamp, k: string}}, time: ts, overload: block, source: {{tcp: 127.0.0.1:{a}, timestamps: s}}}}
  b: {{schema: {{ts: timestamp, k: string}}, time: ts, overload: block, source: {{tcp: 127.0.0.1:{b}, timestamps: s}}}}
boxes:
  sums: {{aggregate: a, window: {{tumbling: 60s}}, by: [k], select: {{n: "count(*)"}}}}
  both: {{join: [a, b], "on": "l.k = r.k", within: 5s, type: left, select: {{ts: l.ts, k: l.k, other: r.k}}}}
  ordered: {{bsort: b, slack: 1h}}
  tens: {{aggregate: b, window: {{count: 10}}, select: {{n: "count(*)"}}}}
  threes: {{aggregate: b, window: {{count: 10}}, timeout: 1h, select: {{n: "count(*)"}}}}
outputs:
  windows: {{from: sums, sink: {{tcp: 127.0.0.1:{windows}, timestamps: s}}}}
  pairs: {{from: both, sink: {{tcp: 127.0.0.1:{pairs}, timestamps: s}}}}
  in_order: {{from: ordered, sink: {{tcp: 127.0.0.1:{sorted_}, timestamps: s}}}}
  full: {{from: tens}}
  partial: {{from: threes, sink: {{tcp: 127.0.0.1:{counted}, timestamps: s}}}}
"""


def row(second: int, key: str = "x") -> dict[str, Any]:
    return {"ts": OLD_S + second, "k": key}


def to_the_end(reader: socket.socket) -> list[dict[str, Any]]:
    data = b""
    while more := reader.recv(1 << 16):
        data += more
    return [json.loads(line) for line in data.splitlines()]


def feed(daemon: RunningDaemon, ports: list[int]) -> None:
    send(ports[0], ndjson([row(0), row(1), row(2, "y"), row(3)]))
    send(ports[1], ndjson([row(5), row(4, "z"), row(2)]))
    wait_for(lambda: [daemon.stream(s)["admitted"] for s in "ab"] == [4, 3], "all are in")


def messages(daemon: RunningDaemon) -> str:
    return "\n".join(entry["message"] for entry in daemon.log)


def test_without_a_data_dir_a_stop_closes_what_is_open_and_its_readers_get_the_results(tmp_path: Path) -> None:
    ports = free_ports(7)
    with running(tmp_path, network(ports[1:]), ports[0]) as daemon:
        readers = [connect(port) for port in ports[3:]]
        wait_for(lambda: all(daemon.output(o)["subscribers"] for o in ("windows", "pairs", "in_order")), "readers")
        feed(daemon, ports[1:])
        daemon.process.send_signal(signal.SIGTERM)
        windows, pairs, in_order, partial = (to_the_end(reader) for reader in readers)
        assert daemon.process.wait(60) == 0
        for reader in readers:
            reader.close()
    assert sorted((r["k"], r["n"]) for r in windows) == [("x", 3), ("y", 1)]
    assert [r["k"] for r in pairs if r["other"] is None] == ["y"], "a left row without a partner comes out at the end"
    assert [r["ts"] for r in in_order] == [OLD_S + 2, OLD_S + 4, OLD_S + 5]
    assert [r["n"] for r in partial] == [3], "with a timeout an unfinished window by count is a result"
    said = messages(daemon)
    assert "box sums (aggregate) holds 4 tuples: its results go out now" in said
    assert "box both (join) holds 7 tuples" in said
    assert "box ordered (bsort) holds 1 tuple" in said
    assert "box tens (aggregate): 3 tuples without a result dropped" in said
    assert "3 dropped in open windows of 1 box, 0 unaccounted for" in daemon.log[-1]["message"]


def test_drop_drops_and_counts(tmp_path: Path) -> None:
    ports = free_ports(7)
    with running(tmp_path, network(ports[1:], "stop: drop"), ports[0]) as daemon, connect(ports[3]) as reader:
        wait_for(lambda: daemon.output("windows")["subscribers"], "a reader")
        feed(daemon, ports[1:])
        daemon.process.send_signal(signal.SIGTERM)
        assert to_the_end(reader) == []
        assert daemon.process.wait(60) == 0
    assert "box sums (aggregate) holds 4 tuples: they are dropped" in messages(daemon)
    # sums 4, both 7, ordered 1, tens 3, threes 3
    assert "18 dropped in open windows of 5 boxes, 0 unaccounted for" in daemon.log[-1]["message"]


def test_a_second_signal_ends_a_stop_that_waits_for_a_reader(tmp_path: Path) -> None:
    """The results of the close wait for a reader that does not read. A second SIGTERM ends the process at once."""
    http, source, sink = free_ports(3)
    text = f"""
streams:
  s: {{schema: {{ts: timestamp, k: string}}, time: ts, overload: block, source: {{tcp: 127.0.0.1:{source}}}}}
boxes: {{w: {{aggregate: s, window: {{tumbling: 60s}}, by: [k], select: {{n: "count(*)"}}}}}}
outputs: {{o: {{from: w, sink: {{tcp: 127.0.0.1:{sink}, when_slow: block}}}}}}
"""
    with running(tmp_path, text, http) as daemon, connect(sink):
        wait_for(lambda: daemon.output("o")["subscribers"], "a reader that never reads")
        long = "k" * 1_000
        send(source, ndjson([{"ts": 1, "k": f"{long}{n}"} for n in range(30_000)]))
        wait_for(lambda: daemon.stream("s")["admitted"] == 30_000, "all are in")
        daemon.process.send_signal(signal.SIGTERM)
        wait_for(lambda: "holds 30000 tuples" in daemon.log_path.read_text(), "the close has begun")
        assert daemon.end() == 1


DURABLE = """
engine: {{data_dir: {data}, checkpoint: 1h{stop}}}
http: {{listen: off}}
streams:
  t: {{schema: {{ts: timestamp, v: bigint}}, time: ts, source: {{tcp: 127.0.0.1:0, timestamps: s}}}}
  u: {{schema: {{ts: timestamp, v: bigint}}, time: ts, source: {{tcp: 127.0.0.1:0, timestamps: s}}}}
boxes:
  sums: {{aggregate: t, window: {{tumbling: 10s}}, select: {{n: "count(*)", s: "sum(v)"}}}}
  both: {{union: [t, u]}}
  firsts: {{dedup: both, by: [v], within: 1h}}
  all: {{aggregate: both, window: {{tumbling: 10s}}, select: {{n: "count(*)"}}}}
outputs:
  o: {{from: sums, sink: {{tcp: 127.0.0.1:0, timestamps: s}}}}
  p: {{from: all}}
  q: {{from: firsts}}
"""


class Run:
    """One life of a daemon in this process, with one sender and one named reader."""

    def __init__(self, daemon: Daemon) -> None:
        self.daemon = daemon
        self.sink = daemon.server.address("output o")[1]

    def send(self, first: int, last: int, stream: str = "t") -> None:
        with Sender("127.0.0.1", self.daemon.server.address(f"stream {stream}")[1], "x", epoch=1) as sender:
            sender.send([{"ts": OLD_S + n, "v": n} for n in range(first, last)])

    def box(self, name: str) -> Any:
        return next(box for box in self.daemon.readings().boxes if box.name == name)

    def end_of_time(self) -> None:
        """End the event time of all streams, as a stop with ``stop: close`` does first."""
        for stream in self.daemon.network.streams:
            self.daemon.ingress.end(stream.number)
        assert self.daemon.keeper is not None
        keeper = self.daemon.keeper
        wait_for(lambda: keeper.is_settled and self.daemon.engine.is_quiet(), "everything is closed")


@contextmanager
def life(data: Path, stop: str = "", *, crash: bool = False) -> Iterator[Run]:
    """Run a daemon in this process. ``crash``: it ends without a checkpoint, as after a kill."""
    daemon = Daemon(read_network(DURABLE.format(data=data, stop=f", stop: {stop}" if stop else ""), {}))
    daemon.start()
    try:
        yield Run(daemon)
    finally:
        daemon.failed = crash
        daemon.stop(60.0)
        assert not breaches(daemon.readings())


def results(sink: int, count: int, after: int | None = None) -> list[tuple[int, int]]:
    """Read on as the named reader, or after a number: (number of tuples, sum) of each window."""
    found: list[tuple[int, int]] = []
    reader = Reader("127.0.0.1", sink, "r", after=after)
    try:
        for batch in reader:
            found += [(result["n"], result["s"]) for result in batch.rows]
            batch.ack()
            if len(found) >= count:
                return found
    finally:
        reader.close()
    raise AssertionError("the reader ended")


def test_with_a_data_dir_a_stop_keeps_open_windows_for_the_next_start(tmp_path: Path) -> None:
    with life(tmp_path / "data") as run:
        subscribe(run.sink)
        run.send(0, 5)
    assert run.daemon.draining is not None
    assert {held.box: held.tuples for held in run.daemon.draining.kept} == {"sums": 5, "all": 5}
    with life(tmp_path / "data") as run:
        run.send(5, 12)
        assert results(run.sink, 1) == [(10, 45)], "one window, over the restart"


def subscribe(sink: int) -> None:
    """Give the reader a name: from now on its results are kept."""
    Reader("127.0.0.1", sink, "r").close()


def test_close_with_a_data_dir_begins_anew_after_the_restart(tmp_path: Path) -> None:
    with life(tmp_path / "data", "close") as run:
        subscribe(run.sink)
        run.send(0, 5)
    assert run.daemon.draining is not None
    assert not run.daemon.draining.kept
    assert not run.daemon.draining.dropped
    with life(tmp_path / "data", "close") as run:
        run.send(5, 12)
        assert results(run.sink, 2) == [(5, 10), (5, 35)], "the window that the stop has cut gives two results"
        wait_for(lambda: run.box("firsts").tuples_out == 12, "the other box has its tuples too")
        assert run.box("sums").late == 0
    with life(tmp_path / "data", "close") as run:
        assert results(run.sink, 1) == [(2, 21)]


@pytest.mark.parametrize("streams_ended", [1, 2])
def test_a_crash_in_the_middle_of_a_close_repeats_no_result_and_loses_none(tmp_path: Path, streams_ended: int) -> None:
    with life(tmp_path / "data", "close", crash=True) as run:
        subscribe(run.sink)
        run.send(0, 5)
        for stream in run.daemon.network.streams[:streams_ended]:
            run.daemon.ingress.end(stream.number)
        assert results(run.sink, 1) == [(5, 10)]
    with life(tmp_path / "data", "close", crash=True) as run:
        run.send(5, 22)  # behind the end of event time, in the same log
        assert results(run.sink, 3, after=0) == [(5, 10), (5, 35), (10, 145)], "each once, under its number"
        assert run.box("sums").late == 0
    with life(tmp_path / "data", "close") as run:  # replays both lives
        run.send(22, 31)
        assert results(run.sink, 1, after=3) == [(10, 245)]
        assert run.box("sums").late == 0
    with life(tmp_path / "data", "close") as run:
        assert results(run.sink, 1, after=4) == [(1, 30)]


def test_tuples_after_a_batch_run_on_the_same_data_dir_are_not_late(tmp_path: Path) -> None:
    with life(tmp_path / "data") as run:
        subscribe(run.sink)
        run.send(0, 5)
        run.end_of_time()  # as sources at their end do in a run with --once
    with life(tmp_path / "data") as run:
        run.send(5, 12)
        assert results(run.sink, 2) == [(5, 10), (5, 35)]
        assert run.box("sums").late == 0


def test_a_replay_of_a_batch_run_goes_on_behind_the_end_of_one_stream(tmp_path: Path) -> None:
    """One source of a batch has ended and another has not. The replay must not let the first begin anew."""
    with life(tmp_path / "data", crash=True) as run:
        run.send(0, 5)
        run.daemon.ingress.end(0)
        run.send(0, 15, "u")
        wait_for(lambda: run.box("all").tuples_out == 1, "the union waits for the second stream only")
    with life(tmp_path / "data", crash=True) as run:
        assert run.box("all").tuples_out == 1, "the replay has closed the same window"
        run.send(5, 12)  # the start let the first stream begin anew: its tuples are not late
        wait_for(lambda: (run.box("sums").tuples_in, run.box("all").tuples_in) == (12, 27), "they are in")
        assert run.box("sums").late == 0
        assert run.daemon.engine.drain(60)
        before = [(box.tuples_in, box.tuples_out, box.late) for box in run.daemon.readings().boxes]
    with life(tmp_path / "data") as run:
        after = [(box.tuples_in, box.tuples_out, box.late) for box in run.daemon.readings().boxes]
        assert after == before, "a replay of both lives"


def test_drop_with_a_data_dir_begins_with_empty_windows_and_remembers_the_count(tmp_path: Path) -> None:
    with life(tmp_path / "data", "drop") as run:
        subscribe(run.sink)
        run.send(0, 5)
        assert run.daemon.keeper is not None
        assert run.daemon.keeper.checkpointer.make(), "a checkpoint before, with the windows in it"
    with life(tmp_path / "data", "drop") as run:
        assert (run.box("sums").dropped, run.box("all").dropped, run.box("firsts").dropped) == (5, 5, 0)
        run.send(0, 12)
        assert results(run.sink, 1) == [(10, 45)]
        # The keys that dedup remembers are no open window.
        wait_for(lambda: run.box("firsts").tuples_out == 12, "the other box has its tuples too")


def test_a_start_that_fails_closes_nothing(tmp_path: Path) -> None:
    """The replay has brought the windows back, and then a port is taken: they must be there at the next start."""
    with life(tmp_path / "data", "close", crash=True) as run:
        subscribe(run.sink)
        run.send(0, 5)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen(1)
        text = DURABLE.format(data=tmp_path / "data", stop=", stop: close").replace(
            "u: {schema: {ts: timestamp, v: bigint}, time: ts, source: {tcp: 127.0.0.1:0",
            f"u: {{schema: {{ts: timestamp, v: bigint}}, time: ts, source: {{tcp: 127.0.0.1:{taken.getsockname()[1]}",
        )
        with pytest.raises(Exception, match="the port is in use"):
            Daemon(read_network(text, {})).start()
    with life(tmp_path / "data", "close") as run:
        run.send(5, 12)
        assert results(run.sink, 1) == [(10, 45)]
