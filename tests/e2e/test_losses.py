"""A daemon logs every loss with its place and count, and keeps a refused row where a user can look at it."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from tests.e2e.daemon import TRADES, RunningDaemon, connect, free_ports, ndjson, running, send, trade, wait_for
from tests.e2e.test_slow_readers import Flood, deaf_reader

NETWORK = """
limits: {{connections: 4}}
streams:
  trades: {{schema: {trades}, time: ts, overload: block, source: {{tcp: "127.0.0.1:{source}"}}}}
boxes:
  count: {{aggregate: trades, window: {{tumbling: 1s}}, select: {{n: "count(*)"}}}}
  model: {{python: trades, call: "json:loads", schema: {{n: int}}}}
outputs:
  counts: {{from: count, sink: {{tcp: "127.0.0.1:{sink}"}}}}
  scores: {{from: model}}
"""


def lost(daemon: RunningDaemon, beginning: str) -> str:
    """Waits for the log line of a loss that begins like this."""
    found: list[str] = []

    def has_come() -> bool:
        found[:] = [e["message"] for e in daemon.log if e["logger"] == "aurorad.losses"]
        return any(message.startswith(beginning) for message in found)

    wait_for(has_come, f"a log line that begins with: {beginning}", 60)
    return next(message for message in found if message.startswith(beginning))


def letters(daemon: RunningDaemon) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(daemon.get("/api/v1/dead_letters"))["dead_letters"]
    return found


def test_refused_skewed_late_and_dead_tuples_are_logged(tmp_path: Path) -> None:
    http, source, sink = free_ports(3)
    now = time.time_ns()
    with running(tmp_path, NETWORK.format(trades=TRADES, source=source, sink=sink), http) as daemon:
        send(source, b"nonsense\n")
        line = lost(daemon, "stream trades refused 1 tuple (1 malformed); the last one, line 1 from 127.0.0.1:")
        assert line.endswith("; /api/v1/dead_letters shows them") and "not a JSON object" in line

        send(source, ndjson([trade(1, ts=now)]))
        wait_for(lambda: daemon.stream("trades")["admitted"] == 1, "the first tuple is in", 60)
        send(source, ndjson([trade(2, ts=now - 60 * 10**9)]))
        line = lost(daemon, "box count left out 1 tuple that came too late")
        assert "more `slack` waits longer for disorder (now trades: 0ms)" in line
        line = lost(daemon, "box model could not process ")
        assert "; the last one: json:loads raised TypeError: " in line
        [dead, *_] = [letter for letter in letters(daemon) if "box" in letter]
        assert (dead["box"], dead["reason"]) == ("model", "dead") and dead["row"]["symbol"] == trade(1)["symbol"]

        send(source, ndjson([trade(3, ts=now + 2 * 3600 * 10**9), trade(4, ts=now)]))
        wait_for(lambda: daemon.stream("trades")["rejected"].get("skew") == 1, "the skewed tuple is refused", 60)
        [skewed] = [letter for letter in letters(daemon) if letter["reason"] == "skew"]
        assert skewed["stream"] == "trades" and skewed["peer"].startswith("127.0.0.1:")
        assert "ahead of the clock; max_skew allows 1h" in skewed["message"]
        assert json.loads(skewed["sample"])["price"] == trade(3)["price"]
        assert daemon.end() == 0
        line = lost(daemon, "stream trades refused 1 tuple in the last ")  # at the stop: its ten seconds were not over
        assert "(1 skew), 2 since the start" in line
        assert sum(e["message"].startswith("box model could not") for e in daemon.log) <= 2


def test_a_slow_reader_and_a_connection_without_a_place_are_logged(tmp_path: Path) -> None:
    http, source, sink = free_ports(3)
    text = f"""
limits: {{connections: 2}}
streams: {{trades: {{schema: {TRADES}, overload: block, source: {{tcp: "127.0.0.1:{source}"}}}}}}
outputs: {{all: {{from: trades, sink: {{tcp: "127.0.0.1:{sink}", buffer: 64KiB}}}}}}
"""
    with running(tmp_path, text, http) as daemon, deaf_reader(sink):
        flood = Flood(source)
        flood.start()
        try:
            line = lost(daemon, "output all dropped ")
            assert "for readers that were too slow or left; by reader: 127.0.0.1:" in line
            with connect(sink):
                assert lost(daemon, "refused 1 connection: no place is free").endswith("`limits.connections` is 2")
        finally:
            flood.stop()
