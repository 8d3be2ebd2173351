"""The judge of ``bench overload``: what is due, what an output was worth, how a step was answered."""

from __future__ import annotations

import numpy as np
import pytest

from engine.bench.overload.arrivals import Shape
from engine.bench.overload.measure import Reference, delivered, reference, step_answer, utility_series
from engine.load import load_network

NETWORK = load_network(
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
WHOLE = Reference({"lossy": 0.5, "strict": 1.0}, {"lossy": 0.5, "strict": 1.0})


@pytest.mark.parametrize("name", ["uniform", "bursty", "ramp"])
def test_the_mean_of_a_shape_is_its_load(name: str) -> None:
    shape = Shape(name, 2.0, 10.0)
    assert np.mean([shape.factor(i / 1000) for i in range(10_000)]) == pytest.approx(2.0, rel=0.001)


def test_a_step_is_high_for_a_quarter() -> None:
    shape = Shape("step", 3.0, 16.0)
    assert [shape.factor(t) for t in (0.0, 3.9, 4.0, 7.9, 8.0, 15.9)] == [0.5, 0.5, 3.0, 3.0, 0.5, 0.5]


def answer(name: str, counts: list[float], utility: float, warm: int = 0) -> dict[str, object]:
    return {
        "name": name, "counts": counts, "utility": [c * utility for c in counts], "value": counts, "warm": warm,
        "p50_ns": 1.0, "p99_ns": 2.0,
    }  # fmt: skip


def test_utility_is_that_of_latency_times_that_of_loss() -> None:
    offered = np.full(10, 100.0)
    lossy = delivered(answer("lossy", [25.0] * 10, 0.8), NETWORK.output("lossy"), WHOLE, offered)
    assert (lossy.share, lossy.latency_utility, lossy.utility) == pytest.approx((0.5, 0.8, 0.8))  # half may be lost
    strict = delivered(answer("strict", [25.0] * 10, 0.8), NETWORK.output("strict"), WHOLE, offered)
    assert strict.utility == pytest.approx(0.25 * 0.8)  # no loss graph: all of it is asked for
    nothing = delivered(answer("strict", [0.0] * 10, 1.0), NETWORK.output("strict"), WHOLE, offered)
    assert nothing.utility == 0


def test_the_warm_up_does_not_count() -> None:
    offered = np.full(10, 100.0)
    late_start = answer("strict", [0.0] * 5 + [100.0] * 5, 1.0, warm=5)
    assert delivered(late_start, NETWORK.output("strict"), WHOLE, offered).utility == pytest.approx(1.0)


def test_what_comes_out_is_known_from_a_run_without_loss() -> None:
    whole = reference([answer("lossy", [50.0] * 10, 1.0)], np.full(10, 100.0))
    assert whole.tuples["lossy"] == pytest.approx(0.5)


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
    answers = [answer("lossy", [50.0] * 20, 1.0), answer("strict", [50.0] * 20, 1.0)]
    series = utility_series(answers, NETWORK, WHOLE, np.full(20, 100.0))
    assert series.tolist() == pytest.approx([1.5] * 4)
