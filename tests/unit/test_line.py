"""VPipe (P2 section 3): the application as one line, bitmaps on tuples, bypass, process, mark, in the order of time."""

from __future__ import annotations

import pytest

from engine.run.core import Engine
from engine.run.line import LineInbox
from engine.run.network_file import read_network
from engine.simulate.sketch import SCHEMA, NetworkSketch
from scheduler.claims import Claim
from scheduler.events import Enqueued
from scheduler.plan import Plan
from scheduler.policies import make_index, policies
from scheduler.state import SchedulerSettings, SchedulerState
from scheduler.superbox import lines
from scheduler.trains import TrainRule
from scheduler.traversal import expand
from storage.train import Train


def train(*rows: tuple[int, int], watermark_ns: int | None = None) -> Train:
    """Rows of (arrival, number)."""
    out = Train.from_pylists(SCHEMA, {"seq": [n for _, n in rows], "value": [0.0] * len(rows)}, [a for a, _ in rows])
    return out if watermark_ns is None else out.with_watermark(watermark_ns)


def numbers(found: list[tuple[int, Train]]) -> list[tuple[int, list[int]]]:
    return [(port, part.columns[0].tolist()) for port, part in found]


def test_the_tuples_of_all_arcs_form_one_queue_in_the_order_of_time() -> None:
    line = LineInbox({5: Claim([train((1, 10), (4, 11))], True), 7: Claim([train((2, 20), (3, 21), (9, 22))], True)})
    assert line.bitmaps.tolist() == [5, 7, 7, 5, 7]


def test_a_box_lets_pass_what_is_not_for_it_and_marks_its_results() -> None:
    line = LineInbox({5: Claim([train((1, 10), (4, 11))], True), 7: Claim([train((2, 20), (3, 21))], True)})
    assert numbers(line.bypass((5,))) == [(0, [10, 11])]
    assert line.bitmaps.tolist() == [7, 7], "they pass by"
    line.trains[8] = [train((4, 11))]
    line.mark((8,))
    assert line.bitmaps.tolist() == [7, 7, 8], "a result has the time stamp of its tuple"
    assert line.bypass((5,)) == [] and numbers(line.bypass((7,))) == [(0, [20, 21])]


def test_a_box_with_several_inputs_takes_them_in_the_order_of_time() -> None:
    claims = {
        5: Claim([train((1, 10), (4, 11)), train((6, 12), watermark_ns=50)], True),
        6: Claim([train((3, 20), (5, 21), (5, 22))], True),
        7: Claim([train((2, 30))], True),
    }
    line = LineInbox(claims)
    found = line.bypass((5, 6))
    assert numbers(found) == [(0, [10]), (1, [20]), (0, [11]), (1, [21, 22]), (0, [12])]
    assert [part.watermark_ns for _, part in found][-1] == 50 and line.bitmaps.tolist() == [7]


def test_an_arc_keeps_its_order_where_arrivals_do_not_rise() -> None:
    line = LineInbox({5: Claim([train((4, 10), (1, 11))], True), 6: Claim([train((2, 20))], True)})
    assert numbers(line.bypass((5, 6))) == [(1, [20]), (0, [10, 11])]


def test_a_punctuation_behind_the_last_tuple_reaches_its_input() -> None:
    line = LineInbox({5: Claim([train((1, 10))], True), 6: Claim([Train.empty(SCHEMA, 70)], True)})
    found = line.bypass((5, 6))
    assert numbers(found) == [(0, [10]), (1, [])] and found[1][1].watermark_ns == 70


def diamond() -> NetworkSketch:
    """b0 feeds b1 and b2, which a join b3 takes; b4 is another application."""
    sketch = NetworkSketch()
    start = sketch.box(sketch.stream())
    both = [sketch.box(start), sketch.box(start)]
    sketch.output(sketch.box(*both))
    sketch.output(sketch.box(sketch.stream()))
    return sketch


def test_an_application_is_one_line_with_what_it_shares() -> None:
    assert [line.boxes for line in lines(diamond().network())] == [(0, 1, 2, 3), (4,)]


def test_a_plan_takes_from_all_arcs_of_the_line_up_to_one_time() -> None:
    state = SchedulerState(diamond().network(), SchedulerSettings(unit="vpipe", train=TrainRule("tuples", 3)))
    one, other = state.network.boxes[3].in_arcs
    state.apply(Enqueued((one,), 5, 100, 120, 1))  # at 100, 110, ... 140
    state.apply(Enqueued((other,), 4, 105, 120, 1))  # at 105, 115, 125, 135
    plan: Plan = expand(state, 0)
    assert plan.takes == {one: 2, other: 1}, "the three oldest of all, as from one queue"
    state = SchedulerState(state.network, SchedulerSettings(unit="vpipe", train=TrainRule("fraction", 0.6)))
    state.apply(Enqueued((one,), 5, 100, 120, 1))
    state.apply(Enqueued((other,), 4, 105, 120, 1))
    assert expand(state, 0).takes == {one: 3, other: 2}, "nothing that is younger than the third of the first"


NETWORK = """
http: {listen: "off"}
streams: {s: {schema: {n: int}}, t: {schema: {n: int}}}
boxes:
  big: {filter: s, where: "n > 0"}
  both: {union: [big, t]}
outputs: {o: {from: both}, p: {from: big}}
"""


def test_the_engine_keeps_the_order_of_time_over_a_shared_box_and_a_union() -> None:
    network = read_network(NETWORK)
    got: list[int] = []
    engine = Engine(
        network,
        [lambda train: got.extend(train.columns[0].tolist()), lambda train: None],
        workers=1,
        settings=SchedulerSettings(unit="vpipe"),
    )
    engine.start()
    try:
        with engine.loop.paused():
            for at, (stream, n) in enumerate([("s", 1), ("t", 2), ("s", 3), ("t", 4)]):
                given = network.stream(stream)
                engine.ingress.admit(given.number, Train.from_pylists(given.schema, {"n": [n]}, 1_000 + at))
        assert engine.drain(60)
    finally:
        engine.stop()
    assert got == [1, 2, 3, 4] and engine.state.dispatched == 1


def test_chain_runs_a_segment_of_the_envelope_as_one_unit() -> None:
    """Selectivities 0.9, 0.1, 1 at the costs 1, 1, 100: the first two form a segment, the third one is the next."""
    sketch = NetworkSketch()
    box = sketch.box(sketch.stream(), cost_ns=1_000.0, selectivity=0.9)
    box = sketch.box(box, cost_ns=1_000.0, selectivity=0.1)
    sketch.output(sketch.box(box, cost_ns=100_000.0, selectivity=1.0))
    state = SchedulerState(sketch.network())
    assert [segment.boxes for segment in state.facts.chain_segment] == [(0, 1), (1,), (2,)]
    slopes = [segment.slope for segment in state.facts.chain_segment]
    first_ns, second_ns, third_ns = state.facts.cost_ns  # with the cost of calls
    steep = 0.91 / (first_ns + 0.9 * second_ns)
    assert slopes == pytest.approx([steep, steep, 0.09 / (0.09 * third_ns)])
    chain = policies()["chain"]
    state.follow(make_index(chain))
    state.apply(Enqueued(state.network.boxes[0].in_arcs, 10, 0, 0, 10))
    state.index.clock(0)  # type: ignore[union-attr]
    plan = chain(state, 0)
    assert plan is not None and plan.boxes == (0, 1), "behind the segment the tuples wait again"
