"""The aggregate box behind a stream with its clock: lateness, silence, a liar from the future, a time-out."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from engine.run.core import Engine
from engine.run.network_file import read_network
from engine.run.ticker import Ticker
from qos_monitor.conservation import box_residual
from router.event_time import EventTime
from storage.train import Train

SECOND = 10**9

NETWORK = """
streams: {{trades: {{schema: {{ts: timestamp, symbol: string, price: double}}, time: ts, slack: 200ms, idle: 2s}}}}
boxes:
  high: {{aggregate: trades, window: {{tumbling: 1s}}, by: [symbol], bounds: [window_start],
         select: {{high: "max(price)"}}{more}}}
outputs: {{out: {{from: high}}, late: {{from: high.late}}}}
"""


class Running:
    """An engine whose clock is ours."""

    def __init__(self, more: str = "") -> None:
        self.now_ns = 100 * SECOND
        self.network = read_network(NETWORK.format(more=more), {})
        self.rows: dict[str, list[tuple[Any, ...]]] = {o.name: [] for o in self.network.outputs}
        self.clocks = EventTime(self.network, lambda: self.now_ns)
        outlets = [self._outlet(o.name) for o in self.network.outputs]
        self.engine = Engine(self.network, outlets, event_time=self.clocks, now_ns=lambda: self.now_ns)
        self.ticker = Ticker(self.engine, self.clocks)

    def _outlet(self, name: str) -> Any:
        return lambda train: self.rows[name].extend(train.to_rows())

    def feed(self, **columns: list[Any]) -> None:
        columns["ts"] = [int(t * SECOND) for t in columns["ts"]]
        stream = self.network.stream("trades")
        assert self.engine.ingress.admit(
            stream.number, Train.from_pylists(stream.schema, columns, self.now_ns), timeout_s=10
        )
        self.rest()

    def wait(self, seconds: float) -> None:
        self.now_ns += int(seconds * SECOND)
        self.ticker.tick(self.now_ns)
        self.rest()

    def rest(self) -> None:
        assert self.engine.drain(10)

    def took(self, name: str) -> list[tuple[Any, ...]]:
        rows, self.rows[name] = sorted(self.rows[name]), []
        return rows


@contextmanager
def running(more: str = "") -> Iterator[Running]:
    r = Running(more)
    r.engine.start()
    try:
        yield r
        assert all(box_residual(reading) == 0 for reading in r.engine.readings.boxes())
    finally:
        r.engine.stop()


def test_what_comes_within_the_slack_counts_and_what_comes_later_leaves_by_its_port() -> None:
    with running() as r:
        r.feed(ts=[99.1, 100.1], symbol=["a", "a"], price=[1.0, 2.0])
        r.feed(ts=[99.9], symbol=["a"], price=[5.0])
        assert r.took("out") == []
        r.feed(ts=[100.2], symbol=["a"], price=[3.0])
        assert r.took("out") == [("a", 99 * SECOND, 5.0)]
        r.feed(ts=[99.95, 100.3], symbol=["a", "a"], price=[9.0, 1.0])
        assert r.took("late") == [(int(99.95 * SECOND), "a", 9.0)]
        [reading] = r.engine.readings.boxes()
        assert (reading.absorbed, reading.late) == (5, 1)


def test_one_tuple_from_the_year_2100_makes_nobody_late() -> None:
    with running() as r:
        r.feed(ts=[99.1, 4_102_444_800, 99.2], symbol=["a"] * 3, price=[1.0, 100.0, 2.0])
        r.feed(ts=[99.3, 100.2], symbol=["a", "a"], price=[3.0, 4.0])
        assert r.took("out") == [("a", 99 * SECOND, 3.0)]
        assert r.took("late") == []
        clock = r.clocks.clocks[0]
        assert clock is not None
        assert clock.refused == 1


def test_the_last_window_of_a_stream_that_falls_silent_comes_out() -> None:
    with running() as r:
        r.feed(ts=[99.5], symbol=["a"], price=[1.0])
        r.wait(1.9)
        assert r.took("out") == []
        r.wait(0.2)
        assert r.took("out") == [("a", 99 * SECOND, 1.0)]


def test_a_window_that_waits_too_long_comes_out_by_its_timeout() -> None:
    with running(", timeout: 500ms") as r:
        r.feed(ts=[99.5], symbol=["a"], price=[1.0])
        r.wait(0.1)
        r.wait(0.3)
        assert r.took("out") == []
        r.wait(0.3)
        assert r.took("out") == [("a", 99 * SECOND, 1.0)]
