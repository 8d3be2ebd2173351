"""The operating point on a value graph, against plain sums."""

from __future__ import annotations

import numpy as np
import pytest

from catalog.qos import QoSGraph
from qos_monitor.delivered_values import SECOND_NS, DeliveredValues

GRAPH = QoSGraph(((0.0, 0.0), (10.0, 1.0)))


def test_the_point_is_the_mean_of_the_last_ten_seconds() -> None:
    values = DeliveredValues(GRAPH)
    assert values.point(0) is None
    for second in range(30):
        values.record(np.array([second, 2.0 * second]), None, second * SECOND_NS)
        values.record(np.array([second]), None, second * SECOND_NS + 5)
    recent = [v for s in range(20, 30) for v in (s, 2 * s, s)]
    point = values.point(29 * SECOND_NS)
    assert point is not None
    assert point[0] == pytest.approx(sum(recent) / len(recent))
    assert point[1] == pytest.approx(sum(min(v, 10) / 10 for v in recent) / len(recent))
    assert values.point(60 * SECOND_NS) is None


def test_null_and_nan_have_no_place_on_the_graph() -> None:
    values = DeliveredValues(GRAPH)
    values.record(np.array([np.nan, np.inf]), None, 0)
    assert values.point(0) is None
    values.record(np.array([5, 99]), np.array([True, False]), 0)
    assert values.point(0) == (5.0, 0.5)
