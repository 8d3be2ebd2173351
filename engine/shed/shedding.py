"""The plan in force. With none, nothing is masked, no superbox is broken and no train pays.

An arc with drops is taken out of its fused chain, as a watched one is (``engine/taps.py``), and the sequences are
compiled anew: only when the *set* of such arcs changes. When only a share moves, the arc's mask reads the new one with
its next train. An arc that leaves the plan while a window that was dropped in part is open stays until that window is
over: it is finished as it began.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from threading import Lock
from typing import Any

import numpy as np

from catalog.network import Network
from catalog.shed import NOTHING_SHED, UNINTENDED, ShedPlan, Values
from engine.shed.arc import ArcShed
from engine.shed.book import LossBook
from engine.shed.ring import Counts, PlanRing
from engine.shed.values import Judges
from load_shedder.drop import Utilities
from storage.train import Train

LOOK_TUPLES = 1_024

Keep = Callable[[Train], Train]
"""A train without what is dropped of it."""


class Shedding:
    """Any thread may put a plan; the threads that move trains read ``arcs``."""

    def __init__(self, network: Network, book: LossBook, now_ns: Callable[[], int], seed: int = 0) -> None:
        self._network = network
        self._now_ns = now_ns
        self._seed = seed
        self._lock = Lock()
        self.book = book
        self.judges = Judges(network)
        self._judged_streams = [
            (a.number, a.source.stream)
            for a in network.arcs
            if a.source.stream is not None and a.number in self.judges.semantic_arcs
        ]
        self._looked_at: dict[int, Train] = {}
        self.plan: ShedPlan = NOTHING_SHED
        self.ring = PlanRing()
        self.arcs: Mapping[int, Keep] = {}  # where something is dropped now: what sequences are compiled with
        self.known: dict[int, ArcShed] = {}  # where something ever was: counters stay
        self.on_change: Callable[[Mapping[int, Keep]], None] = lambda arcs: None
        self.more_counts: Callable[[], Counts] = dict  # what was dropped by others, on queues

    def put(self, plan: ShedPlan) -> None:
        with self._lock:
            drops = {d.place.arc: d for d in plan.drops if d.share > 0.0}
            if plan.number != self.plan.number or plan.drops != self.plan.drops:
                self.ring.put(plan, self._now_ns(), self.counts())
            for number, drop in drops.items():
                self.shed_of(number).set(drop)
            for number, shed in list(self.known.items()):
                if number not in drops and shed.drop is not None:
                    shed.set(None)
            self.plan = plan
            self._refresh()

    def tidy(self, latest: Sequence[Train | None]) -> None:
        """Some times a second: windows that are over let go of their arcs, and the values of what came last are
        looked at where they may matter one day (``latest`` is by stream)."""
        with self._lock:
            self._refresh()
            for number, stream in self._judged_streams:
                train = latest[stream]
                if train is not None and train is not self._looked_at.get(number) and number not in self.arcs:
                    self._looked_at[number] = train
                    self.shed_of(number).observe(train.slice(0, min(train.count, LOOK_TUPLES)))

    def _refresh(self) -> None:
        now = {n: shed.keep for n, shed in sorted(self.known.items()) if not shed.is_over}
        if now.keys() != self.arcs.keys():
            self.arcs = now
            self.on_change(now)

    def shed_of(self, arc: int) -> ArcShed:
        """The arc's drops, made when they are first needed."""
        shed = self.known.get(arc)
        if shed is None:
            seed = self._seed * 1_000_003 + arc
            fresh = ArcShed(
                self._network.arcs[arc], seed, self.judges.judge(arc), self.book.grids(arc), self.book.of_arc(arc)
            )
            shed = self.known.setdefault(arc, fresh)
        return shed

    def note_expired(self, arc: int, trains: Sequence[Train]) -> None:
        """Tuples were dropped from a queue, and counted there: windows behind it must know."""
        if self.book.of_arc(arc) is not None:
            for train in trains:
                self.shed_of(arc).note_lost(train)

    # -- looking in ---------------------------------------------------------------------------------------------------

    def counts(self) -> Counts:
        """Tuples dropped so far, by arc and reason."""
        mine: Counts = {
            (number, reason): count
            for number, shed in list(self.known.items())
            for reason, count in shed.dropped.items()
            if count
        }
        for key, count in self.more_counts().items():
            mine[key] = mine.get(key, 0) + count
        return mine

    def distributions(self) -> dict[int, Values]:
        """By arc on which drops may go by value: what its tuples are worth. Arcs from streams are looked at all the
        time, others while something is dropped there."""
        found = {number: shed.values.histogram.copy() for number, shed in list(self.known.items())}
        return {number: _cells(histogram) for number, histogram in found.items() if histogram.any()}

    def to_json(self, limit: int = 100) -> dict[str, Any]:
        """What ``/api/v1/drops`` answers."""
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
        arcs = {self._network.arcs[n].name: shed.snapshot() for n, shed in self.known.items()}
        boxes = {self._network.boxes[b].name: view.withheld for b, view in self.book.boxes.items()}
        return {"arcs": arcs, "losses": self.book.snapshot(), "withheld": boxes}

    def restore(self, data: Mapping[str, Any]) -> None:
        """Before the engine starts. The plan is not: whether it is still called for the controller will see."""
        for arc in self._network.arcs:
            if arc.name in data["arcs"]:
                self.shed_of(arc.number).restore(data["arcs"][arc.name])
        self.book.restore(data["losses"])
        for b, view in self.book.boxes.items():
            view.withheld = int(data["withheld"].get(self._network.boxes[b].name, 0))


def _cells(histogram: Utilities) -> Values:
    """A histogram over utilities in [0, 1] as cells with something in them."""
    there = np.flatnonzero(histogram)
    worths = there / (histogram.shape[0] - 1)
    return Values(tuple((histogram[there] / histogram.sum()).tolist()), tuple(worths.tolist()))
