"""The plan in force. Without drops no arc has a mask, no superbox is broken up, and no train pays.

An arc with drops is taken out of its fused chain, like a watched arc (``engine/run/taps.py``), and the sequences are
compiled again. This happens only when the *set* of such arcs changes. When only a share changes, the arc's mask uses
the new share from its next train on. An arc that leaves the plan while a window dropped in part is open keeps its mask
until that window closes: the window ends as it began.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from threading import Lock
from typing import Any

import numpy as np

from catalog.loss import UNINTENDED, ValueCells
from catalog.network import Arc, Network
from load_shedder.apply.arc import ArcDrops
from load_shedder.apply.limits import overflowing_streams
from load_shedder.decide.values import Utilities, Valuations, known_values
from load_shedder.record.book import LossBook
from load_shedder.record.ring import DropCounts, PlanRing
from load_shedder.shed_plan import NOTHING_SHED, ShedPlan
from storage.train import Train

SAMPLE_TUPLES = 1_024  # of a train, to learn the worth of tuples while nothing is dropped

Keep = Callable[[Train], Train]
"""Return a train without the tuples that are dropped."""


class Shedding:
    """Any thread may apply a plan; the threads that move trains use ``masks``."""

    def __init__(
        self,
        network: Network,
        book: LossBook,
        valuations: Valuations,
        now_ns: Callable[[], int],
        *,
        on_change: Callable[[Mapping[int, Keep]], None],
        queue_drops: Callable[[], DropCounts],
        seed: int = 0,
    ) -> None:
        """``on_change`` receives the arcs with drops whenever that set changes. ``queue_drops`` returns the drops that
        storage counts itself: tuples that expired on a queue."""
        self._network = network
        self._now_ns = now_ns
        self._seed = seed
        self._lock = Lock()
        self.book = book
        self.valuations = valuations
        semantic = valuations.semantic_arcs  # asked once: a property that looks at every arc
        self._valued_streams = [
            (a.number, a.source.stream) for a in network.arcs if a.source.stream is not None and a.number in semantic
        ]
        self._sampled: dict[int, Train] = {}  # by arc: the last train sampled
        self.plan: ShedPlan = NOTHING_SHED
        self.ring = PlanRing()
        self.masks: Mapping[int, Keep] = {}  # by arc with drops now: sequences are compiled with these
        self.by_arc: dict[int, ArcDrops] = {}  # arcs with drops now or earlier: their counters stay
        self._on_change = on_change
        self._queue_drops = queue_drops

    def apply(self, plan: ShedPlan) -> None:
        """Put a plan into force, in place of the last one."""
        with self._lock:
            wanted = {d.place.arc: d for d in plan.drops if d.share > 0.0}
            if plan.number != self.plan.number or plan.drops != self.plan.drops:
                self.ring.put(plan, self._now_ns(), self.counts())
            for number, drop in wanted.items():
                self.drops_of(number).set(drop)
            for number, drops in list(self.by_arc.items()):
                if number not in wanted and drops.drop is not None:
                    drops.set(None)
            self.plan = plan
            self._update_masks()

    def refresh(self, latest: Sequence[Train | None]) -> None:
        """Run some times a second: remove masks whose windows are over, and sample the latest train of each stream
        (``latest``) where drops by value may begin one day."""
        with self._lock:
            self._update_masks()
            for number, stream in self._valued_streams:
                train = latest[stream]
                if train is not None and train is not self._sampled.get(number) and number not in self.masks:
                    self._sampled[number] = train
                    self.drops_of(number).observe(train.slice(0, min(train.count, SAMPLE_TUPLES)))

    def _update_masks(self) -> None:
        """Report the arcs with drops if that set has changed."""
        now = {n: drops.keep for n, drops in sorted(self.by_arc.items()) if not drops.is_over}
        if now.keys() != self.masks.keys():
            self.masks = now
            self._on_change(now)

    def drops_of(self, arc: int) -> ArcDrops:
        """Return the drops of this arc, made on first use."""
        drops = self.by_arc.get(arc)
        if drops is None:
            seed = self._seed * 1_000_003 + arc
            fresh = ArcDrops(
                self._network.arcs[arc],
                seed,
                self.valuations.of_arc(arc),
                self.book.grids(arc),
                self.book.of_arc(arc),
            )
            drops = self.by_arc.setdefault(arc, fresh)
        return drops

    def overflow_masks(self) -> dict[int, tuple[tuple[Arc, Keep], ...]]:
        """Return, by stream that overflows (``limits``), its arcs to boxes, each with a mask that drops all tuples."""
        network = self._network
        return {
            stream: tuple(
                (network.arcs[a], partial(self._overflow, a))
                for a in network.streams[stream].arcs
                if network.arcs[a].box is not None
            )
            for stream in overflowing_streams(network)
        }

    def _overflow(self, arc: int, train: Train) -> Train:
        return self.drops_of(arc).lose(train, "overflow")

    def note_expired(self, arc: int, trains: Sequence[Train]) -> None:
        """Note tuples that expired on a queue, where they are counted: the windows behind the arc lack them."""
        if self.book.of_arc(arc) is not None:
            for train in trains:
                self.drops_of(arc).note_lost(train)

    def note_undecoded(self, arcs: Sequence[int], train: Train, lost: int) -> None:
        """Note rows that were dropped before they were decoded. Their event times are not known: those of the rows
        around them (``train``) stand for them."""
        stands = None
        for arc in arcs:
            if self.book.of_arc(arc) is not None:
                stands = train.take(np.arange(lost) * train.count // lost) if stands is None else stands
                self.drops_of(arc).note_lost(stands)

    # -- looking in ---------------------------------------------------------------------------------------------------

    def counts(self) -> DropCounts:
        """Return the tuples dropped so far, by arc and reason."""
        mine: DropCounts = {
            (number, reason): count
            for number, drops in list(self.by_arc.items())
            for reason, count in drops.dropped.items()
            if count
        }
        for key, count in self._queue_drops().items():
            mine[key] = mine.get(key, 0) + count
        return mine

    def values(self) -> dict[int, ValueCells]:
        """Return, by arc on which drops may go by value, what its tuples are worth. Arcs from streams are sampled all
        the time, others while something is dropped there."""
        found = {number: drops.values.histogram.copy() for number, drops in list(self.by_arc.items())}
        cells = {number: _cells(histogram) for number, histogram in found.items() if histogram.any()}
        return known_values(self._network, cells)

    def to_json(self, limit: int = 100) -> dict[str, Any]:
        """Return the answer of ``/api/v1/drops``."""
        names = [a.name for a in self._network.arcs]
        with self._lock:
            counts = self.counts()
            plans = self.ring.to_json(counts, names, [o.name for o in self._network.outputs], limit)
            total = self.ring.total
        return {
            "level": self.plan.level,
            "plans_total": total,
            "plans": plans,
            "dropped": [
                {"arc": names[arc], "reason": reason, "tuples": tuples, "intended": reason not in UNINTENDED}
                for (arc, reason), tuples in sorted(counts.items())
            ],
            "withheld": [
                {"box": self._network.boxes[b].name, "tuples": view.withheld}
                for b, view in self.book.boxes.items()
                if view.withheld
            ],
        }

    # -- plain data ---------------------------------------------------------------------------------------------------

    def snapshot(self) -> dict[str, Any]:
        arcs = {self._network.arcs[n].name: drops.snapshot() for n, drops in self.by_arc.items()}
        boxes = {self._network.boxes[b].name: view.withheld for b, view in self.book.boxes.items()}
        return {"arcs": arcs, "losses": self.book.snapshot(), "withheld": boxes}

    def restore(self, data: Mapping[str, Any]) -> None:
        """Put back a snapshot, before the engine starts. The plan is not part of it: the controller decides anew."""
        for arc in self._network.arcs:
            if arc.name in data["arcs"]:
                self.drops_of(arc.number).restore(data["arcs"][arc.name])
        self.book.restore(data["losses"])
        for b, view in self.book.boxes.items():
            view.withheld = int(data["withheld"].get(self._network.boxes[b].name, 0))


def _cells(histogram: Utilities) -> ValueCells:
    """Return the bins of a histogram over [0, 1] that are not empty."""
    there = np.flatnonzero(histogram)
    worths = there / (histogram.shape[0] - 1)
    return ValueCells(tuple((histogram[there] / histogram.sum()).tolist()), tuple(worths.tolist()))
