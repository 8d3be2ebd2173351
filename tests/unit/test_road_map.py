"""The road map on networks small enough to be worked out by hand."""

from __future__ import annotations

import pytest

from catalog.loss import ValueCells
from catalog.network import Network
from catalog.qos import QoS, QoSGraph
from catalog.stats import Statistics
from engine.run.declared_costs import set_selectivity
from engine.simulate.sketch import NetworkSketch
from load_shedder.decide.graphs import FLAT, GraphPiece, cells, concave_hull, pieces
from load_shedder.decide.places import find_places
from load_shedder.decide.road_map import RoadMap, draw_map
from load_shedder.decide.segments import ModelCosts
from load_shedder.shed_plan import NOTHING_SHED
from tests.property.shed_networks import shedding

LINEAR = QoSGraph(((0.0, 0.0), (1.0, 1.0)))
HALF_FREE = QoSGraph(((0.0, 0.0), (0.5, 1.0), (1.0, 1.0)))
RATE = 1_000.0


def map_of(network: Network, read: list[bool] | None = None) -> RoadMap:
    statistics = Statistics(network)
    statistics.cost_per_call_ns[:] = 0.0
    statistics.rate_per_s[:] = RATE
    for node in network.boxes:
        set_selectivity(statistics, node.number, float(node.selectivity or 1.0))
    return draw_map(network, find_places(network), ModelCosts.of(statistics), read=read)


def shares(network: Network, road_map: RoadMap, saving_ns: float) -> dict[str, float]:
    plan = road_map.plan(saving_ns)
    return {network.arcs[d.place.arc].name: round(d.share, 6) for d in plan.drops}


def two_outputs(first: QoSGraph, second: QoSGraph, first_ns: float = 1_000.0, second_ns: float = 1_000.0) -> Network:
    sketch = NetworkSketch()
    stream = sketch.stream()
    sketch.output(sketch.box(stream, cost_ns=first_ns, name="a"), QoS(loss=first))
    sketch.output(sketch.box(stream, cost_ns=second_ns, name="b"), QoS(loss=second))
    return shedding(sketch.network())


def test_what_costs_no_utility_goes_first() -> None:
    network = two_outputs(LINEAR, HALF_FREE)
    road_map = map_of(network)
    assert road_map.load_ns == road_map.most_ns == 2_000 * RATE
    assert shares(network, road_map, 250 * RATE) == {"s0->b": 0.25}
    assert shares(network, road_map, 500 * RATE) == {"s0->b": 0.5}
    assert road_map.plan(500 * RATE).loss == 0.0
    # Then the linear one, which loses half as fast, and at the end the rest of the other.
    assert shares(network, road_map, 1_000 * RATE) == {"s0->a": 0.5, "s0->b": 0.5}
    assert shares(network, road_map, 2_000 * RATE) == {"s0->a": 1.0, "s0->b": 1.0}


def test_the_dearer_box_goes_first_where_the_graphs_are_alike() -> None:
    network = two_outputs(LINEAR, LINEAR, second_ns=3_000.0)
    road_map = map_of(network)
    assert shares(network, road_map, 1_500 * RATE) == {"s0->b": 0.5}
    plan = road_map.plan(1_500 * RATE, number=7, excess_ns=5.0)
    assert (plan.number, plan.excess_ns, plan.loss, plan.level) == (7, 5.0, 0.5, pytest.approx(1_500 / 4_000))
    [drop] = plan.drops
    assert drop.gain_ns == pytest.approx(1_500 * RATE) and drop.loss == pytest.approx(0.5)
    assert drop.slope == pytest.approx(1 / (3_000 * RATE))


def test_nothing_to_save_is_no_plan_and_more_than_there_is_is_all() -> None:
    network = two_outputs(LINEAR, LINEAR)
    road_map = map_of(network)
    assert road_map.plan(0.0) is NOTHING_SHED
    assert road_map.plan(1e18).level == 1.0


def test_what_nobody_reads_is_worth_nothing() -> None:
    network = two_outputs(LINEAR, LINEAR)
    assert shares(network, map_of(network, read=[False, True]), 500 * RATE) == {"s0->a": 0.5}
    assert shares(network, map_of(network, read=[True, False]), 500 * RATE) == {"s0->b": 0.5}


def test_before_a_split_is_better_when_the_shared_box_is_dear() -> None:
    """A shared box of 10,000 ns and two of 100: dropping behind it would save next to nothing."""
    sketch = NetworkSketch()
    shared = sketch.box(sketch.stream(), cost_ns=10_000.0, name="shared")
    for name in ("a", "b"):
        sketch.output(sketch.box(shared, cost_ns=100.0, name=name), QoS(loss=LINEAR))
    network = shedding(sketch.network())
    assert shares(network, map_of(network), 5_100 * RATE) == {"s0->shared": 0.5}


def test_a_place_that_is_narrower_already_loses_nothing_when_the_one_before_it_narrows() -> None:
    """Half of one output is free: first it alone, then all before the split, and its own drop gives way."""
    sketch = NetworkSketch()
    shared = sketch.box(sketch.stream(), cost_ns=1_000.0, name="shared")
    sketch.output(sketch.box(shared, cost_ns=1_000.0, name="a"), QoS(loss=HALF_FREE))
    sketch.output(sketch.box(shared, cost_ns=1_000.0, name="b"), QoS(loss=LINEAR))
    network = shedding(sketch.network())
    road_map = map_of(network)
    assert shares(network, road_map, 500 * RATE) == {"shared->a": 0.5}
    # b loses half as well, so the shared box need not work for more than half.
    assert shares(network, road_map, 1_500 * RATE) == {"s0->shared": 0.5}
    assert road_map.plan(1_500 * RATE).loss == pytest.approx(0.5)


def test_the_least_worth_goes_first_and_costs_less() -> None:
    sketch = NetworkSketch()
    value = QoS(value=QoSGraph(((0.0, 0.0), (1.0, 1.0))), value_field="value")
    sketch.output(sketch.box(sketch.stream(), cost_ns=1_000.0, name="a"), value)
    network = shedding(sketch.network())
    [place] = places = find_places(network)
    assert place.manner == "semantic"
    statistics = Statistics(network)
    statistics.cost_per_call_ns[:] = 0.0
    statistics.rate_per_s[:] = RATE
    worth = {place.arc: ValueCells((0.5, 0.5), (0.1, 0.9))}
    road_map = draw_map(network, places, ModelCosts.of(statistics), values=worth)
    assert road_map.plan(500 * RATE).loss == pytest.approx(0.1)  # half of the tuples, a tenth of the worth
    assert road_map.plan(1_000 * RATE).loss == pytest.approx(1.0)


def test_values_in_cells() -> None:
    assert [tuple(round(v, 9) for v in c) for c in cells(ValueCells((0.5, 0.5), (0.1, 0.9)))] == [
        (0.5, 0.2, 0.8),
        (0.0, 1.8, 0.0),
    ]


def test_hull_and_pieces() -> None:
    assert concave_hull([(0, 0), (0.5, 0.1), (1, 1)]) == [(0, 0), (1, 1)]
    assert concave_hull([(0, 0), (0.5, 0.8), (0.75, 0.81), (1, 1)]) == [(0, 0), (0.5, 0.8), (1, 1)]
    assert pieces(HALF_FREE) == (GraphPiece(0.5, 0.0), GraphPiece(0.0, 2.0))
    assert pieces(None) == FLAT
