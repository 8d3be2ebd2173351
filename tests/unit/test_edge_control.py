"""Which share of a stream is decoded: a pure function, driven here by a decoder that can do a known number of rows."""

from __future__ import annotations

import pytest

from catalog.edge_load import EdgeLoad, StreamEdge
from catalog.readings import EdgeReading, EngineReading, Readings, StreamReading
from engine.run.network_file import read_network
from load_shedder.apply.limits import edge_waits_ns
from load_shedder.decide.edge import StreamShare, steer_edge
from qos_monitor.conservation import residuals
from qos_monitor.edge_load import EdgeMeter

TICK_NS = 100_000_000
ROW_NS = 1_000.0


def drive(offered: list[float], can_do: float, strict: bool = False) -> list[float]:
    """Return the shares over ticks with these rows a second, where decoding can do ``can_do`` of them."""
    state: tuple[StreamShare, ...] = ()
    found = []
    for i, rate in enumerate(offered):
        share = state[0].share if state else 1.0
        late = share * rate > can_do
        load = EdgeLoad((i + 1) * TICK_NS, (StreamEdge(rate, ROW_NS, True, late),))
        state = steer_edge(state, load, [strict])
        found.append(state[0].share)
    return found


def test_below_the_knee_all_is_decoded() -> None:
    assert set(drive([700_000.0] * 50, 1e6)) == {1.0}


@pytest.mark.parametrize("rate", [1.5e6, 3e6, 20e6])
def test_a_step_settles_within_a_second_and_near_what_can_be_done(rate: float) -> None:
    shares = drive([rate] * 100, 0.9e6)  # less than the cost of a row says
    wanted = 0.9e6 / rate
    assert all(0.8 * wanted <= s <= 1.1 * wanted for s in shares[10:])


def test_full_delivery_is_back_within_two_seconds() -> None:
    shares = drive([3e6] * 50 + [0.5e6] * 30, 1e6)
    assert shares[49] < 0.4 and shares[70] == 1.0


def test_a_short_hiccup_drops_nothing_and_a_strict_stream_waits_longer() -> None:
    assert set(drive([3e6] + [0.5e6] * 10, 1e6)) == {1.0}
    lossy, strict = drive([3e6] * 6, 1e6), drive([3e6] * 6, 1e6, strict=True)
    assert lossy.index(min(lossy)) < strict.index(min(strict)) and strict[2] == 1.0


def test_a_stream_that_fits_and_is_late_for_half_a_second_loses_nothing() -> None:
    assert set(drive([0.7e6] * 8 + [0.5e6] * 10, 0.6e6)) == {1.0}
    assert drive([0.7e6] * 15, 0.6e6)[-1] < 1.0, "a cost that is measured too low does not last"


def test_hiccups_do_not_keep_the_share_below_what_decoding_can_do() -> None:
    """Late now and then, whatever is decoded: another process has the cores for a moment."""
    state: tuple[StreamShare, ...] = ()
    shares = []
    for i in range(100):
        used = (state[0].share if state else 1.0) * 3e6
        late = used > 1e6 or i % 5 == 0
        load = EdgeLoad((i + 1) * TICK_NS, (StreamEdge(3e6, ROW_NS, True, late),))
        state = steer_edge(state, load, [False])
        shares.append(state[0].share)
    assert sum(shares[20:]) / 80 > 0.88 / 3


@pytest.mark.parametrize("io", [0.2, 0.9])
def test_a_stream_that_is_late_while_the_decoder_is_idle_gets_no_smaller_share(io: float) -> None:
    """At first each row seems to cost ten times as much, because another thread has the GIL. Then rows stay late for a
    reason that has nothing to do with decoding."""
    state: tuple[StreamShare, ...] = ()
    shares = []
    for i in range(100):
        cost_ns = 10 * ROW_NS if i < 10 else ROW_NS
        load = EdgeLoad((i + 1) * TICK_NS, (StreamEdge(3e6, cost_ns, True, i % 10 != 5),), {"io": io})
        state = steer_edge(state, load, [False])
        shares.append(state[0].share)
    if io < 0.5:
        assert min(shares[30:]) > 0.7 / 3, "three quarters of what decoding can do, or more"
    else:
        assert min(shares[30:]) < 0.1, "an I/O thread that is full is relieved"


def test_streams_that_may_not_be_shed_come_first() -> None:
    both = (StreamEdge(0.5e6, ROW_NS, False, False), StreamEdge(2e6, ROW_NS, True, True))
    state: tuple[StreamShare, ...] = ()
    for i in range(5):
        state = steer_edge(state, EdgeLoad((i + 1) * TICK_NS, both), [False, False])
    assert state[0].share == 1.0 and state[1].share < 0.25


NET = """
streams:
  shed: {schema: {ts: timestamp, v: double}, time: ts, overload: shed}
  wait: {schema: {ts: timestamp, v: double}, time: ts}
  whole: {schema: {ts: timestamp, v: double}, time: ts, overload: shed}
  rough: {schema: {ts: timestamp, v: double}, time: ts, overload: shed}
boxes:
  a: {filter: shed, where: v > 1}
  b: {aggregate: whole, window: {tumbling: 1s}, select: {n: count(*)}}
  c: {aggregate: rough, window: {tumbling: 1s}, select: {n: count(*)}, approximate: true}
outputs:
  oa: {from: a, qos: {deadline: 200ms, dead: 1s}}
  ow: {from: wait}
  ob: {from: b, qos: {deadline: 1s, lossy: 20%}}
  oc: {from: c, qos: {deadline: 100s, lossy: 20%}}
"""


def test_only_streams_that_shed_and_have_no_exact_window_behind_them_are_dropped_undecoded() -> None:
    network = read_network(NET, {})
    named = {network.streams[number].name: wait_ns for number, wait_ns in edge_waits_ns(network).items()}
    assert named == {"shed": 50_000_000, "rough": 250_000_000}


def reading(at_ns: int, received: int, dropped: int, decode_ns: int, **edge: int) -> Readings:
    gone = {"sampled": dropped} if dropped else {}
    stream = StreamReading("s", received, received - dropped, edge=EdgeReading(True, 1.0, gone, decode_ns, **edge))
    return Readings(streams=[stream], engine=EngineReading(now_ns=at_ns))


def test_the_load_of_decoding_counts_what_is_dropped_too() -> None:
    meter = EdgeMeter({0: 50_000_000})
    for i in range(30):
        meter.fold(reading(i * TICK_NS, 300_000 * i, 200_000 * i, int(100_000 * i * ROW_NS)))
    assert meter.load.resources["decode"] == pytest.approx(3.0, rel=0.01)
    assert not meter.load.streams[0].is_late


def test_a_socket_that_is_never_empty_makes_its_stream_late() -> None:
    meter = EdgeMeter({0: 50_000_000})
    meter.fold(reading(0, 0, 0, 0))
    assert meter.fold(reading(TICK_NS, 1_000, 0, 1_000, behind_ns=90_000_000)).streams[0].is_late


def test_the_law_of_a_stream_counts_what_was_dropped_undecoded() -> None:
    assert residuals(reading(1, 1_000, 400, 0))["stream"] == 0
    broken = reading(1, 1_000, 400, 0)
    broken = broken._replace(streams=[broken.streams[0]._replace(admitted=599)])
    assert residuals(broken)["stream"] == 1
