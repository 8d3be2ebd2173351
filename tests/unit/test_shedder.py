"""The shedder on a verdict: which plan comes out, and that noise of the costs does not swap plans."""

from __future__ import annotations

from catalog.load_verdict import LoadVerdict
from catalog.qos import QoS, QoSGraph
from catalog.stats import Statistics
from engine.simulate.sketch import NetworkSketch
from load_shedder.decide.shedder import Shedder
from tests.property.shed_networks import shedding

IN_PROPORTION = QoSGraph(((0.0, 0.0), (1.0, 1.0)))


def two_alike() -> tuple[Shedder, Statistics]:
    """Two outputs of equal worth behind boxes of equal cost, and a third box."""
    sketch = NetworkSketch()
    stream = sketch.stream()
    for cost_ns in (50_000.0, 50_000.0, 5_000.0):
        sketch.output(sketch.box(stream, cost_ns=cost_ns), QoS(loss=IN_PROPORTION))
    network = shedding(sketch.network())
    statistics = Statistics(network)
    statistics.cost_per_call_ns[:], statistics.rate_per_s[:] = 0.0, 10_000.0
    return Shedder(network, statistics), statistics


def dropped(shedder: Shedder, at_s: float) -> dict[int, float]:
    verdict = LoadVerdict(
        at_ns=round(at_s * 1e9), state="overloaded", load_ns=1.05e9, capacity_ns=0.7e9, load_ratio=1.5, excess_ns=0.35e9
    )
    shedder.step(verdict)
    return {drop.place.arc: drop.share for drop in shedder.plan.drops}


def test_moves_that_cost_nearly_the_same_do_not_take_turns() -> None:
    shedder, statistics = two_alike()
    first = dropped(shedder, 1.0)
    [victim] = [arc for arc, share in first.items() if share > 0.6]
    maps = shedder.maps
    for i in range(2, 20):
        statistics.cost_per_tuple_ns[:] = (50_000.0 * (1 + 0.04 * (-1) ** i), 50_000.0, 5_000.0 * (1 + 0.3 * (i % 3)))
        now = dropped(shedder, float(i))
        assert max(now, key=lambda arc: now[arc]) == victim
    assert shedder.maps > maps, "the third box has drifted, so the map was drawn again"


def test_a_cost_that_has_really_changed_changes_the_plan() -> None:
    shedder, statistics = two_alike()
    first = dropped(shedder, 1.0)
    [victim] = [arc for arc, share in first.items() if share > 0.6]
    box = next(a.box for a in shedder.network.arcs if a.number == victim)
    assert box is not None
    statistics.cost_per_tuple_ns[box] = 25_000.0
    now = dropped(shedder, 2.0)
    assert max(now, key=lambda arc: now[arc]) != victim
