"""The clocks of streams: what moves a watermark, what must not, and what happens in silence."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalog.network import Arc, Network, PortRef, Stream
from catalog.schema import Schema
from engine.run.ingress import Ingress
from engine.run.network_file import read_network
from engine.run.taps import Taps
from router.event_time import (
    ARRIVAL_IDLE_NS,
    END_OF_TIME,
    MAX_SKEW_NS,
    EventTime,
    SteadyClock,
    StreamClock,
    make_clock,
    streams_met,
)
from router.routes import Routes
from storage.manager import StorageManager
from storage.train import NO_WATERMARK, Train
from tests.unit.storage_harness import make_storage

S = 10**9
NOW = 1_700_000_000 * S
SCHEMA = Schema.of(ts="timestamp", n="bigint")
YEAR_2100 = 4_102_444_800 * S


def train_of(*times: int, arrival_ns: int = NOW) -> Train:
    return Train.from_pylists(SCHEMA, {"ts": list(times), "n": list(range(len(times)))}, arrival_ns)


def clock(**settings: Any) -> StreamClock:
    return StreamClock(0, started_ns=NOW, **settings)


def test_the_watermark_is_the_newest_time_less_the_slack() -> None:
    it = clock(slack_ns=2 * S)
    assert it.stamp(train_of(NOW, NOW - 5 * S, NOW - S), NOW).watermark_ns == NOW - 2 * S
    assert it.stamp(train_of(NOW - 60 * S), NOW + S).watermark_ns == NOW - 2 * S  # disorder does not move it back


@given(st.lists(st.lists(st.integers(-100, 100), max_size=5), max_size=20), st.integers(0, 50))
def test_watermarks_never_go_back_and_no_tuple_within_the_slack_is_late(trains: list[list[int]], slack: int) -> None:
    it = clock(slack_ns=slack)
    last, seen = NO_WATERMARK, []
    for times in trains:
        out = it.stamp(train_of(*(NOW + t for t in times)), NOW)
        seen += times
        if times:
            assert out.watermark_ns == NOW + max(seen) - slack
        assert out.watermark_ns == NO_WATERMARK or out.watermark_ns >= last
        last = max(last, out.watermark_ns)


def test_a_tuple_from_the_year_2100_is_refused_and_moves_nothing() -> None:
    it = clock(slack_ns=S)
    out = it.stamp(train_of(NOW - S, YEAR_2100, NOW, NOW + MAX_SKEW_NS, NOW + MAX_SKEW_NS + 1), NOW)
    assert out.to_pydict() == {"ts": [NOW - S, NOW, NOW + MAX_SKEW_NS], "n": [0, 2, 3]}
    assert it.refused == 2
    assert out.watermark_ns == NOW + MAX_SKEW_NS - S
    alone = it.stamp(train_of(YEAR_2100), NOW)
    assert (alone.count, alone.watermark_ns) == (0, NO_WATERMARK)
    assert it.watermark_ns == NOW + MAX_SKEW_NS - S


def test_a_stream_by_arrival_refuses_nothing_and_does_not_look_into_columns() -> None:
    it = StreamClock(None, started_ns=NOW)
    assert it.stamp(train_of(YEAR_2100, arrival_ns=NOW + 3), NOW + 3).watermark_ns == NOW + 3
    assert it.refused == 0 and it.idle_ns == ARRIVAL_IDLE_NS


def test_a_silent_stream_moves_on_with_the_clock() -> None:
    it = clock(slack_ns=S, idle_ns=5 * S)
    it.stamp(train_of(NOW), NOW)
    assert it.idle_watermark(NOW + 5 * S - 1) is None
    watermark_ns = it.idle_watermark(NOW + 5 * S)
    assert watermark_ns == NOW + 4 * S
    # The ticker announces it with a train of no tuples, which is no sign of life.
    assert it.stamp(Train.empty(SCHEMA, watermark_ns), NOW + 5 * S).watermark_ns == watermark_ns
    assert it.idle_watermark(NOW + 5 * S) is None  # nothing new
    assert it.idle_watermark(NOW + 6 * S) == NOW + 5 * S
    it.stamp(train_of(NOW + 7 * S), NOW + 7 * S)
    assert it.idle_watermark(NOW + 11 * S) is None


def test_a_sender_that_is_always_behind_is_not_made_late_by_its_silence() -> None:
    it = clock(idle_ns=5 * S)
    it.stamp(train_of(NOW - 30 * S), NOW)
    assert it.idle_watermark(NOW + 10 * S) == NOW - 20 * S


def test_a_replay_of_the_past_that_falls_silent_is_over() -> None:
    it = clock(idle_ns=5 * S)
    it.stamp(train_of(NOW - 1000 * MAX_SKEW_NS), NOW)
    assert it.idle_watermark(NOW + 5 * S) == NOW + 5 * S - MAX_SKEW_NS


def test_the_clock_starts_with_the_first_tuple_and_not_with_silence() -> None:
    it = clock(idle_ns=5 * S)
    assert it.idle_watermark(NOW + 10**6 * S) is None
    january_ns = NOW - 300 * 24 * 3600 * S
    assert it.stamp(train_of(january_ns), NOW + 10**6 * S).watermark_ns == january_ns
    by_arrival = StreamClock(None, started_ns=NOW)
    assert by_arrival.idle_watermark(NOW + S) == NOW + S, "no tuple arrives in the past"


def test_a_stream_that_never_spoke_follows_those_that_it_meets_after_idle() -> None:
    it, other, ended = clock(idle_ns=5 * S), clock(), clock()
    it.met = [other, ended]
    ended.stamp(Train.empty(SCHEMA, END_OF_TIME), NOW)
    assert it.idle_watermark(NOW + 5 * S) is None, "the other has not begun either"
    other.stamp(train_of(NOW - 60 * S), NOW)
    assert it.idle_watermark(NOW + 4 * S) is None
    assert it.idle_watermark(NOW + 5 * S) == NOW - 60 * S, "or the other would wait for it for ever"
    it.stamp(train_of(NOW - 50 * S), NOW)
    other.stamp(train_of(NOW), NOW)
    assert it.idle_watermark(NOW + 4 * S) is None, "from its first tuple on it has a clock of its own"


def test_a_restart_keeps_the_lag_and_counts_silence_anew() -> None:
    before = clock(idle_ns=5 * S)
    before.stamp(train_of(NOW - 30 * S), NOW)
    after = clock(idle_ns=5 * S)
    after.restore(before.snapshot())
    after.count_silence_from(NOW + 100 * S)
    assert after.idle_watermark(NOW + 104 * S) is None
    assert after.idle_watermark(NOW + 105 * S) == NOW + 75 * S, "a sender that is always 30 s behind is not late"


def test_without_idle_a_stream_by_event_time_waits() -> None:
    it = clock()
    it.stamp(train_of(NOW), NOW)
    assert it.idle_watermark(NOW + 10**6 * S) is None


def test_a_heartbeat_is_a_tuple_without_content() -> None:
    it = clock(slack_ns=S, idle_ns=5 * S)
    assert it.heartbeat(NOW, NOW) == NOW - S
    assert it.stamp(Train.empty(SCHEMA, NOW - S), NOW).watermark_ns == NOW - S
    assert it.heartbeat(NOW - S, NOW + S) is None  # nothing new, and yet a sign of life
    assert it.idle_watermark(NOW + 5 * S) is None
    assert it.heartbeat(YEAR_2100, NOW) is None and it.refused == 1
    assert it.watermark_ns == NOW - S


def test_an_old_promise_is_no_news() -> None:
    it = clock()
    it.stamp(train_of(NOW), NOW)
    assert it.stamp(Train.empty(SCHEMA, NOW), NOW).watermark_ns == NO_WATERMARK
    assert it.stamp(Train.empty(SCHEMA), NOW).watermark_ns == NO_WATERMARK
    assert it.stamp(Train.empty(SCHEMA, END_OF_TIME), NOW).watermark_ns == END_OF_TIME


def test_a_promise_survives_a_restart() -> None:
    it = clock(slack_ns=S)
    it.stamp(train_of(NOW, YEAR_2100), NOW)
    again = clock(slack_ns=S)
    again.restore(it.snapshot())
    assert (again.watermark_ns, again.newest_ns, again.refused) == (NOW - S, NOW, 1)
    assert again.stamp(train_of(NOW - 60 * S), NOW).watermark_ns == NOW - S


# -- wired into the routes ------------------------------------------------------------------------------------------


def network_of(*, time_field: str | None, timed: bool) -> Network:
    stream = Stream(0, "trades", SCHEMA, (0,), time_field, 0, "block", None)
    return Network((stream,), (), (Arc(0, "trades->w", PortRef(stream=0), SCHEMA, box=0, timed=timed),), ())


def ingress_of(network: Network, storage: StorageManager, event_time: EventTime) -> Ingress:
    """An ingress into a network whose scheduler does nothing."""
    loop = SimpleNamespace(wake=lambda: None)
    routes = Routes(storage, lambda arcs, train, nbytes: None, lambda: None, [])
    taps = Taps(network, on_change=lambda: None, kept={})
    pool: Any = None
    return Ingress(network, storage, routes, loop, pool, taps, [None], {}, event_time, None, lambda: NOW)  # type: ignore[arg-type]


def test_received_is_admitted_and_refused() -> None:
    network = network_of(time_field="ts", timed=True)
    storage = make_storage(1, 2**20)
    event_time = EventTime(network, lambda: NOW)
    ingress = ingress_of(network, storage, event_time)
    for times in ([NOW, YEAR_2100, NOW - S], [YEAR_2100], [NOW + S]):
        ingress.admit(0, train_of(*times))
    assert (ingress.admitted, ingress.rejected_skew) == ([3], [2])
    queued = Train.concat(storage.take(0, 100, 100)[0])
    assert queued.to_pydict()["ts"] == [NOW, NOW - S, NOW + S] and queued.watermark_ns == NOW + S
    news = event_time.heartbeat(0, NOW + 2 * S)
    assert news is not None
    ingress.admit(0, news)
    ingress.admit(0, news)  # old by now: not even queued
    assert [t.watermark_ns for t in storage.take(0, 100, 100)[0]] == [NOW + 2 * S]
    ingress.admit(0, event_time.end(0))
    assert storage.take(0, 100, 100)[0][0].watermark_ns == END_OF_TIME


def test_a_stream_at_rest_stays_where_it_is_and_follows_only_whom_it_meets() -> None:
    schema = "{schema: {ts: timestamp, n: bigint}, time: ts}"
    network = read_network(
        f"""
streams: {{files: {schema}, live: {schema}, apart: {schema}}}
boxes:
  both: {{union: [files, live]}}
  w: {{aggregate: both, window: {{tumbling: 1s}}, select: {{n: "count(*)"}}}}
  alone: {{aggregate: apart, window: {{tumbling: 1s}}, select: {{n: "count(*)"}}}}
outputs: {{a: {{from: w}}, b: {{from: alone}}}}
""",
        {},
    )
    assert streams_met(network) == [[1], [0], []]
    event_time = EventTime(network, lambda: NOW)
    files, live, apart = [c for c in event_time.clocks if c is not None]
    files.stamp(train_of(NOW - 60 * S), NOW)
    apart.stamp(train_of(NOW), NOW)
    live.stamp(train_of(NOW - 90 * S), NOW)
    event_time.source_exhausted(0)
    event_time.source_exhausted(2)
    assert files.idle_watermark(NOW) is None, "it is ahead of those that it meets"
    live.stamp(train_of(NOW - 30 * S), NOW)
    assert files.idle_watermark(NOW + 10**6 * S) == NOW - 30 * S, "or the union would wait for it for ever"
    assert live.idle_watermark(NOW + 10**6 * S) is None and apart.idle_watermark(NOW + 10**6 * S) is None
    assert files.stamp(train_of(NOW - 20 * S), NOW).watermark_ns == NOW - 20 * S


def test_only_who_is_read_has_a_clock() -> None:
    plain, by_arrival = network_of(time_field=None, timed=False), network_of(time_field=None, timed=True)
    assert make_clock(plain, plain.streams[0], NOW) is None
    assert make_clock(by_arrival, by_arrival.streams[0], NOW) is not None
    refusing = network_of(time_field="ts", timed=False)
    assert make_clock(refusing, refusing.streams[0], NOW) is not None
    assert EventTime(plain, lambda: NOW).heartbeat(0, NOW) is None


# -- the time of day ------------------------------------------------------------------------------------------------


class Clocks:
    def __init__(self) -> None:
        self.wall_ns, self.running_ns = NOW, 77

    def run(self, ns: int) -> None:
        self.wall_ns += ns
        self.running_ns += ns


def steady(clocks: Clocks) -> SteadyClock:
    return SteadyClock(lambda: clocks.wall_ns, lambda: clocks.running_ns)


@pytest.mark.parametrize("jump_s", [3600, -3600, 10**9])
def test_a_jump_is_not_followed_at_once(jump_s: int) -> None:
    clocks = Clocks()
    it = steady(clocks)
    clocks.wall_ns += jump_s * S
    clocks.run(S)
    assert it() == NOW + S
    clocks.wall_ns -= jump_s * S  # a slip, put right
    clocks.run(S)
    assert it() == NOW + 2 * S and it.jumps == 1


def test_a_jump_that_stands_is_believed() -> None:
    clocks = Clocks()
    it = steady(clocks)
    clocks.wall_ns += 3600 * S
    it()
    clocks.run(SteadyClock.PATIENCE_NS)
    assert it() == clocks.wall_ns


def test_time_that_is_ahead_runs_slower_and_never_back() -> None:
    clocks = Clocks()
    it = steady(clocks)
    clocks.wall_ns -= 100 * S
    seen = [it()]
    for _ in range(400):
        clocks.run(S)
        seen.append(it())
    assert np.all(np.diff(seen) >= S // 2)
    assert seen[-1] == clocks.wall_ns


def test_drift_is_followed() -> None:
    clocks = Clocks()
    it = steady(clocks)
    for _ in range(100):
        clocks.run(S)
        clocks.wall_ns += S // 100
    # Never asked in between, so it looks like a jump of one second; asked all the time it does not.
    assert it.jumps == 0 and it() == NOW + 100 * S and it.jumps == 1
    clocks, it = Clocks(), it
    it = steady(clocks)
    for _ in range(100):
        clocks.run(S)
        clocks.wall_ns += S // 100
        it()
    assert it() == clocks.wall_ns and it.jumps == 0
