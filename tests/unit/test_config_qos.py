"""QoS as written: graphs checked, presets expanded, and the end of the good zone."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from catalog.config.models import QoSModel

MS = 10**6


def make(**words: Any) -> Any:
    return QoSModel.model_validate(words).make()


def test_nothing_asked() -> None:
    qos = make()
    assert (qos.latency, qos.loss, qos.value, qos.prefer, qos.deadline_ns) == (None, None, None, "", None)


def test_the_graphs_of_the_design() -> None:
    qos = make(latency=[["0ms", 1.0], ["100ms", 1.0], ["1s", 0.0]], loss=[["100%", 1.0], ["50%", 0.8], ["0%", 0.0]])
    assert qos.latency.points == ((0, 1.0), (100 * MS, 1.0), (1000 * MS, 0.0))
    assert qos.loss.points == ((0, 0.0), (0.5, 0.8), (1, 1.0))
    assert qos.deadline_ns == 100 * MS
    assert qos.latency.utility(550 * MS) == pytest.approx(0.5)


def test_presets() -> None:
    assert make(deadline="200ms").latency.points == ((0, 1.0), (200 * MS, 1.0), (400 * MS, 0.0))
    late = make(deadline="200ms", dead="1s")
    assert late.latency.points == ((0, 1.0), (200 * MS, 1.0), (1000 * MS, 0.0))
    assert late.deadline_ns == 200 * MS
    loss = make(lossy="30%").loss
    assert (loss.utility(1), loss.utility(0.7), loss.utility(0.35), loss.utility(0)) == pytest.approx((1, 1, 0.5, 0))
    assert make(lossy="0%").loss.utility(0.5) == 0.5
    assert make(lossy="100%").loss.utility(0.0) == 1.0
    assert make(prefer="a > 1").prefer == "a > 1"
    value = make(value={"severity": [[5, 1.0], [0, 0.1]]})
    assert (value.value_field, value.value.points) == ("severity", ((0, 0.1), (5, 1.0)))
    assert make(value={"field": "severity", "graph": [[5, 1.0], [0, 0.1]]}) == value
    assert make(value={"field": [[5, 1.0], [0, 0.1]]}).value_field == "field"


@pytest.mark.parametrize(
    ("latency", "deadline_ms"),
    [
        ([["5ms", 1]], None),
        ([["0ms", 1], ["5ms", 1]], None),
        ([["0ms", 1], ["5ms", 0]], 0),
        ([["5ms", 0.5], ["7ms", 0.5], ["9ms", 0.1]], 7),
    ],
)
def test_the_end_of_the_good_zone(latency: Any, deadline_ms: int | None) -> None:
    assert make(latency=latency).deadline_ns == (None if deadline_ms is None else deadline_ms * MS)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({"latency": [["0ms", 0.5], ["1s", 1.0]]}, "must not rise"),
        ({"loss": [["0%", 1.0], ["100%", 0.0]]}, "must not fall"),
        ({"latency": [["0ms", 1.2]]}, "between 0 and 1"),
        ({"latency": [["0ms", 1], ["5ms", 1], ["5ms", 0]]}, "strictly rise or strictly fall"),
        ({"latency": [["0ms", 1], ["9ms", 1], ["5ms", 0]]}, "strictly rise or strictly fall"),
        ({"latency": []}, "list of points"),
        ({"latency": "fast"}, "list of points"),
        ({"latency": [["0ms", 1, 2]]}, "pair"),
        ({"latency": [[5, 1]]}, "unit"),
        ({"latency": [["1ms", True]]}, "number"),
        ({"latency": [[f"{i}ms", 1] for i in range(101)]}, "at most 100"),
        ({"loss": [["130%", 1]]}, "between 0% and 100%"),
        ({"value": {"a": [[0, 1]], "b": [[0, 1]]}}, "one field"),
        ({"value": {"a": [["x", 1]]}}, "not a number"),
        ({"value": {"a": [[float("nan"), 1]]}}, "not a number"),
        ({"deadline": "0ms"}, "greater than 0"),
        ({"deadline": "1s", "latency": [["0ms", 1]]}, "keep one"),
        ({"dead": "1s"}, "needs a deadline"),
        ({"deadline": "1s", "dead": "1s"}, "after the deadline"),
        ({"lossy": "10%", "loss": [["0%", 1]]}, "keep one"),
        ({"prefer": "a", "value": {"a": [[0, 1]]}}, "keep one"),
        ({"prefer": ""}, "at least 1"),
    ],
)
def test_what_is_refused(words: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        QoSModel.model_validate(words)


@given(st.lists(st.tuples(st.integers(0, 10_000), st.floats(0, 1)), min_size=1, max_size=8, unique_by=lambda p: p[0]))
def test_any_falling_graph_is_taken_in_either_direction(points: list[tuple[int, float]]) -> None:
    xs = sorted(x for x, _ in points)
    ys = sorted((y for _, y in points), reverse=True)
    written = [[f"{x}us" if x else 0, y] for x, y in zip(xs, ys, strict=True)]
    qos = make(latency=written)
    assert qos == make(latency=written[::-1])
    assert qos.latency.points == tuple((x * 1000.0, y) for x, y in zip(xs, ys, strict=True))
    if qos.deadline_ns is not None:
        assert qos.latency.utility(qos.deadline_ns) == ys[0]
        assert qos.latency.utility(qos.deadline_ns + 1_000_000_000) < ys[0]
