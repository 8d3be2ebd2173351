"""QoS graphs: the utility of an output, by delay, by share delivered, by value.

A graph is piecewise linear, from x to a utility in [0, 1]. It is flat left of its first and right of its last point.
The latency graph maps delay in ns to utility and never rises. The loss graph maps the share delivered, in [0, 1], and
never falls. The value graph maps the value of a field. Graphs of different outputs are comparable, so a scheduler or a
shedder can choose between outputs.
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
        """Return the slope at x; at a corner, of the piece to the right."""
        i = int(np.searchsorted(self.xs, x, side="right"))
        if i == 0 or i == len(self.points):
            return 0.0
        (x0, y0), (x1, y1) = self.points[i - 1], self.points[i]
        return (y1 - y0) / (x1 - x0)

    def next_critical(self, x: float) -> float:
        """Return the nearest corner right of x, where the slope changes next; infinity when there is none."""
        i = int(np.searchsorted(self.xs, x, side="right"))
        return float(self.xs[i]) if i < len(self.points) else float("inf")


@dataclass(frozen=True, slots=True)
class QoS:
    """The quality of service of one output. Without a latency graph any delay is fine; without a loss graph nothing may
    be lost."""

    latency: QoSGraph | None = None  # x: delay in ns
    loss: QoSGraph | None = None  # x: share delivered, 0 to 1
    value: QoSGraph | None = None  # x: value of value_field
    value_field: str = ""
    prefer: str = ""  # an expression: tuples for which it is true are dropped last
    deadline_ns: int | None = None  # the end of the good zone, from a preset or from the graph
    max_error: float | None = None  # the relative error that approximate results may have

    @property
    def shed_by(self) -> QoSGraph | None:
        """The loss graph for the load shedder; None: no tuple of this output may be dropped.

        An output with ``prefer`` or a value graph states which tuples matter least, so some may be dropped. Without a
        loss graph its utility then falls in proportion.
        """
        if self.loss is None and (self.value is not None or self.prefer):
            return IN_PROPORTION
        return self.loss


IN_PROPORTION = QoSGraph(((0.0, 0.0), (1.0, 1.0)))
