"""QoS graphs: how useful an output is, by delay, by share delivered, by value.

A graph is piecewise linear from x to a utility in [0, 1]; left of its first and right of its last point it is flat.
The latency graph speaks of delay in nanoseconds and never rises; the loss graph speaks of the share delivered in [0, 1]
and never falls; the value graph speaks of a field's value. Graphs of different outputs are comparable: that is what
lets a scheduler or a shedder choose between them.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True)
class QoSGraph:
    """Points (x, utility) with x strictly rising."""

    points: tuple[tuple[float, float], ...]

    def __post_init__(self) -> None:
        assert self.points, "a graph needs a point"
        assert all(a[0] < b[0] for a, b in pairwise(self.points)), f"x must rise: {self.points}"

    @cached_property
    def xs(self) -> npt.NDArray[np.float64]:
        return np.array([x for x, _ in self.points], np.float64)

    @cached_property
    def ys(self) -> npt.NDArray[np.float64]:
        return np.array([y for _, y in self.points], np.float64)

    def utility(self, x: float) -> float:
        return float(np.interp(x, self.xs, self.ys))

    def utilities(self, x: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
        out: npt.NDArray[np.float64] = np.interp(x, self.xs, self.ys)
        return out

    def slope(self, x: float) -> float:
        """The slope of the piece that begins at or contains x: at a corner, of the piece to its right."""
        i = int(np.searchsorted(self.xs, x, side="right"))
        if i == 0 or i == len(self.points):
            return 0.0
        (x0, y0), (x1, y1) = self.points[i - 1], self.points[i]
        return (y1 - y0) / (x1 - x0)

    def next_critical(self, x: float) -> float:
        """The nearest corner right of x, or infinity: where the utility next changes its course."""
        i = int(np.searchsorted(self.xs, x, side="right"))
        return float(self.xs[i]) if i < len(self.points) else float("inf")


@dataclass(frozen=True, slots=True)
class QoS:
    """What one output asks for. An absent graph asks for nothing: any delay, no loss."""

    latency: QoSGraph | None = None  # x: delay in ns
    loss: QoSGraph | None = None  # x: share delivered, 0 to 1
    value: QoSGraph | None = None  # x: value of value_field
    value_field: str = ""
    prefer: str = ""  # an expression: tuples for which it holds are the last to be dropped
    deadline_ns: int | None = None  # the end of the good zone, where a preset or the graph gives one

    @property
    def shed_by(self) -> QoSGraph | None:
        """The loss graph that a load shedder goes by; None: nothing on the way to this output may be dropped.

        Whoever says which tuples matter least (``prefer``, a value graph) has said that some may be dropped: without a
        loss graph utility then falls in proportion.
        """
        if self.loss is None and (self.value is not None or self.prefer):
            return IN_PROPORTION
        return self.loss


IN_PROPORTION = QoSGraph(((0.0, 0.0), (1.0, 1.0)))
