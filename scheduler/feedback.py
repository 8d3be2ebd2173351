"""Priorities by results (P3): an output rises while its utility is low and falls while it is in its good zone.

Ten times a second each output is judged by the mean utility of the tuples that finished plans took for it since the
last judgement. An output without such tuples but with tuples waiting is judged by the oldest of them; otherwise an
output that starves would never be noticed. Below ``GOOD`` its level rises by one, else it falls by one. The boxes of
the highest level run first, and among them the oldest tuple.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING

from catalog.qos import QoSGraph
from scheduler.index import Key, Ranking
from scheduler.plan import Plan

if TYPE_CHECKING:
    from scheduler.state import SchedulerState

GOOD = 0.95
LEVELS = 10
EVERY_NS = 100_000_000


class Feedback(Ranking):
    """An index of boxes by the level of their outputs."""

    learns = True

    def __init__(self, state: SchedulerState) -> None:
        outputs = len(state.network.outputs)
        self.level = [0] * outputs
        self._graphs = [o.qos.latency for o in state.network.outputs]
        self._utility = [0.0] * outputs  # summed over the tuples since the last judgement
        self._tuples = [0] * outputs
        self._judged_ns = 0
        self._open: list[tuple[int, int, int]] = []  # box, tuples, mean arrival: claimed by the last plan
        self._running: dict[int, list[tuple[int, int, int]]] = {}  # claimed by the plans that run, by the plan's id
        super().__init__(state, self._level_key)

    def _level_key(self, state: SchedulerState, box: int, now_ns: int) -> tuple[Key, int | None]:
        level = max([self.level[o] for o in state.network.box_outputs[box]], default=0)
        return (-level, state.head_ns(box)), None

    def dispatched(self, plan: Plan) -> None:
        self._open = self._running[id(plan)] = []

    def claimed(self, box: int, tuples: int, first_arrival_ns: int, mean_arrival_ns: int) -> None:
        self._open.append((box, tuples, mean_arrival_ns))

    def finished(self, plan: Plan) -> None:
        for box, tuples, mean_ns in self._running.pop(id(plan), ()):
            self._add(box, tuples, self.now_ns - mean_ns)

    def _add(self, box: int, tuples: int, latency_ns: int) -> None:
        for output in self.state.network.box_outputs[box]:
            graph = self._graphs[output]
            if graph is not None:
                self._utility[output] += tuples * utility(graph, latency_ns)
                self._tuples[output] += tuples

    def clock(self, now_ns: int) -> None:
        if now_ns - self._judged_ns >= EVERY_NS:
            self._judged_ns = now_ns
            self.now_ns = now_ns
            self._judge()
        super().clock(now_ns)

    def _judge(self) -> None:
        for unit in self.state.ready:
            for box in self.state.unit_live[unit]:
                if self.state.box_tuples(box) and not any(self._tuples[o] for o in self.state.network.box_outputs[box]):
                    self._add(box, 1, self.now_ns - self.state.head_ns(box))
        before = list(self.level)
        for output, tuples in enumerate(self._tuples):
            badly = tuples and self._utility[output] < GOOD * tuples
            self.level[output] = min(LEVELS, self.level[output] + 1) if badly else max(0, self.level[output] - 1)
            self._utility[output] = 0.0
            self._tuples[output] = 0
        if self.level != before:
            self.refresh()


def utility(graph: QoSGraph, latency_ns: float) -> float:
    """Return what ``QoSGraph.utility`` does, without numpy, which takes ten times as long for one value."""
    points = graph.points
    i = bisect_right(points, (latency_ns, 2.0))
    if i == 0:
        return points[0][1]
    if i == len(points):
        return points[-1][1]
    (x0, y0), (x1, y1) = points[i - 1], points[i]
    return y0 + (y1 - y0) * (latency_ns - x0) / (x1 - x0)
