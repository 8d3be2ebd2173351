"""One log line for each loss: which place lost how many tuples, and what to do about it.

The parts count their losses for themselves; nothing here is called when a tuple is lost. The monitor gives each of its
readings to ``LossLog.note``, which compares the counters with those that it has logged.

Rules
- The first loss of a place is logged at once, that is with the next tick of the monitor.
- After that a place has at most one line in ``EVERY_NS``, with the losses since its last line and since the start.
- All places of a kind together have at most ``LINES_AT_MOST`` lines in that time: a network of 1,000 boxes that are all
  late does not flood the log. One more line counts the places without a line.
- ``flush`` logs what is left when the daemon stops, so that the lines of a run add up to its counters.

To log another loss, add its counter to ``catalog/readings.py`` and a ``LossKind`` to ``KINDS``.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

from catalog.loss import UNINTENDED
from catalog.readings import NOTHING, Readings
from engine.daemon.monitor.loss_details import LossDetails

log = logging.getLogger("aurorad.losses")

EVERY_NS = 10 * 10**9
LINES_AT_MOST = 10

Counts = Mapping[str, int]
"""What one place has lost since the start, by reason. Where there is only one reason, its key is ""."""


class LossKind(NamedTuple):
    """``counts`` yields the places that have ever lost something. ``detail`` adds what helps, from "; " on."""

    name: str
    sentence: str  # with {place} and {amount}
    counts: Callable[[Readings], Iterable[tuple[str, Counts]]]
    detail: Callable[[LossDetails, str, Readings], str]
    level: int = logging.WARNING
    noun: str = "tuple"


KINDS = (
    LossKind(
        "refused", "stream {place} refused {amount}",
        lambda r: ((s.name, s.rejected) for s in r.streams if s.rejected),
        lambda details, place, r: details.refused(place),
    ),
    LossKind(
        "late", "box {place} left out {amount} that came too late",
        lambda r: ((b.name, {"": b.late}) for b in r.boxes if b.late),
        lambda details, place, r: details.late(place, r),
    ),
    LossKind(
        "dead", "box {place} could not process {amount}",
        lambda r: ((b.name, {"": b.dead}) for b in r.boxes if b.dead),
        lambda details, place, r: details.dead(place),
    ),
    LossKind(
        "evicted_keys", "box {place} forgot {amount} because of the limit of its state",
        lambda r: ((b.name, {"": b.evicted}) for b in r.boxes if b.evicted),
        lambda details, place, r: "; `state` of the box has the limits", noun="key",
    ),
    LossKind(
        "slow_reader", "output {place} dropped {amount} for readers that were too slow or left",
        lambda r: ((o.name, {"": o.dropped}) for o in r.outputs if o.dropped),
        lambda details, place, r: details.slow_readers(place, r),
    ),
    LossKind(
        "sink", "the sink of output {place} dropped {amount}",
        lambda r: ((s.output, {"": s.dropped}) for s in r.sinks if s.dropped),
        lambda details, place, r: details.sink(place, r),
    ),
    LossKind(
        "unplanned", "arc {place} dropped {amount} without a plan",
        lambda r: ((a.name, lost) for a in r.arcs if a.shed and (lost := _only(a.shed, UNINTENDED))),
        lambda details, place, r: details.unplanned(place, r),
    ),
    LossKind(
        "shed", "arc {place} dropped {amount}",
        lambda r: ((a.name, lost) for a in r.arcs if a.shed and (lost := _only(a.shed, a.shed.keys() - UNINTENDED))),
        lambda details, place, r: "; `aurorad explain --drops` says why", logging.INFO,
    ),  # not a warning: the load shedder warns when it begins to shed
    LossKind(
        "withheld", "box {place} withheld {amount}, because its windows lack tuples that were dropped",
        lambda r: ((b.name, {"": b.withheld}) for b in r.boxes if b.withheld),
        lambda details, place, r: "", logging.INFO, "result",
    ),
    LossKind(
        "evicted", "closed {amount} to make room for new ones",
        lambda r: (("", {"": r.engine.evicted_connections}),) if r.engine.evicted_connections else (),
        lambda details, place, r: details.connections(), noun="unused connection",
    ),
    LossKind(
        "no_place", "refused {amount}: no place is free",
        lambda r: (("", {"": r.engine.refused_connections}),) if r.engine.refused_connections else (),
        lambda details, place, r: details.connections(), noun="connection",
    ),
)  # fmt: skip


class _Logged(NamedTuple):
    """What has been logged of one place; ``at_ns`` is the time of its last line, None when it has none yet."""

    counts: Counts = NOTHING
    at_ns: int | None = None


class LossLog:
    """Owner: the monitor's thread; before it starts and after it has ended, the thread that owns the daemon."""

    def __init__(self, details: LossDetails) -> None:
        self._details = details
        self._logged: dict[tuple[str, str], _Logged] = {}
        self._lines_ns: dict[str, list[int]] = {kind.name: [] for kind in KINDS}  # the times of the newest lines
        self._crowded_ns: dict[str, int] = {}  # when the places without a line were counted last

    def skip(self, readings: Readings) -> None:
        """Take these losses as logged: they were counted before a restart."""
        for kind, place, counts in _losses(readings):
            self._logged[kind.name, place] = _Logged(dict(counts))

    def note(self, readings: Readings) -> None:
        """Log the losses of the places that may have a line now."""
        now_ns = readings.engine.now_ns
        crowded: dict[str, int] = {}  # by kind: places that have news, and no line because too many have
        for kind, place, counts in _losses(readings):
            before = self._logged.get((kind.name, place), _Logged())
            is_news = counts != before.counts
            if is_news and (before.at_ns is None or now_ns - before.at_ns >= EVERY_NS):
                if self._has_lines_left(kind.name, now_ns):
                    self._write(kind, place, counts, before, readings)
                else:
                    crowded[kind.name] = crowded.get(kind.name, 0) + 1
        for name, places in crowded.items():
            if now_ns - self._crowded_ns.get(name, -EVERY_NS) >= EVERY_NS:
                self._crowded_ns[name] = now_ns
                log.warning("%d more places have losses of the kind %s; /metrics has all of them", places, name)

    def flush(self, readings: Readings) -> None:
        """Log all that is new: the daemon stops."""
        for kind, place, counts in _losses(readings):
            self._write(kind, place, counts, self._logged.get((kind.name, place), _Logged()), readings)

    def _has_lines_left(self, kind: str, now_ns: int) -> bool:
        self._lines_ns[kind] = [at_ns for at_ns in self._lines_ns[kind] if now_ns - at_ns < EVERY_NS]
        return len(self._lines_ns[kind]) < LINES_AT_MOST

    def _write(self, kind: LossKind, place: str, counts: Counts, before: _Logged, readings: Readings) -> None:
        now_ns, at_ns = readings.engine.now_ns, before.at_ns
        new = {reason: lost for reason, n in counts.items() if (lost := n - before.counts.get(reason, 0)) > 0}
        if new:
            amount, total = sum(new.values()), sum(counts.values())
            since = "" if at_ns is None else f" in the last {(now_ns - at_ns) / 1e9:.0f} s"
            text = kind.sentence.format(place=place, amount=f"{amount:,} {kind.noun}{'s' * (amount != 1)}{since}")
            text += _reasons(new) + (f", {total:,} since the start" if total != amount else "")
            log.log(kind.level, "%s%s", text, kind.detail(self._details, place, readings))
            self._lines_ns[kind.name].append(now_ns)
            at_ns = now_ns
        # A count may also fall: a named reader that leaves takes its count along.
        self._logged[kind.name, place] = _Logged(dict(counts), at_ns)


def _losses(readings: Readings) -> Iterator[tuple[LossKind, str, Counts]]:
    for kind in KINDS:
        for place, counts in kind.counts(readings):
            yield kind, place, counts


def _only(counts: Counts, reasons: Iterable[str]) -> Counts:
    return {reason: counts[reason] for reason in reasons if counts.get(reason)}


def _reasons(counts: Counts) -> str:
    if list(counts) == [""]:
        return ""
    return " (" + ", ".join(f"{n:,} {reason}" for reason, n in sorted(counts.items(), key=lambda c: -c[1])) + ")"
