"""A daemon at rest: no timers but those that something waits for."""

from __future__ import annotations

import sys
from pathlib import Path
from time import monotonic, sleep

import pytest

from tests.e2e.daemon import connect, free_ports, lines, ndjson, running, send, trade

WAKE_UPS_PER_S = 10.0


def wake_ups(pid: int) -> int:
    """Count how often the threads of a process went to sleep since their start."""
    tasks = [task.read_text() for task in Path(f"/proc/{pid}/task").glob("*/status")]
    return sum(int(text.split("\nvoluntary_ctxt_switches:")[1].split()[0]) for text in tasks)


def wake_ups_per_s(pid: int) -> float:
    before, begun = wake_ups(pid), monotonic()
    sleep(2.0)
    return (wake_ups(pid) - before) / (monotonic() - begun)


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_daemon_at_rest_hardly_wakes_and_serves_the_next_tuple(tmp_path: Path) -> None:
    http, source, sink = free_ports(3)
    network = f"""
streams:
  trades:
    schema: {{ts: timestamp, symbol: string, price: double, size: int, venue: string?}}
    source: {{tcp: "127.0.0.1:{source}", format: ndjson}}
boxes:
  counted: {{aggregate: trades, window: {{tumbling: 100ms}}, select: {{n: "count(*)"}}}}
outputs:
  counts: {{from: counted, sink: {{tcp: "127.0.0.1:{sink}", format: ndjson}}}}
"""
    with running(tmp_path, network, http) as daemon:
        reader = connect(sink)
        for _ in range(2):
            deadline = monotonic() + 60
            while wake_ups_per_s(daemon.process.pid) >= WAKE_UPS_PER_S:
                assert monotonic() < deadline, "threads wake although nothing waits"
            send(source, ndjson([trade(1)]))
            assert lines(reader, 1)[0]["n"] == 1  # time alone has closed its window
