"""Windows and joins by event time go on through changes: the same windows, the same pairs, nothing late."""

from __future__ import annotations

import socket
from threading import Event, Thread
from time import monotonic, sleep

from engine.daemon.daemon import Daemon
from engine.run.network_file import read_network
from qos_monitor.conservation import breaches
from storage.train import Train

BASE_NS = 1_700_000_000 * 10**9
CHANGES = 40
NETWORK = """
http: {listen: off}
streams:
  s: {schema: {ts: timestamp, n: bigint}, time: ts, slack: 50ms, overload: block, source: {tcp: "127.0.0.1:0"}}
  r: {schema: {ts: timestamp, n: bigint}, time: ts, slack: 50ms, overload: block, source: {tcp: "127.0.0.1:0"}}
boxes:
  all: {filter: s, where: "n >= -LOW"}
  WINDOW: {aggregate: all, window: {tumbling: 100ms}, select: {c: "count(*)", low: "min(n)", high: "max(n)"}}
  pairs: {join: [all, r], on: "l.n = r.n", within: 20ms, select: {ts: l.ts, n: l.n}}
  extraLOW: {aggregate: all, window: {tumbling: 1s}, select: {c: "count(*)"}}
outputs: {windows: {from: WINDOW}, pair: {from: pairs}, oLOW: {from: extraLOW}}
"""


class TwoSenders:
    """Sends the same tuples to both streams, one each millisecond of event time, until its owner ends it."""

    def __init__(self, daemon: Daemon) -> None:
        self.sent = 0
        self._daemon = daemon
        self._ended = Event()
        self._thread = Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        addresses = [self._daemon.server.address(f"stream {name}") for name in "sr"]
        with socket.create_connection(addresses[0]) as one, socket.create_connection(addresses[1]) as other:
            while not self._ended.wait(0.002):
                rows = range(self.sent, self.sent + 300)
                data = b"".join(b'{"ts":%d,"n":%d}\n' % (BASE_NS + n * 1_000_000, n) for n in rows)
                one.sendall(data)
                other.sendall(data)
                self.sent = rows.stop

    def end(self) -> None:
        self._ended.set()
        self._thread.join()


def text(change: int) -> str:
    """The filter before the window changes each time, and each third time the window gets another name."""
    return NETWORK.replace("LOW", str(change)).replace("WINDOW", f"w{change // 3}")


def test_windows_and_pairs_are_those_of_a_network_that_never_changed() -> None:
    daemon = Daemon(read_network(text(0), {}))
    daemon.start()
    windows: list[tuple[object, ...]] = []
    pairs: list[object] = []

    def take_windows(train: Train) -> None:
        windows.extend(row[-3:] for row in train.to_rows())

    try:
        daemon.subscribe("windows", take_windows)
        daemon.subscribe("pair", lambda train: pairs.extend(row[-1] for row in train.to_rows()))
        senders = TwoSenders(daemon)
        try:
            for change in range(1, CHANGES + 1):
                daemon.changes.put(text(change), dry_run=False, drop_state=True)
        finally:
            senders.end()
        deadline = monotonic() + 60
        while daemon.ingress.admitted != [senders.sent] * 2 or not daemon.engine.is_quiet():
            assert monotonic() < deadline, "waited too long"
            sleep(0.005)
        assert pairs == list(range(senders.sent))
        assert windows == [(100, 100 * i, 100 * i + 99) for i in range(len(windows))]
        assert len(windows) >= senders.sent // 100 - 2
        readings = daemon.readings()
        assert not [box.name for box in readings.boxes if box.late or box.dead] and not breaches(readings)
    finally:
        daemon.stop(0.0)
