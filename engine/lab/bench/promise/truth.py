"""The results that are due: what a network would deliver if nothing were lost, by the time at which each was due.

Boxes that only spend time (``universal``) spend none here, so the truth of 20 s costs less than a second. Where all
boxes work row by row, the sample runs through the network once, and the results of any schedule follow
(``overload/due_results``). With windows or joins the rows of the schedule run through the engine itself.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from catalog.network import Network, Output
from engine.lab.bench.overload.arrivals import ArrivalShape
from engine.lab.bench.overload.clients import BINS_PER_S, TICK_S
from engine.lab.bench.overload.due_results import ResultSums, due, is_row_wise, result_sums
from engine.lab.bench.overload.rows import ArrowRows
from engine.lab.bench.overload.utility import Due
from engine.lab.bench.promise.kinds import Document, PromiseNetwork
from engine.run.core import Engine
from engine.run.network_file import read_network
from engine.simulate.sample_tuples import as_train
from router.event_time import EventTime
from storage.train import Train

Floats = npt.NDArray[np.float64]


class WindowTruth(NamedTuple):
    """A window of which nothing was dropped."""

    rows: int
    mean: float


WindowRows = dict[tuple[int, str], WindowTruth]
"""By end and key of a window."""
DRAIN_S = 300.0


class Truth(NamedTuple):
    """By output: the results that are due in each tenth of a second, and the rows of each window."""

    due: Mapping[str, Due]
    windows: Mapping[str, WindowRows]


class TruthMaker:
    """The truth of one network, for any schedule. ``samples`` holds the rows of each stream, as Arrow files."""

    def __init__(self, spec: PromiseNetwork, samples: Mapping[str, Path]) -> None:
        self._spec = spec
        self._samples = samples
        self.network = read_network(json.dumps(free_of_cost(spec.document)), {})
        self.sums: dict[str, ResultSums] = {}
        if is_row_wise(self.network):
            self.sums = {s.name: result_sums(self.network, s, samples[s.name]) for s in self.network.streams}

    def make(self, shape: ArrivalShape, per_s: Mapping[str, float], begun_ns: int) -> Truth:
        """Compute the truth of a schedule that began at this time. ``per_s`` holds the rows a second at load 1."""
        if self.sums:
            outputs = [o.name for o in self.network.outputs]
            kinds = (False, True)
            return Truth({o: Due(*(due(self.sums, per_s, shape, o, v) for v in kinds)) for o in outputs}, {})
        return self._run(shape, per_s, begun_ns)

    def _run(self, shape: ArrivalShape, per_s: Mapping[str, float], begun_ns: int) -> Truth:
        bins = int(shape.seconds * BINS_PER_S)
        counts = {o.name: np.zeros(bins) for o in self.network.outputs}
        windows: dict[str, WindowRows] = {name: {} for name in self._spec.windows}

        def outlet(output: Output) -> Callable[[Train], None]:
            places = [output.schema.index(t) for t in self._spec.times_of(output.name)]
            rows = windows.get(output.name)

            def take(train: Train) -> None:
                due_ns = np.max([train.columns[p] for p in places], axis=0)
                at = (due_ns - begun_ns) * BINS_PER_S // 1_000_000_000
                inside = at[(at >= 0) & (at < bins)]
                counts[output.name] += np.bincount(inside, minlength=bins)
                if rows is not None:
                    keys, n, means = (train.to_pylist(train.schema.index(name)) for name in ("k", "n", "mean"))
                    rows.update(zip(zip(due_ns.tolist(), keys, strict=True), map(WindowTruth, n, means), strict=True))

            return take

        outlets = [outlet(o) for o in self.network.outputs]
        engine = Engine(self.network, outlets, event_time=EventTime(self.network, lambda: begun_ns))
        engine.start()
        try:
            self._feed(engine, shape, per_s, begun_ns)
            assert engine.drain(DRAIN_S), "the engine did not drain the schedule"
        finally:
            engine.stop()
        return Truth({name: Due(n, n) for name, n in counts.items()}, windows)

    def _feed(self, engine: Engine, shape: ArrivalShape, per_s: Mapping[str, float], begun_ns: int) -> None:
        """Admit the rows of the schedule, by the same arithmetic as the sender."""
        rows = {}
        for stream in self.network.streams:
            with pa.OSFile(str(self._samples[stream.name]), "rb") as file:
                rows[stream.name] = ArrowRows(pa.ipc.open_file(file).get_batch(0), stream.time_field or "")
        at, owed = dict.fromkeys(rows, 0), dict.fromkeys(rows, 0.0)
        for i in range(round(shape.seconds / TICK_S)):
            due_ns = begun_ns + int(i * TICK_S * 1e9)
            for stream in self.network.streams:
                name = stream.name
                owed[name] += per_s[name] * shape.factor(i * TICK_S) * TICK_S
                while owed[name] >= 1:
                    count = min(int(owed[name]), rows[name].count - at[name])
                    batch, _ = rows[name].cut(at[name], count, None, due_ns)
                    at[name], owed[name] = (at[name] + count) % rows[name].count, owed[name] - count
                    engine.ingress.admit(stream.number, as_train(stream, batch))
        for stream in self.network.streams:
            engine.ingress.end(stream.number)


def free_of_cost(document: Document) -> Document:
    """Return the network without the costs of its boxes, and without loss."""
    found: Document = json.loads(json.dumps(document))
    for box in found["boxes"].values():
        if "universal" in box:
            box["cost"] = "0s"
    for stream in found["streams"].values():
        stream["overload"] = "block"
    return {**found, "http": {"listen": "off"}}


def value_grid(network: Network, sums: Mapping[str, ResultSums], output: str, points: int) -> Floats | None:
    """Return the share of the worth that the best tuples carry, at evenly spaced shares of the tuples; None where all
    tuples are worth the same."""
    qos = network.output(output).qos
    each = [w for s in sums.values() for w in s.worths.get(output, ())]
    if not each or (qos.value is None and not qos.prefer):
        return None
    best = np.cumsum(np.sort(np.concatenate(each))[::-1])
    shares = np.linspace(0, 1, points)
    grid: Floats = np.interp(shares * len(best), np.arange(len(best) + 1), np.concatenate([[0.0], best])) / best[-1]
    return grid
