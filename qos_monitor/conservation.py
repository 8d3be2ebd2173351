"""The laws of conservation: no tuple is lost without being counted. Arithmetic on one reading.

- stream: received = admitted + rejected + duplicates + dropped undecoded
- arc: enqueued = dequeued + shed + in memory + on disk
- box that works row by row: in = out + filtered + dead + waiting; windowed box: in = absorbed + late + dead + waiting
- output, for each subscriber: offered = delivered + pending + dropped

The laws hold at any quiet point. While the engine runs, a reading may fall between two counters of one train. So the
exported residual of an element is the smallest of the last few readings (``PersistentBreaches``): a lost tuple is
missing in every one of them, a tuple in flight is not.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

from catalog.readings import ArcReading, BoxReading, Readings, StreamReading, SubscriberReading

LAWS = ("stream", "arc", "box", "output")


class Breach(NamedTuple):
    """An element whose tuples do not add up. ``missing`` is positive when tuples vanished, negative when invented."""

    law: str
    name: str
    missing: int


def stream_residual(s: StreamReading) -> int:
    return s.received - s.admitted - sum(s.rejected.values()) - s.duplicates - sum(s.edge.dropped.values())


def arc_residual(a: ArcReading) -> int:
    return a.enqueued - a.dequeued - sum(a.shed.values()) - a.tuples - a.spilled_tuples


def box_residual(b: BoxReading) -> int:
    if b.row_wise:
        return b.tuples_in - b.tuples_out - b.filtered - b.dead - b.waiting
    return b.tuples_in - b.absorbed - b.late - b.dead - b.waiting


def subscriber_residual(s: SubscriberReading) -> int:
    return s.offered - s.delivered - s.pending - s.dropped


def breaches(readings: Readings) -> list[Breach]:
    """Return every element that breaks its law in this reading."""
    return [breach for breach in _residuals(readings) if breach.missing != 0]


def residuals(readings: Readings) -> dict[str, int]:
    """Return, by law, the tuples unaccounted for. Absolute values add up: one lost and one invented make two."""
    return _by_law(breaches(readings))


class PersistentBreaches:
    """Remember the breaches of the last readings and report only those that occur in all of them.

    Owner: the monitor thread. At a quiet point use ``residuals``, which needs no memory.
    """

    def __init__(self, readings: int = 5) -> None:
        self._recent: deque[dict[tuple[str, str], int]] = deque(maxlen=readings)

    def fold(self, readings: Readings) -> list[Breach]:
        self._recent.append({(b.law, b.name): b.missing for b in breaches(readings)})
        if len(self._recent) < (self._recent.maxlen or 1):
            return []
        lasting = set.intersection(*(set(r) for r in self._recent))
        return [Breach(*key, min((r[key] for r in self._recent), key=abs)) for key in sorted(lasting)]

    def by_law(self, readings: Readings) -> dict[str, int]:
        return _by_law(self.fold(readings))


def _by_law(found: list[Breach]) -> dict[str, int]:
    totals = dict.fromkeys(LAWS, 0)
    for breach in found:
        totals[breach.law] += abs(breach.missing)
    return totals


def _residuals(readings: Readings) -> Iterator[Breach]:
    for s in readings.streams:
        yield Breach("stream", s.name, stream_residual(s))
    for a in readings.arcs:
        yield Breach("arc", a.name, arc_residual(a))
    for b in readings.boxes:
        yield Breach("box", b.name, box_residual(b))
    for o in readings.outputs:
        for i, subscriber in enumerate(o.subscribers):
            yield Breach("output", f"{o.name}/{subscriber.name or i}", subscriber_residual(subscriber))
