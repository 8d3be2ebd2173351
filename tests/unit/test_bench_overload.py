"""The evaluation of ``bench overload``: due results, the utility of an output, the answer to a step."""

from __future__ import annotations

import numpy as np
import pytest

from engine.lab.bench.overload.arrivals import ArrivalShape
from engine.lab.bench.overload.due_results import ResultSums, due
from engine.lab.bench.overload.soak import between, countable_outputs
from engine.lab.bench.overload.utility import Due, delivered, due_at_rates, step_answer, utility_series
from engine.run.network_file import read_network

NETWORK = read_network(
    """
http: {listen: off}
streams:
  trades: {schema: {ts: timestamp, price: double}, time: ts, overload: shed}
boxes:
  half: {filter: trades, where: "price > 50"}
outputs:
  lossy: {from: half, qos: {deadline: 100ms, lossy: 50%}}
  strict: {from: trades, qos: {deadline: 100ms}}
""",
    {},
)
HALF, ALL = np.full(10, 50.0), np.full(10, 100.0)
DUE = {"lossy": Due(HALF, HALF), "strict": Due(ALL, ALL)}


@pytest.mark.parametrize("name", ["uniform", "bursty", "ramp"])
def test_the_mean_of_a_shape_is_its_load(name: str) -> None:
    shape = ArrivalShape(name, 2.0, 10.0)
    assert np.mean([shape.factor(i / 1000) for i in range(10_000)]) == pytest.approx(2.0, rel=0.001)


def test_a_step_is_high_for_a_quarter() -> None:
    shape = ArrivalShape("step", 3.0, 16.0)
    assert [shape.factor(t) for t in (0.0, 3.9, 4.0, 7.9, 8.0, 15.9)] == [0.5, 0.5, 3.0, 3.0, 0.5, 0.5]


def answer(name: str, counts: list[float], utility: float, warm: int = 0) -> dict[str, object]:
    return {
        "name": name, "counts": counts, "utility": [c * utility for c in counts], "value": counts, "warm": warm,
        "p50_ns": 1.0, "p99_ns": 2.0,
    }  # fmt: skip


def test_utility_is_that_of_latency_times_that_of_loss() -> None:
    lossy = delivered(answer("lossy", [25.0] * 10, 0.8), NETWORK.output("lossy"), DUE["lossy"])
    assert (lossy.share, lossy.latency_utility, lossy.utility) == pytest.approx((0.5, 0.8, 0.8))  # half may be lost
    strict = delivered(answer("strict", [25.0] * 10, 0.8), NETWORK.output("strict"), DUE["strict"])
    assert (strict.utility, strict.in_proportion) == pytest.approx((0.0, 0.25 * 0.8))  # all of it is asked for
    nearly = delivered(answer("strict", [94.5] * 10, 0.8), NETWORK.output("strict"), DUE["strict"])
    assert nearly.utility == pytest.approx(0.5 * 0.8)
    nothing = delivered(answer("strict", [0.0] * 10, 1.0), NETWORK.output("strict"), DUE["strict"])
    assert nothing.utility == 0


def test_the_warm_up_does_not_count() -> None:
    late_start = answer("strict", [0.0] * 5 + [100.0] * 5, 1.0, warm=5)
    assert delivered(late_start, NETWORK.output("strict"), DUE["strict"]).utility == pytest.approx(1.0)


def test_what_comes_out_is_known_from_a_run_without_loss() -> None:
    known = due_at_rates([answer("lossy", [50.0] * 10, 1.0)], ALL, 3 * ALL)
    assert known["lossy"].tuples.tolist() == pytest.approx([150.0] * 10)


def test_what_is_due_follows_the_rows_of_the_sample_round_and_round() -> None:
    sums = ResultSums(4)  # of four rows the second gives one result, the fourth two
    sums.tuples["out"] = sums.value["out"] = np.array([0.0, 0.0, 1.0, 1.0, 3.0])
    found = due({"s": sums}, {"s": 30.0}, ArrivalShape("uniform", 1.0, 0.4), "out", False)
    assert found.tolist() == [1.0, 3.0, 2.0, 3.0]  # rows 1 2 3, 4 1 2, 3 4 1, 2 3 4
    assert found.sum() == 9.0  # twelve rows: three rounds


def test_a_step_is_judged_by_when_it_stays() -> None:
    #         before               up: falls, comes back, settles                down
    series = np.array([2.0] * 8 + [0.5, 1.0, 1.5, 1.5, 1.5, 1.5, 1.5, 1.5] + [1.6, 2.0, 2.0, 2.0])
    found = step_answer(series, 8, 16, 0.5, 2.0)
    assert found.plateau == 1.5
    assert found.settled_s == 1.0
    assert found.restored_s == 0.5
    assert found.overshoots == 0
    swinging = np.array([2.0] * 8 + [1.5, 1.0, 1.5, 1.0, 1.5, 1.5, 1.5, 1.5] + [2.0] * 4)
    assert step_answer(swinging, 8, 16, 0.5, 2.0).overshoots == 2


def test_a_series_adds_the_outputs_up() -> None:
    answers = [answer("lossy", [50.0] * 20, 1.0), answer("strict", [94.5] * 20, 1.0)]
    series = utility_series(
        answers, NETWORK, {"lossy": Due(*[np.full(20, 50.0)] * 2), "strict": Due(*[np.full(20, 100.0)] * 2)}
    )
    assert series.tolist() == pytest.approx([1.5] * 4)


def test_what_is_missing_is_what_was_dropped_where_nothing_else_takes_tuples() -> None:
    """Of 100 trades 10 were dropped before a filter, and 5 on the way to an output that gets all of them."""
    network = read_network(
        """
http: {listen: off}
streams: {s: {schema: {x: double}, overload: shed}}
boxes: {half: {filter: s, where: "x > 50"}, all: {map: s, add: {y: "x + 1"}}}
outputs: {some: {from: half, qos: {lossy: 50%}}, each: {from: all, qos: {lossy: 50%}}}
""",
        {},
    )
    shed = {"s->half": 10, "s->all": 5}
    arcs = [
        {"name": a.name, "tuples": 0, "spilled_tuples": 0, "shed": {"shed": shed.get(a.name, 0)}} for a in network.arcs
    ]
    taken = {"half": (90, 40), "all": (95, 95)}
    boxes = [
        {"name": b.name, "tuples_in": taken[b.name][0], "tuples_out": taken[b.name][1], "tuples_out_by_port": [],
         "row_wise": True, "dead": 0, "filtered": taken[b.name][0] - taken[b.name][1]}
        for b in network.boxes
    ]  # fmt: skip
    stats = {
        "arcs": arcs, "boxes": boxes, "streams": [{"admitted": 100}],
        "outputs": [{"name": "some", "emitted": 40}, {"name": "each", "emitted": 95}],
    }  # fmt: skip
    assert set(between(network, stats).values()) == {0}
    assert countable_outputs(network, stats) == {network.output("each").number}
    boxes[0]["tuples_in"] -= 1
    assert sum(map(abs, between(network, stats).values())) == 1, "a tuple on its way from one box to the next is astray"
