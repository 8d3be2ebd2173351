"""What one worker cannot do, and what no plan can save: loads of units, caps, outputs that are given up."""

from __future__ import annotations

import numpy as np
import pytest

from catalog.catalog import Epoch
from catalog.load_verdict import LoadVerdict
from engine.run.network_file import read_network
from load_shedder.decide.incurable import AFTER_S, BACK_S, GivenUp, give_up
from load_shedder.decide.places import find_places, shed_arcs
from load_shedder.decide.road_map import RoadMap, draw_map
from load_shedder.decide.segments import ModelCosts, order_places
from load_shedder.decide.shedder import Shedder
from load_shedder.decide.unit_caps import LEAST, UnitCaps, cap_units, places_before
from qos_monitor.sampler import Sample
from qos_monitor.verdict import Terms, judge
from scheduler.superbox import static_superboxes

NETWORK = read_network("""
http: {listen: "off"}
engine: {workers: 2}
streams: {rows: {schema: {x: double}, overload: shed}}
boxes:
  model: {universal: rows, cost: 90us}
  cheap: {universal: rows, cost: 10us}
  light: {map: cheap, add: {y: "x + 1"}}
outputs:
  strict: {from: model, qos: {deadline: 200ms, dead: 2s}}
  lossy: {from: light, qos: {deadline: 200ms, lossy: 50%}}
""")
BOX_NS = np.array([{"model": 90_000.0, "cheap": 10_000.0, "light": 0.0}[b.name] for b in NETWORK.boxes])
UNITS = [s.boxes for s in static_superboxes(NETWORK)]
MODEL = next(u for u, boxes in enumerate(UNITS) if NETWORK.boxes[boxes[0]].name == "model")
STRICT, LOSSY = NETWORK.output("strict").number, NETWORK.output("lossy").number
SECOND = 10**9
TICK_NS = SECOND // 10


def sample(at: int, rate: float, model_waits: float, busy: tuple[float, float], is_late: bool) -> Sample:
    """``model_waits``: tuples before the box ``model``. ``busy``: a worker's time in ``model`` and in ``cheap``."""
    epoch = Epoch.of(NETWORK)
    coefficients = epoch.load.coefficients(BOX_NS, np.ones(3))
    rates = np.array([rate])
    waits = np.array([model_waits if a.name == "rows->model" else 0.0 for a in NETWORK.arcs])
    by_box = {"model": busy[0], "cheap": busy[1], "light": 0.0}
    utilities = np.array([0.5 if is_late and o.name == "strict" else 1.0 for o in NETWORK.outputs])
    ones = np.ones(2)
    return Sample(
        at * TICK_NS, TICK_NS, 0.0, coefficients, rates, np.zeros(3), np.array([by_box[b.name] for b in NETWORK.boxes]),
        ones, utilities, ones, ones, ones, ones, rates, np.zeros(len(NETWORK.arcs)), waits * coefficients.arcs,
        sum(busy) * 1e9, sum(busy) / 2, sum(busy) * 1e9, box_ns=BOX_NS, port_selectivity=np.ones(3),
    )  # fmt: skip


TERMS = Terms.of(NETWORK, shed_arcs(NETWORK), urgent_first=True, units=UNITS)


def verdict(
    ticks: int = 20, rate: float = 30_000.0, waits: float = 20_000.0, busy: float = 1.0, others: float = 0.3
) -> LoadVerdict:
    """``others``: a worker's time in the other boxes."""
    found = LoadVerdict(headroom_ratio=1.0)
    for at in range(1, ticks + 1):
        found = judge(found, sample(at, rate, waits, (busy, others), True), TERMS, 2)
    return found


def test_a_unit_that_is_full_is_bound_and_its_backlog_is_its_own() -> None:
    full = verdict()
    assert full.unit_bound[MODEL] and sum(full.unit_bound) == 1
    assert full.unit_ns[MODEL] == pytest.approx(2.7e9, rel=0.01)
    assert full.unit_late_ns[MODEL] == pytest.approx((20_000 * 90e-6 - 0.1) * 1e9, rel=0.01)
    assert full.catch_up_ns == 0.0, "no drop elsewhere would melt it"
    assert full.load_ratio == pytest.approx(2.7, rel=0.01) and full.state == "overloaded"
    assert full.late == (STRICT,)


def test_a_unit_that_waits_for_a_worker_is_not_bound() -> None:
    starved = verdict(busy=0.5, others=1.5)
    assert not any(starved.unit_bound)
    assert starved.catch_up_ns > 0, "the workers have too much to do: drops elsewhere help"


def test_a_unit_before_which_tuples_wait_while_workers_are_idle_is_full_at_what_it_gets_done() -> None:
    """The time between two plans belongs to the unit: 0.58 of a worker is all that it has."""
    stalled = verdict(rate=9_000.0, busy=0.58)
    assert stalled.unit_ns[MODEL] < stalled.unit_limit_ns, "by its boxes alone it would have room"
    assert stalled.unit_bound[MODEL] and stalled.catch_up_ns == 0.0
    assert stalled.unit_limits_ns[MODEL] == pytest.approx(0.58e9, rel=0.02)
    calm = stalled._replace(unit_late_ns=(0.0,) * len(UNITS))
    assert cap_units(UnitCaps(), stalled).full == [MODEL]
    assert cap_units(UnitCaps((0.7,) * len(UNITS), calm.at_ns), calm).kept[MODEL] == pytest.approx(0.7, rel=0.03)
    keeps_up = verdict(rate=9_000.0, busy=0.8, waits=800.0)
    assert not keeps_up.unit_bound[MODEL], "a queue that does not grow and is not late caps nothing"
    assert keeps_up.catch_up_ns == 0.0, "and takes nothing from the others"


def test_a_backlog_that_is_late_before_a_stalled_unit_is_worked_off_there() -> None:
    """It was nobody's: not the network's, because other workers were idle, and the unit did what was demanded."""
    stays_late = verdict(rate=6_000.0, busy=0.8, waits=20_000.0)
    assert stays_late.unit_ns[MODEL] < stays_late.unit_limits_ns[MODEL] and stays_late.unit_bound[MODEL]
    assert cap_units(UnitCaps(), stays_late).kept[MODEL] == LEAST and stays_late.catch_up_ns == 0.0
    melts = verdict(rate=1_000.0, busy=0.8, waits=4_000.0)
    assert melts.unit_late_ns[MODEL] > 0 and not melts.unit_bound[MODEL], "gone within half a second"


def test_a_cap_before_a_join_acts_on_one_input() -> None:
    """On both inputs it would take the pairs twice."""
    network = read_network("""
http: {listen: "off"}
streams:
  fast: {schema: {ts: timestamp, k: string}, time: ts, overload: shed}
  slow: {schema: {ts: timestamp, k: string}, time: ts, overload: shed}
  whole: {schema: {ts: timestamp, k: string}, time: ts}
boxes:
  pairs: {join: [fast, slow], on: "l.k = r.k", within: 50ms, select: {k: "l.k"}}
  priced: {universal: pairs, cost: 50us}
  beside: {join: [whole, slow], on: "l.k = r.k", within: 50ms, select: {k: "l.k"}}
outputs:
  out: {from: priced, qos: {deadline: 200ms, lossy: 50%}}
  rest: {from: beside, qos: {deadline: 200ms, lossy: 50%}}
""")
    arcs = {a.name: a.number for a in network.arcs}
    boxes = {b.name: b.number for b in network.boxes}
    index = {arcs["fast->pairs.0"]: 0, arcs["slow->pairs.1"]: 1, arcs["slow->beside.1"]: 2}
    flow = [0.0] * len(arcs)
    flow[arcs["fast->pairs.0"]], flow[arcs["slow->pairs.1"]] = 900.0, 100.0
    for unit in ([boxes["priced"]], [boxes["pairs"]], [boxes["pairs"], boxes["priced"]]):
        assert places_before(network, unit, index, flow) == (frozenset({0}), True), "the input that brings the most"
    assert places_before(network, [boxes["beside"]], index, flow) == (frozenset({2}), True), (
        "the other may lose nothing"
    )


def test_with_one_worker_nothing_is_bound() -> None:
    found = LoadVerdict(headroom_ratio=1.0)
    for at in range(1, 20):
        found = judge(found, sample(at, 30_000.0, 20_000.0, (1.0, 0.0), True), TERMS, 1)
    assert found.unit_ns == () and found.catch_up_ns > 0


def test_a_cap_falls_at_once_to_what_one_worker_can_do_and_rises_slowly() -> None:
    late = verdict()
    caps = cap_units(UnitCaps(), late)
    assert caps.full == [MODEL]
    assert caps.kept[MODEL] == LEAST, "two seconds of work wait: they come first"
    calm = late._replace(unit_late_ns=(0.0,) * len(UNITS), at_ns=late.at_ns + TICK_NS)
    rising = cap_units(caps, calm)
    assert LEAST < rising.kept[MODEL] < 1e9 / 2.7e9
    for _ in range(60):
        calm = calm._replace(at_ns=calm.at_ns + TICK_NS)
        rising = cap_units(rising, calm)
    assert rising.kept[MODEL] == pytest.approx(1 / 2.7, rel=0.02)
    below = calm._replace(unit_ns=(0.5e9,) * len(UNITS))
    for _ in range(60):
        below = below._replace(at_ns=below.at_ns + TICK_NS)
        rising = cap_units(rising, below)
    assert rising.full == []


def test_costs_that_seem_too_high_cap_nothing() -> None:
    dear = verdict(busy=0.4, waits=0.0)
    assert dear.unit_ns[MODEL] > dear.unit_limit_ns
    assert cap_units(UnitCaps(), dear).full == []


def drawn(given_up: frozenset[int] = frozenset()) -> tuple[RoadMap, dict[int, int]]:
    places = find_places(NETWORK, given_up=given_up)
    costs = ModelCosts(BOX_NS.tolist(), [1.0] * 3, [0, 1, 2, 3], [0.0, 0.0], [10_000.0])
    index = {p.arc: i for i, p in enumerate(order_places(NETWORK, places))}
    return draw_map(NETWORK, places, costs, given_up=given_up), index


def test_places_before_a_unit_cover_it_only_where_tuples_may_be_dropped() -> None:
    _, strict = drawn()
    assert places_before(NETWORK, UNITS[MODEL], strict) == (frozenset(), False)
    _, free = drawn(frozenset({STRICT}))
    found, covered = places_before(NETWORK, UNITS[MODEL], free)
    assert covered and [NETWORK.arcs[a].name for a, i in free.items() if i in found] == ["rows->model"]


def test_a_cap_saves_work_so_that_the_rest_of_the_plan_goes_less_far() -> None:
    road_map, index = drawn(frozenset({STRICT}))
    model = index[next(a.number for a in NETWORK.arcs if a.name == "rows->model")]
    free = road_map.plan(0.5 * road_map.load_ns)
    capped = road_map.plan(0.5 * road_map.load_ns, {model: 0.4})
    kept = capped.kept_on_arc
    assert {NETWORK.arcs[a].name: share for a, share in kept.items()} == {"rows->model": pytest.approx(0.4)}
    assert capped.saved_ns == pytest.approx(0.54e9, rel=0.01) and capped.loss == pytest.approx(0.6, rel=0.01)
    assert free.saved_ns == pytest.approx(0.5e9, rel=0.01)
    more = road_map.plan(0.57 * road_map.load_ns, {model: 0.4})
    assert more.saved_ns == pytest.approx(0.57e9, rel=0.01) and len(more.drops) == 2
    assert road_map.plan(0.0, {model: 1.0}).drops == ()


def test_an_output_is_given_up_after_it_was_late_for_a_while_and_taken_back() -> None:
    hopeless, none = frozenset({STRICT}), frozenset[int]()
    first = give_up(GivenUp(), hopeless, none, SECOND)
    assert first.outputs == none
    assert give_up(first, none, none, SECOND + TICK_NS).suspected == {}, "it was late for a moment only"
    lost = give_up(first, hopeless, none, SECOND + int(AFTER_S * 1e9))
    assert lost.outputs == hopeless
    dropping = give_up(lost, none, hopeless, 3 * SECOND)
    assert dropping.outputs == hopeless
    assert give_up(dropping, none, none, 3 * SECOND + int(BACK_S * 1e9) - 1).outputs == hopeless
    assert give_up(dropping, none, none, 3 * SECOND + int(BACK_S * 1e9)).outputs == none


def test_the_shedder_gives_up_what_no_plan_can_save_and_keeps_the_rest() -> None:
    stats = Epoch.of(NETWORK).stats
    stats.cost_per_call_ns[:], stats.cost_per_tuple_ns[:], stats.rate_per_s[:] = 0.0, BOX_NS, 30_000.0
    shedder = Shedder(NETWORK, stats, units=UNITS)
    found = LoadVerdict(headroom_ratio=1.0)
    for at in range(1, 60):
        waits = max(0.0, 20_000.0 - 500 * at)
        found = judge(found, sample(at, 30_000.0, waits, (1.0, 0.3), at < 30), TERMS, 2)
        shedder.step(found)
    kept = {NETWORK.arcs[a].name: share for a, share in shedder.plan.kept_on_arc.items()}
    assert shedder.given_up.outputs == {STRICT}
    assert kept["rows->model"] == pytest.approx(1 / 2.7, rel=0.1)
    assert kept.get("rows->cheap", 1.0) > 0.9, "it has a worker of its own"
    assert LOSSY not in found.late


def test_the_reason_is_told_for_each_output() -> None:
    """A full unit is the reason of the outputs behind it, and of no others."""
    shedder = Shedder(NETWORK, Epoch.of(NETWORK).stats, units=UNITS)
    shedder.caps = UnitCaps(tuple(0.5 if unit == MODEL else 1.0 for unit in range(len(UNITS))))
    assert shedder.behind_full_units() == {STRICT}
