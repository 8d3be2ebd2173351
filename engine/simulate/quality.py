"""The quality of a run: latency, utility, slowdown and missed deadlines, by output.

Deliveries are kept as rows (time, first and last arrival, tuples, their worth) and folded in blocks with numpy. A row
of tuples that arrived over a span of time counts as four points of that span.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from catalog.qos import QoS
from engine.simulate.storage import SimulatedTrain

BLOCK = 65_536
POINTS = 4
CELLS_AN_OCTAVE = 32  # a quantile is off by 1 % at most
CELLS = 50 * CELLS_AN_OCTAVE  # up to 2^50 ns, 13 days

Floats = npt.NDArray[np.float64]


class Quality(NamedTuple):
    """The quality of one output, or of all together. Times in ns."""

    tuples: int
    mean_ns: float
    p50_ns: float
    p99_ns: float
    max_ns: float
    utility: float  # mean over tuples; an expired tuple counts as 0
    slowdown_mean: float
    slowdown_max: float
    slowdown_l2: float  # root of the sum of squares
    missed: int  # after the deadline, or expired
    sdmr: float  # missed over all


class DeliveryRecorder:
    """One output's deliveries. Only tuples that arrived between ``from_ns`` and ``until_ns`` count."""

    def __init__(self, qos: QoS, ideal_ns: float, from_ns: int, until_ns: int = 2**62) -> None:
        self.expired = 0
        self.delivered = 0  # tuples since the last tick ...
        self.late = 0  # ... and those that were late by the mean of their train: for the train tuner
        self.is_felt = False  # whether the next two are kept, for a monitor
        self.felt_tuples = 0
        self.felt_utility = 0.0  # of their latency, by the mean of each train
        self._late_ns = qos.deadline_ns if qos.deadline_ns is not None else 2**62
        self._qos = qos
        self._ideal_ns = max(ideal_ns, 1.0)
        self._from_ns = from_ns
        self._until_ns = until_ns
        self._rows: list[tuple[int, int, int, float, float]] = []
        self.cells: Floats = np.zeros(CELLS)
        self.tuples = 0.0
        self.value = 0.0  # of these tuples; a tuple of a stream without drops by value is worth 1
        self.total_ns = 0.0
        self.max_ns = 0.0
        self.utility = 0.0
        self.squares = 0.0
        self.missed = 0.0

    def deliver(self, train: SimulatedTrain, now_ns: int) -> None:
        self.delivered += train.count
        if now_ns - train.mean_ns > self._late_ns:
            self.late += train.count
        if self.is_felt:
            graph = self._qos.latency
            self.felt_tuples += train.count
            self.felt_utility += train.count * (1.0 if graph is None else graph.utility(now_ns - train.mean_ns))
        if train.pieces:
            total = sum([p[0] for p in train.pieces])
            for weight, first_ns, last_ns in train.pieces:
                self._rows.append((now_ns, first_ns, last_ns, train.count * weight / total, train.worth))
        else:
            self._rows.append((now_ns, train.first_ns, train.last_ns, train.count, train.worth))
        if len(self._rows) >= BLOCK:
            self.fold()

    def fold(self) -> None:
        if not self._rows:
            return
        rows = np.array(self._rows, np.float64)
        self._rows.clear()
        at, first, last, weight, worth = rows[(rows[:, 1] >= self._from_ns) & (rows[:, 1] < self._until_ns)].T
        self.value += float(np.dot(weight, worth))
        for point in range(POINTS):
            arrived = first + (last - first) * (2 * point + 1) / (2 * POINTS)
            self._add(np.maximum(at - arrived, 0.0), weight / POINTS)
        if at.shape[0]:
            self.max_ns = max(self.max_ns, float((at - first).max()))

    def _add(self, latency_ns: Floats, weight: Floats) -> None:
        cells = (np.log2(np.maximum(latency_ns, 1.0)) * CELLS_AN_OCTAVE).astype(np.intp)
        self.cells += np.bincount(np.minimum(cells, CELLS - 1), weight, CELLS)
        self.tuples += float(weight.sum())
        self.total_ns += float(np.dot(latency_ns, weight))
        self.squares += float(np.dot(np.square(latency_ns / self._ideal_ns), weight))
        graph = self._qos.latency
        self.utility += float(np.dot(graph.utilities(latency_ns), weight) if graph else weight.sum())
        if self._qos.deadline_ns:  # a graph that falls from 0 on has no deadline to miss
            self.missed += float(weight[latency_ns > self._qos.deadline_ns].sum())

    def quality(self) -> Quality:
        self.fold()
        return summary([self])

    @property
    def slowdown_sum(self) -> float:
        return self.total_ns / self._ideal_ns

    @property
    def slowdown_max(self) -> float:
        return self.max_ns / self._ideal_ns


def summary(recorders: list[DeliveryRecorder]) -> Quality:
    """Summarize several outputs as one: every tuple counts the same."""
    for recorder in recorders:
        recorder.fold()
    tuples = sum(r.tuples for r in recorders)
    expired = sum(r.expired for r in recorders)
    most = max((r.max_ns for r in recorders), default=0.0)
    count = max(tuples, 1.0)
    cells = np.sum([r.cells for r in recorders], axis=0) if recorders else np.zeros(CELLS)
    p50_ns, p99_ns = (min(quantile(cells, share), most) for share in (0.5, 0.99))
    missed = round(sum(r.missed for r in recorders)) + expired
    return Quality(
        tuples=round(tuples),
        mean_ns=sum(r.total_ns for r in recorders) / count,
        p50_ns=p50_ns,
        p99_ns=p99_ns,
        max_ns=most,
        utility=sum(r.utility for r in recorders) / max(tuples + expired, 1.0) if tuples + expired else 1.0,
        slowdown_mean=sum(r.slowdown_sum for r in recorders) / count,
        slowdown_max=max((r.slowdown_max for r in recorders), default=0.0),
        slowdown_l2=float(np.sqrt(sum(r.squares for r in recorders))),
        missed=missed,
        sdmr=missed / max(tuples + expired, 1.0),
    )


def mean_by_output(recorders: list[DeliveryRecorder]) -> float:
    """Return the utility of an output, as a mean over the outputs that got something or lost all of it to expiry.

    Every output counts the same, as in the goal of the load shedder: the sum of the outputs' utilities. A mean over
    tuples would give up an output with few tuples for one with many.
    """
    for recorder in recorders:
        recorder.fold()
    found = [r.utility / (r.tuples + r.expired) for r in recorders if r.tuples + r.expired > 0]
    return sum(found) / len(found) if found else 1.0


def quantile(cells: Floats, share: float) -> float:
    """Return the latency below which this share of the tuples lies, by interpolation inside its cell."""
    cumulative = np.cumsum(cells)
    if cumulative[-1] <= 0:
        return 0.0
    rank = share * cumulative[-1]
    i = int(np.searchsorted(cumulative, rank, side="left"))
    into = (rank - (cumulative[i] - cells[i])) / cells[i]
    return float(2.0 ** ((i + into) / CELLS_AN_OCTAVE))
