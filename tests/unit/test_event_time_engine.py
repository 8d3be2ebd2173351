"""Event time through the whole engine, with a clock of the test's own: silence, the far future, a clock that jumps."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from engine.run.core import Engine
from engine.run.network_file import read_network
from engine.run.ticker import Ticker
from router.event_time import EventTime, SteadyClock
from storage.train import Train

S = 10**9
NOW = 1_700_000_000 * S
YEAR_2100 = 4_102_444_800 * S

NETWORK = """
http: {listen: off}
streams:
  trades: {schema: {ts: timestamp, k: string}, time: ts, slack: 1s, idle: 5s}
  quotes: {schema: {ts: timestamp, k: string, bid: double}, time: ts, idle: 5s}
boxes:
  counted: {aggregate: trades, window: {tumbling: 10s}, by: [k], select: {n: "count(*)"}}
  priced: {join: [trades, quotes], on: "l.k = r.k", within: 1s, type: left, select: {ts: l.ts, k: l.k, bid: bid}}
outputs: {windows: {from: counted}, pairs: {from: priced}}
"""


class Clock:
    def __init__(self) -> None:
        self.wall_ns = NOW
        self.running_ns = 0

    def run(self, ns: int) -> None:
        self.wall_ns += ns
        self.running_ns += ns


class Running:
    """An engine with its clocks and its ticker, but no thread that ticks."""

    def __init__(self) -> None:
        self.network = read_network(NETWORK, {})
        self.clock = Clock()
        now_ns = SteadyClock(lambda: self.clock.wall_ns, lambda: self.clock.running_ns)
        self.now_ns = now_ns
        self.event_time = EventTime(self.network, now_ns)
        self.out: dict[str, list[tuple[object, ...]]] = {o.name: [] for o in self.network.outputs}
        outlets = [self._outlet(o.name) for o in self.network.outputs]
        self.engine = Engine(self.network, outlets, workers=1, event_time=self.event_time, now_ns=now_ns)
        self.ticker = Ticker(self.engine, self.event_time)

    def _outlet(self, name: str):  # type: ignore[no-untyped-def]
        return lambda train: self.out[name].extend(train.to_rows())

    def feed(self, stream: str, *times: int) -> None:
        node = self.network.stream(stream)
        data: dict[str, list[object]] = {"ts": list(times), "k": ["a"] * len(times), "bid": [1.5] * len(times)}
        self.engine.ingress.admit(node.number, Train.from_pylists(node.schema, data, self.now_ns()))
        assert self.engine.drain(20)

    def wait(self, seconds: int) -> None:
        """Time goes by, with ten ticks a second."""
        for _ in range(10 * seconds):
            self.clock.run(S // 10)
            self.ticker.tick(self.now_ns())
        assert self.engine.drain(20)


@contextmanager
def running() -> Iterator[Running]:
    it = Running()
    it.engine.start()
    try:
        yield it
    finally:
        it.engine.stop()


def windows(it: Running) -> list[tuple[object, object]]:
    return [(row[1], row[-1]) for row in it.out["windows"]]


def test_the_last_window_of_a_silent_stream_comes_out() -> None:
    with running() as it:
        it.feed("trades", NOW, NOW + 2 * S, NOW + S)
        it.wait(4)
        assert windows(it) == []
        it.wait(12)
        assert windows(it) == [(NOW, 3)]
        # And it did not hold up the join: its left tuples have found nobody, and say so.
        assert sorted(it.out["pairs"]) == [(NOW, "a", None), (NOW + S, "a", None), (NOW + 2 * S, "a", None)]
        assert all(r.reading().late == 0 for r in it.engine.runtimes)


def test_old_data_after_a_silent_start_are_not_late_on_either_side_of_a_join() -> None:
    january_ns = NOW - 300 * 24 * 3600 * S
    with running() as it:
        it.wait(20)
        it.feed("trades", january_ns, january_ns + S)
        it.feed("quotes", january_ns)
        it.wait(8)
        assert [n for _, n in windows(it)] == [2]
        assert sorted(row[2] is None for row in it.out["pairs"]) == [False, False]
        assert all(r.reading().late == 0 for r in it.engine.runtimes)


def test_a_pause_of_idle_ends_a_replay_and_says_how_late_the_rest_is() -> None:
    """What idle may do to old data: after the pause the stream is with the clock, and the rest of the file is late."""
    january_ns = NOW - 300 * 24 * 3600 * S
    with running() as it:
        it.feed("trades", january_ns)
        it.wait(6)
        it.feed("trades", january_ns + S)
        counted = next(r.reading() for r in it.engine.runtimes if r.node.name == "counted")
        assert counted.late == 1
        assert 299 * 24 * 3600 * S < counted.late_by_ns < 301 * 24 * 3600 * S


def test_the_year_2100_changes_nothing() -> None:
    with running() as it:
        for times in ([NOW], [YEAR_2100, NOW + S], [YEAR_2100], [NOW + 3 * S, YEAR_2100 + 1]):
            it.feed("trades", *times)
        it.feed("quotes", NOW + S, YEAR_2100)
        it.wait(20)
        assert windows(it) == [(NOW, 3)]
        assert sorted(row[2] is None for row in it.out["pairs"]) == [False, False, True]
        assert it.engine.ingress.rejected_skew == [3, 1] and it.engine.ingress.admitted == [3, 1]
        assert all(r.reading().late == 0 for r in it.engine.runtimes)


def test_a_clock_that_jumps_closes_nothing_early() -> None:
    with running() as it:
        it.feed("trades", NOW)
        it.clock.wall_ns += 7 * 24 * 3600 * S
        it.wait(2)
        assert windows(it) == []
        it.clock.wall_ns -= 7 * 24 * 3600 * S
        it.feed("trades", NOW + 2 * S)
        it.wait(20)
        assert windows(it) == [(NOW, 2)]


def test_a_heartbeat_closes_a_window() -> None:
    with running() as it:
        it.feed("trades", NOW)
        news = it.event_time.heartbeat(it.network.stream("trades").number, NOW + 11 * S)
        assert news is not None
        it.engine.ingress.admit(it.network.stream("trades").number, news)
        assert it.engine.drain(20)
        assert windows(it) == [(NOW, 1)]
