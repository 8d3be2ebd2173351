"""Event time in the real daemon: silence, heartbeats, and a tuple from the year 2100."""

from __future__ import annotations

import time
from pathlib import Path

from tests.e2e.daemon import connect, free_ports, lines, ndjson, running, send, wait_for

S = 10**9


def network(source: int, sink: int, idle: str = "") -> str:
    return f"""
streams:
  s:
    schema: {{ts: timestamp, k: string, x: double}}
    time: ts
    slack: 100ms
    {idle}
    source: {{tcp: 127.0.0.1:{source}}}
boxes:
  w: {{aggregate: s, window: {{tumbling: 1s}}, by: [k], select: {{n: "count(*)", total: "sum(x)"}}}}
outputs:
  out: {{from: w, sink: {{tcp: 127.0.0.1:{sink}, timestamps: ns}}}}
"""


def rows(now_ns: int, count: int) -> list[dict[str, object]]:
    return [{"ts": now_ns, "k": "a", "x": 2.0} for _ in range(count)]


def test_the_last_window_of_a_silent_stream_comes_out(tmp_path: Path) -> None:
    http, source, sink = free_ports(3)
    with running(tmp_path, network(source, sink, "idle: 300ms"), http), connect(sink) as reader:
        now_ns = time.time_ns() // S * S
        with connect(source) as sender:
            sender.sendall(ndjson(rows(now_ns, 3)))
            [result] = lines(reader, 1)
        assert (result["window_start"], result["n"], result["total"]) == (now_ns, 3, 6.0)


def test_a_heartbeat_closes_a_window(tmp_path: Path) -> None:
    http, source, sink = free_ports(3)
    with running(tmp_path, network(source, sink), http) as daemon, connect(sink) as reader:
        now_ns = time.time_ns() // S * S
        with connect(source) as sender:
            sender.sendall(ndjson([*rows(now_ns, 2), {"_heartbeat": now_ns + 1_100_000_000}]))
            [result] = lines(reader, 1)
        assert (result["window_start"], result["n"]) == (now_ns, 2)
        assert daemon.stream("s")["received"] == 2


def test_a_tuple_from_the_year_2100_is_refused_and_changes_nothing(tmp_path: Path) -> None:
    http, source, sink = free_ports(3)
    with running(tmp_path, network(source, sink), http) as daemon, connect(sink) as reader:
        now_ns = time.time_ns() // S * S
        future = {"ts": "2100-01-01T00:00:00Z", "k": "a", "x": 1.0}
        after = {"ts": now_ns + 1_200_000_000, "k": "b", "x": 1.0}
        with connect(source) as sender:
            sender.sendall(ndjson([*rows(now_ns, 2), future, *rows(now_ns, 2), after]))
            [result] = lines(reader, 1)
        assert (result["k"], result["n"]) == ("a", 4)
        wait_for(lambda: daemon.stream("s")["received"] == 6, "all have come")
        stream = daemon.stream("s")
        assert (stream["admitted"], stream["rejected"]) == (5, {"skew": 1})


def test_old_data_after_a_silent_start_give_results_and_after_a_pause_a_line_in_the_log(tmp_path: Path) -> None:
    """The clock of a stream starts with its first tuple. A pause of ``idle`` ends a replay of the past."""
    http, source, sink = free_ports(3)
    january_ns = (time.time_ns() - 300 * 24 * 3600 * S) // S * S
    with running(tmp_path, network(source, sink, "idle: 300ms"), http) as daemon, connect(sink) as reader:
        started = time.monotonic()
        wait_for(lambda: time.monotonic() - started > 1.0, "the stream was silent for longer than idle")
        send(source, ndjson(rows(january_ns, 3)))
        [result] = lines(reader, 1)
        assert (result["window_start"], result["n"]) == (january_ns, 3)
        send(source, ndjson(rows(january_ns, 2)))
        told = "box w left out 2 tuples that came too late, by up to 299d"
        wait_for(lambda: any(told in entry["message"] for entry in daemon.log), "the loss is in the log")
        [line] = [entry["message"] for entry in daemon.log if told in entry["message"]]
        for setting in ("`slack`", "(now s: 100ms)", "`idle`", "(now s: 300ms)", "`max_skew`"):
            assert setting in line
