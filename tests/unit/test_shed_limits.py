"""What is lost without a plan: streams that overflow, tuples that are too old for every output."""

from __future__ import annotations

from time import time_ns
from typing import Any

import numpy as np
import pytest

from catalog.qos import QoSGraph
from engine.run.network_file import read_network
from load_shedder.apply.limits import Expiry, overflowing_streams, worth_ns
from scheduler.deadlines import dead_at_head, hopeless_ages_ns
from scheduler.events import Enqueued
from storage.train import Train
from tests.unit.shed_harness import Shedder, shedder

MS = 10**6

MIXED = """
streams:
  s: {{schema: {{n: bigint}}, overload: {overload}}}
  b: {{schema: {{n: bigint}}, overload: block}}
boxes:
  slow: {{universal: s, cost: {cost}}}
  next: {{map: slow, add: {{m: "n + 1"}}}}
  other: {{universal: b, cost: 10us}}
outputs:
  out: {{from: next, qos: {qos}}}
  kept: {{from: other, qos: {{deadline: 1ms}}}}
"""


def mixed(overload: str = "shed", cost: str = "50us", qos: str = "{lossy: 50%}") -> str:
    return MIXED.format(overload=overload, cost=cost, qos=qos)


def feed(s: Shedder, stream: str, count: int, size: int = 100, first: int = 0) -> None:
    known = s.network.stream(stream)
    for start in range(first, first + count, size):
        train = Train.from_pylists(known.schema, {"n": list(range(start, start + size))}, time_ns())
        assert s.engine.ingress.admit(known.number, train, timeout_s=20)


def test_a_stream_that_sheds_overflows_and_one_that_blocks_waits() -> None:
    with shedder(mixed(), workers=2, memory_bytes=20_000) as s:
        assert set(s.engine.ingress.overflowing) == {0}
        for first in range(0, 20_000, 1_000):
            feed(s, "s", 1_000, first=first)
            feed(s, "b", 200, first=first)
        s.close()
        lost = s.dropped("s->slow")
        assert lost.keys() == {"overflow"}
        assert len(s.rows["out"]) == 20_000 - lost["overflow"]
        assert [row[0] for row in s.rows["kept"]] == [f + i for f in range(0, 20_000, 1_000) for i in range(200)]
        assert s.engine.storage.peak_bytes < 25_000
        [dropped] = s.engine.shedding.to_json()["dropped"]
        assert dropped == {"arc": "s->slow", "reason": "overflow", "tuples": lost["overflow"], "intended": False}


@pytest.mark.parametrize(
    ("network", "streams"),
    [
        (mixed(), {0}),
        (mixed(overload="block"), set()),
        (mixed(overload="spill"), set()),
        (mixed(qos="{deadline: 1s}"), set()),  # an output that does not say what a loss is worth loses nothing
    ],
)
def test_which_streams_overflow(network: str, streams: set[int]) -> None:
    assert overflowing_streams(read_network(network, {})) == streams


def test_a_stream_before_a_box_that_may_lose_nothing_waits() -> None:
    text = """
    streams: {s: {schema: {ts: timestamp, k: string}, time: ts, overload: shed}}
    boxes: {once: {dedup: s, by: [k], within: 1s}}
    outputs: {out: {from: once, qos: {lossy: 50%}}}
    """
    assert overflowing_streams(read_network(text, {})) == set()


def test_windows_that_lost_tuples_to_overflow_do_not_come_out() -> None:
    text = """
    streams: {s: {schema: {ts: timestamp, v: bigint}, time: ts, overload: shed}}
    boxes:
      slow: {universal: s, cost: 100us}
      agg: {aggregate: slow, window: {tumbling: 100ms}, select: {n: "count(*)"}, bounds: [window_start]}
    outputs: {out: {from: agg, qos: {lossy: 50%}}}
    """
    with shedder(text, workers=1, memory_bytes=20_000) as s:
        s.feed("s", {"ts": [i * MS for i in range(20_000)], "v": [1] * 20_000}, 100, "ts")
        s.close()
        assert s.dropped("s->slow")["overflow"] > 0
        assert {row[1] for row in s.rows["out"]} == {100}
        assert len(s.rows["out"]) < 200


def test_windows_that_a_policy_takes_tuples_from_do_not_come_out() -> None:
    """Batch policies throw away what misses its deadline, whatever lies behind: the window must know."""
    text = """
    streams: {s: {schema: {ts: timestamp, v: bigint}, time: ts}}
    boxes: {agg: {aggregate: s, window: {tumbling: 100ms}, select: {n: "count(*)"}, bounds: [window_start]}}
    outputs: {out: {from: agg}}
    """
    s = Shedder(read_network(text, {}), workers=1)
    s.feed("s", {"ts": [i * MS for i in range(1_000)], "v": [1] * 1_000}, 50, "ts")
    _, dropped, _ = s.engine.storage.expire(0, 120, 3)
    assert dropped == 120
    assert s.engine.shedding.counts() == {(0, "expired"): 120}
    losses = s.engine.shedding.book.boxes[0]
    starts = np.arange(0, 1_000 * MS, 100 * MS)
    spoiled = losses.spoiled(starts, starts + 100 * MS)
    assert spoiled is not None
    assert np.flatnonzero(spoiled).tolist() == [0, 1]


# -- deadlines ----------------------------------------------------------------------------------------------------


def latencies(network: str, count: int, **options: Any) -> tuple[Shedder, list[float]]:
    found: list[float] = []
    with shedder(network, workers=1, **options) as s:

        def deliver(train: Train) -> None:
            found.extend(((time_ns() - train.arrival_ns) / MS).tolist())

        s.engine.deliveries[0]._readers = deliver
        feed(s, "s", count, 20)
        s.close()
    return s, found


def test_what_no_output_would_have_in_time_is_dropped_and_the_rest_is_in_time() -> None:
    """A second of work comes at once; what it is worth is gone after 200 ms."""
    text = mixed(cost="100us", qos="{deadline: 50ms, dead: 200ms}")
    s, delivered = latencies(text, 10_000)
    expired = s.dropped("s->slow").get("expired", 0)
    assert expired > 1_000
    assert len(delivered) == 10_000 - expired
    assert sum(ms > 260 for ms in delivered) < 0.2 * len(delivered)


@pytest.mark.parametrize(
    ("overload", "qos"),
    [
        ("block", "{deadline: 1ms, dead: 2ms}"),  # nothing is lost of a stream that blocks
        ("shed", "{latency: [[0ms, 1.0], [2ms, 0.1]]}"),  # late is worth something
        ("shed", "{lossy: 50%}"),
    ],
)
def test_where_nothing_expires(overload: str, qos: str) -> None:
    s, delivered = latencies(mixed(overload, "20us", qos), 2_000)
    assert s.dropped("s->slow") == {}
    assert len(delivered) == 2_000


def test_no_tuple_expires_before_a_window_or_a_join() -> None:
    text = """
    streams: {s: {schema: {ts: timestamp, v: bigint}, time: ts, overload: shed}}
    boxes:
      f: {filter: s, where: "v > 0"}
      agg: {aggregate: f, window: {tumbling: 1s}, select: {n: "count(*)"}}
      pairs: {join: [f, f], on: "l.v = r.v", within: 1s}
      g: {filter: agg, where: "n > 1"}
    outputs: {out: {from: g, qos: {deadline: 1s}}, joined: {from: pairs, qos: {deadline: 1s}}}
    """
    network = read_network(text, {})
    assert {network.arcs[a].name for a in Expiry(network).points()} == {"agg->g"}


def test_before_a_join_tuples_expire_by_its_band_later_while_all_outputs_behind_it_are_shed() -> None:
    """A queue before a join held two seconds of tuples, and all of their pairs expired behind it."""
    network = read_network(
        """
http: {listen: "off"}
streams:
  l: {schema: {ts: timestamp, k: string}, time: ts, overload: shed}
  r: {schema: {ts: timestamp, k: string}, time: ts, overload: shed}
boxes:
  pairs: {join: [l, r], on: "l.k = r.k", within: {before: 40ms, after: 20ms}, select: {k: "l.k"}}
  outer: {join: [l, r], on: "l.k = r.k", within: 40ms, type: left}
  asof: {join: [l, r], on: "l.k = r.k", asof: true, within: 40ms}
  some: {filter: pairs, where: "k <> ''"}
outputs:
  first: {from: some, qos: {deadline: 100ms, dead: 1100ms, lossy: 10%}}
  second: {from: pairs, qos: {deadline: 2s, dead: 3s, lossy: 10%}}
  third: {from: outer, qos: {deadline: 2s, dead: 3s, lossy: 10%}}
  fourth: {from: asof, qos: {deadline: 2s, dead: 3s, lossy: 10%}}
"""
    )
    expiry, outputs = Expiry(network), {o.name: o.number for o in network.outputs}
    named = {a.name: a.number for a in network.arcs}
    before = {named["l->pairs.0"], named["r->pairs.1"]}
    assert not before & expiry.points().keys(), "without a plan an old tuple may make a fresh result"
    assert not before & expiry.points({outputs["first"]}).keys()
    found = expiry.points(set(outputs.values()))
    assert before <= found.keys() and {"l->outer.0", "r->outer.1", "l->asof.0"}.isdisjoint(
        network.arcs[a].name for a in found
    )
    assert dict(found[named["l->pairs.0"]]) == pytest.approx(
        {outputs["first"]: 240_000_000, outputs["second"]: 2_140_000_000}
    )


def test_the_latest_dead_point_less_the_way_there_counts() -> None:
    text = """
    streams: {s: {schema: {v: bigint}, overload: shed}}
    boxes: {f: {filter: s, where: "v > 0"}}
    outputs: {a: {from: f, qos: {deadline: 1s, dead: 3s}}, b: {from: f, qos: {latency: [[0s, 1], [2s, 0], [9s, 0]]}}}
    """
    network = read_network(text, {})
    points = Expiry(network).points()
    assert points == {0: ((0, 3_000 * MS), (1, 2_000 * MS))}
    assert hopeless_ages_ns(points, [{0: 100.0 * MS, 1: 0.0}], network) == {0: 2_900 * MS}


def test_a_train_counts_by_its_youngest() -> None:
    def entry(first_ns: int, last_ns: int, tuples: int = 10) -> Enqueued:
        return Enqueued((0,), tuples, first_ns, (first_ns + last_ns) // 2, 0)

    entries = [entry(0, 10), entry(10, 20), entry(0, 0, 0), entry(16, 40), entry(16, 17)]
    assert [dead_at_head(entries, at) for at in (10, 11, 21, 40, 41, 50)] == [0, 10, 20, 20, 40, 40]


def test_tuples_of_an_output_that_is_shed_expire_while_a_new_one_is_worth_more() -> None:
    network = read_network(
        """
http: {listen: "off"}
streams: {s: {schema: {x: double}, overload: shed}}
boxes: {a: {universal: s}, b: {universal: a}}
outputs:
  first: {from: a, qos: {deadline: 100ms, dead: 1100ms, lossy: 10%}}
  second: {from: b, qos: {deadline: 2s, dead: 3s, lossy: 10%}}
"""
    )
    expiry, first, second = Expiry(network), network.output("first").number, network.output("second").number
    by_name = {network.arcs[a].name: dict(points) for a, points in expiry.points({first}).items()}
    assert by_name["s->a"] == pytest.approx({first: 200_000_000, second: 3_000_000_000})
    assert by_name["a->b"] == {second: 3_000_000_000}
    assert expiry.points()[network.stream("s").arcs[0]] == ((first, 1_100_000_000), (second, 3_000_000_000))


def test_a_graph_that_keeps_its_worth_lets_nothing_expire_early() -> None:
    assert worth_ns(None) == worth_ns(QoSGraph(((0.0, 1.0), (1e9, 0.95)))) == 2**62
    assert worth_ns(QoSGraph(((0.0, 0.5), (1e9, 0.5), (2e9, 0.0)))) == pytest.approx(1.1e9)
