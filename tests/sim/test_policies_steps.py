"""A step costs what moves: compared with each other in one run, never with a time."""

from __future__ import annotations

from functools import cache

import pytest

from engine.simulate.steps import Stepper, network_of, step_ns

large = cache(lambda: network_of(10_000))


def test_qos_costs_less_than_ten_round_robins_at_1000_busy_boxes() -> None:
    network = network_of(1_000)
    cost = step_ns({name: Stepper(network, name, 1_000) for name in ("round_robin", "qos", "qos_buckets")})
    assert cost["qos"] < 10 * cost["round_robin"]
    assert cost["qos_buckets"] < 10 * cost["round_robin"]


@pytest.mark.parametrize("name", ["fcfs", "hnr", "lsf", "qos", "qos_buckets"])
def test_idle_boxes_cost_nothing(name: str) -> None:
    """100 busy boxes among 10,000 against 100 among 100."""
    cost = step_ns({"few": Stepper(network_of(100), name, 100), "many": Stepper(large(), name, 100)})
    assert cost["many"] < 2 * cost["few"]
