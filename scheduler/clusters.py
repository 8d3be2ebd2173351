"""Priorities that grow with the wait, each at its own rate: W times a weight (LSF, BSD).

Such priorities overtake each other all the time, so a heap cannot hold them. But boxes of equal weight never overtake
each other: among them the oldest head is first. So boxes are clustered by weight, with a heap by age in each cluster.
A decision compares the heads of the clusters: one product for each cluster instead of one for each box.

Weights are equal exactly (LSF) or on a logarithmic scale (BSD: within a factor of ``ratio``). On the logarithmic scale
the choice is off by at most that factor, and the number of clusters stays small however different the boxes are.
"""

from __future__ import annotations

from heapq import heappop, heappush
from math import floor, log
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from scheduler.index import Index, Key

if TYPE_CHECKING:
    from collections.abc import Callable

    from scheduler.state import SchedulerState

EMPTY_NS = 2**62  # the head of an empty cluster: so young that it is never chosen
FEW = 24  # below this many clusters a plain loop beats numpy


class Clusters(Index):
    def __init__(
        self, state: SchedulerState, weights: Callable[[SchedulerState], list[float]], ratio: float | None
    ) -> None:
        super().__init__(state)
        self._weights_of = weights
        self._ratio = ratio
        self._stamp = [0] * len(state.network.boxes)
        self._heads: list[int | None] = [None] * len(
            state.network.boxes
        )  # by box: arrival of its oldest tuple; None: not listed
        self.refresh()

    def refresh(self) -> None:
        self._weights = self._weights_of(self.state)
        numbers: dict[Any, int] = {}
        self._cluster: list[int] = []
        for weight in self._weights:
            name = weight if self._ratio is None else floor(log(max(weight, 1e-300)) / log(self._ratio))
            self._cluster.append(numbers.setdefault(name, len(numbers)))
        self._heaps: list[list[tuple[int, int, int]]] = [[] for _ in numbers]  # head, box, stamp
        self._weight: npt.NDArray[np.float64] = np.zeros(len(numbers))  # of the head of each cluster
        self._head_ns: npt.NDArray[np.int64] = np.full(len(numbers), EMPTY_NS, np.int64)
        self._heads = [None] * len(self._heads)
        super().refresh()

    def list(self, box: int) -> None:
        head_ns = self.state.head_ns(box)
        if head_ns == self._heads[box]:
            return
        self._heads[box] = head_ns
        self._stamp[box] += 1
        cluster = self._cluster[box]
        heappush(self._heaps[cluster], (head_ns, box, self._stamp[box]))
        self._settle(cluster)

    def unlist(self, box: int) -> None:
        if self._heads[box] is not None:
            self._heads[box] = None
            self._stamp[box] += 1
            self._settle(self._cluster[box])

    def _settle(self, cluster: int) -> None:
        heap, stamp = self._heaps[cluster], self._stamp
        while heap and heap[0][2] != stamp[heap[0][1]]:
            heappop(heap)
        if heap:
            self._head_ns[cluster] = heap[0][0]
            self._weight[cluster] = self._weights[heap[0][1]]
        else:
            self._head_ns[cluster] = EMPTY_NS

    def best(self, now_ns: int) -> int | None:
        """Return the box with the highest weight times wait, among the heads."""
        if not len(self._heaps):
            return None
        if len(self._heaps) <= FEW:
            heads = [h[0] for h in self._heaps if h]
            # A tie breaks on the number of the box.
            return min(heads, key=lambda e: (-self._weights[e[1]] * (now_ns - e[0]), e[1]))[1] if heads else None
        cluster = int(np.argmax(self._weight * (now_ns - self._head_ns)))
        if self._head_ns[cluster] == EMPTY_NS:
            return None
        return self._heaps[cluster][0][1]

    def urgency(self, box: int) -> Key:
        return -self._weights[box] * (self.now_ns - self.state.head_ns(box))


def clusters(state: SchedulerState) -> Clusters:
    assert isinstance(state.index, Clusters), "the state does not follow a policy that clusters"
    return state.index
