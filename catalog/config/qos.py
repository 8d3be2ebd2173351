"""The ``qos`` of an output as written in the file: graphs point by point, or presets that stand for them.

- ``latency: [[0ms, 1.0], [100ms, 1.0], [1s, 0.0]]``: utility by delay; never rises.
- ``loss: [[100%, 1.0], [50%, 0.8], [0%, 0.0]]``: utility by share delivered; never falls as more is delivered.
- ``value: {severity: [[0, 0.1], [3, 1.0]]}``: utility by the value of a field; also written
  ``value: {field: severity, graph: [[0, 0.1], [3, 1.0]]}``.
- ``deadline: 200ms``: full utility until then, none at twice that; ``dead: 1s`` sets the point of no utility. The graph
  is a slope and not a cliff: a slope tells the scheduler how urgent a late tuple is, a cliff tells it to give up.
- ``lossy: 30%``: this share may be lost without harm; from there on utility falls in proportion.
- ``prefer: "severity >= 3"``: when tuples must be dropped, these go last.
- ``max_error: 2%``: approximate results are within 2 % of the truth; the shed plan keeps as many tuples as that takes.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, InstanceOf, model_validator

from catalog.config.units import PositiveDuration, Share, parse_duration_ns, parse_share
from catalog.config.words import RefusedValueError
from catalog.qos import QoS, QoSGraph

MAX_POINTS = 100


def _number(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < 1e300:
        raise ValueError(f"'{value}' is not a number")
    return float(value)


def _utility(value: object) -> float:
    utility = _number(value) if not isinstance(value, str) else parse_share(value)
    if not 0 <= utility <= 1:
        raise ValueError(f"a utility is between 0 and 1, not {value}")
    return utility


def _graph(value: object, x_of: Callable[[object], float], like: str) -> QoSGraph:
    """Read the points, in rising or falling order of x; return them in rising order."""
    if isinstance(value, QoSGraph):
        return value
    if not isinstance(value, list) or not value:
        raise ValueError(f"a graph is a list of points, such as {like}")
    if len(value) > MAX_POINTS:
        raise ValueError(f"{len(value)} points: a graph has at most {MAX_POINTS}")
    points = [_point(i, point, x_of, like) for i, point in enumerate(value)]
    falling = len(points) > 1 and points[0][0] > points[-1][0]
    for i, (a, b) in enumerate(pairwise(points)):
        if a[0] == b[0] or (a[0] > b[0]) != falling:
            raise RefusedValueError("the x of the points must strictly rise or strictly fall", at=(i + 1, 0))
    return QoSGraph(tuple(points[::-1] if falling else points))


def _point(i: int, point: object, x_of: Callable[[object], float], like: str) -> tuple[float, float]:
    if not isinstance(point, list | tuple) or len(point) != 2:
        raise RefusedValueError(f"a point is a pair [x, utility], as in {like}", at=(i,))
    for part, read in ((0, x_of), (1, _utility)):
        try:
            read(point[part])
        except ValueError as error:
            raise RefusedValueError(str(error), at=(i, part)) from None
    return x_of(point[0]), _utility(point[1])


def parse_latency(value: object) -> QoSGraph:
    graph = _graph(value, lambda x: float(parse_duration_ns(x)), "[[0ms, 1.0], [100ms, 1.0], [1s, 0.0]]")
    if any(a[1] < b[1] for a, b in pairwise(graph.points)):
        raise ValueError("utility must not rise with delay: a later tuple is never worth more")
    return graph


def parse_loss(value: object) -> QoSGraph:
    graph = _graph(value, parse_share, "[[100%, 1.0], [50%, 0.8], [0%, 0.0]]")
    if any(a[1] > b[1] for a, b in pairwise(graph.points)):
        raise ValueError("utility must not fall as more is delivered; x is the share delivered, not the share lost")
    return graph


def parse_value(value: object) -> tuple[str, QoSGraph]:
    if isinstance(value, tuple):
        return value
    if isinstance(value, dict) and value.keys() == {"field", "graph"}:
        value = {value["field"]: value["graph"]}
    if not isinstance(value, dict) or len(value) != 1:
        raise ValueError("a value graph names one field: {severity: [[0, 0.1], [3, 1.0]]}, or {field: ..., graph: ...}")
    [(field, points)] = value.items()
    return str(field), _graph(points, _number, "[[0, 0.1], [3, 1.0]]")


ANY_SHARE = QoSGraph(((0.0, 1.0), (1.0, 1.0)))


class QoSModel(BaseModel):
    """``qos`` as written; ``make()`` expands the presets."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    latency: Annotated[InstanceOf[QoSGraph], BeforeValidator(parse_latency)] | None = None
    loss: Annotated[InstanceOf[QoSGraph], BeforeValidator(parse_loss)] | None = None
    value: Annotated[Any, BeforeValidator(parse_value)] | None = None
    deadline_ns: PositiveDuration | None = Field(default=None, alias="deadline")
    dead_ns: PositiveDuration | None = Field(default=None, alias="dead")
    lossy: Share | None = None
    prefer: str | None = Field(default=None, min_length=1)
    max_error: Share | None = None

    @model_validator(mode="after")
    def _has_no_conflict(self) -> QoSModel:
        if self.deadline_ns is not None and self.latency is not None:
            raise ValueError("deadline and latency both define the utility by delay: keep one")
        if self.dead_ns is not None and self.deadline_ns is None:
            raise ValueError("dead needs a deadline before it: {deadline: 200ms, dead: 1s}")
        if self.dead_ns is not None and self.deadline_ns is not None and self.dead_ns <= self.deadline_ns:
            raise ValueError("dead must lie after the deadline")
        if self.lossy is not None and self.loss is not None:
            raise ValueError("lossy and loss both define how much may be lost: keep one")
        if self.prefer is not None and self.value is not None:
            raise ValueError("prefer and value both define which tuples matter: keep one")
        if self.max_error is not None and not 0.0 < self.max_error < 1.0:
            raise ValueError("max_error must be above 0% and below 100%")
        return self

    def make(self) -> QoS:
        latency, loss, deadline_ns = self.latency, self.loss, self.deadline_ns
        if deadline_ns is not None:
            dead_ns = self.dead_ns if self.dead_ns is not None else 2 * deadline_ns
            latency = QoSGraph(((0.0, 1.0), (float(deadline_ns), 1.0), (float(dead_ns), 0.0)))
        elif latency is not None:
            deadline_ns = good_zone_end_ns(latency)
        if self.lossy is not None:
            loss = lossy_graph(self.lossy)
        if loss is None and self.max_error is not None:
            loss = ANY_SHARE  # the error alone says how much may be lost
        field, value = self.value if self.value is not None else ("", None)
        return QoS(latency, loss, value, field, self.prefer or "", deadline_ns, self.max_error)


def good_zone_end_ns(latency: QoSGraph) -> int | None:
    """Return the last delay with the highest utility; None when utility never falls."""
    best = latency.points[0][1]
    if latency.points[-1][1] == best:
        return None
    return int(max(x for x, y in latency.points if y == best))


def lossy_graph(share_lost: float) -> QoSGraph:
    if share_lost >= 1:
        return QoSGraph(((0.0, 1.0),))
    if share_lost <= 0:
        return QoSGraph(((0.0, 0.0), (1.0, 1.0)))
    return QoSGraph(((0.0, 0.0), (1 - share_lost, 1.0), (1.0, 1.0)))
