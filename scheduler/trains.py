"""Train rules: how many tuples one box call gets (P0 section 4.2).

A longer train costs less for each tuple and makes all tuples behind it wait longer. Each rule that a user may set
bounds one thing: the count, the share of the queue, the expected cost, the memory, the spread of arrival times.

``auto`` is ours; the paper leaves it as future work. It bounds the time for which one plan keeps a worker: a quarter of
the tightest deadline in the network. A tuple that has just missed a plan then still has three quarters of its time. The
bound follows the measured costs. Where deadlines are missed all the same it is halved, and doubled again when they have
held for a second (``TrainTuner``). ``auto`` never shortens trains while there is a backlog, and never below the length
at which the calls cost as much as the tuples. Either would end in a spiral of short trains, less throughput, longer
queues and more misses.

Where all trains are about as long, nothing tells which part of a call's cost its tuples have. A box whose tuples cost
200 us was taken for one with dear calls, and got trains of half a second. So a train is never much longer than ``auto``
allows by the cost that tuples had in the last trains, calls included, or than twice the last trains.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from scheduler.facts import Facts
    from scheduler.state import ArcState, SchedulerState

AUTO_TUPLES = 262_144
"""The most tuples that one plan takes from a queue while no deadline is tighter. Trains stay as long as they came; this
bounds how many of them share the 60 us that a plan costs beside its boxes, and how long the tuples behind them wait."""

LONGEST_NS = 100_000_000
"""The longest time for which a plan keeps its worker, where no deadline is tighter. Without it a backlog of expensive
tuples would become a plan of seconds, in which nothing else runs, no cost is learned and no shed plan takes effect."""

LEAST_TUPLES = 16
SLACK_SHARE = 0.25
SURELY, SURE_NS = 2.0, 5_000_000
"""Times the budget, which counts as so much at least: the most that a plan takes if all of its cost is the tuples'."""
SLIPPING = 0.01  # the share of late tuples from which trains are shortened
LEAST_SCALE = 1 / 64
HOLD_TICKS = 10


@dataclass(frozen=True, slots=True)
class TrainRule:
    kind: str = "auto"  # auto | all | tuples | fraction | cost | memory | spread
    value: float = 0.0  # tuples, share, ns, bytes or ns

    def tuples(self, state: SchedulerState, box: int) -> int:
        """Return the most tuples to take from each input of a box. At least one, or the box would never run."""
        if self.kind == "auto":
            return state.auto_tuples[box]
        waiting = state.longest_input(box)
        if self.kind == "all":
            return waiting
        if self.kind == "tuples":
            return min(waiting, int(self.value))
        if self.kind == "fraction":
            return min(waiting, max(1, round(waiting * self.value)))
        if self.kind == "cost":
            # The call itself costs the same however short the train is.
            rest_ns = self.value - state.facts.call_ns[box]
            return min(waiting, max(1, int(rest_ns / max(state.facts.downstream_ns[box], 1e-9))))
        if self.kind == "memory":
            return min(waiting, max(1, int(self.value / max(state.facts.tuple_bytes[box], 1e-9))))
        assert self.kind == "spread", self.kind
        arcs = [state.arcs[a] for a in state.network.boxes[box].in_arcs]
        return max([arrived_before(arc, _head_ns(arc) + int(self.value)) for arc in arcs if arc.tuples], default=0)


def _head_ns(arc: ArcState) -> int:
    return next((e.first_arrival_ns for e in arc.entries if e.tuples), 0)


def arrived_before(arc: ArcState, time_ns: int) -> int:
    """Count the tuples at the head of an arc that arrived up to this time. A train's tuples count as evenly spaced."""
    count = 0
    for entry in arc.entries:
        if not entry.tuples:
            continue
        first_ns = entry.first_arrival_ns
        if first_ns > time_ns:
            break
        last_ns = 2 * entry.mean_arrival_ns - first_ns
        if last_ns <= time_ns:
            count += entry.tuples
            continue
        count += 1 + (entry.tuples - 1) * (time_ns - first_ns) // (last_ns - first_ns)
        break
    return count


def arrival_times_ns(arc: ArcState) -> Iterator[int]:
    """Yield when each tuple on an arc arrived, the oldest first. A train's tuples count as evenly spaced."""
    for entry in arc.entries:
        first_ns, rest = entry.first_arrival_ns, max(1, entry.tuples - 1)
        span_ns = 2 * (entry.mean_arrival_ns - first_ns)
        yield from (first_ns + span_ns * i // rest for i in range(entry.tuples))


def nth_arrival_ns(arc: ArcState, number: int) -> int:
    """Return when the tuple with this number, from 1, arrived on an arc; the last one's arrival if there are fewer."""
    last_ns = 0
    for entry in arc.entries:
        if not entry.tuples:
            continue
        first_ns = entry.first_arrival_ns
        last_ns = 2 * entry.mean_arrival_ns - first_ns
        if number <= entry.tuples:
            return first_ns + (last_ns - first_ns) * (number - 1) // max(1, entry.tuples - 1)
        number -= entry.tuples
    return last_ns


def auto_tuples(facts: Facts, scale: float) -> list[int]:
    """Return by box the train that keeps a worker for no longer than its share of the tightest deadline."""
    whole_ns = min(facts.tightest_ns * SLACK_SHARE, LONGEST_NS)
    budget_ns = whole_ns * scale
    out: list[int] = []
    trains = [n if seen else AUTO_TUPLES for n, seen in zip(facts.train_tuples, facts.is_observed, strict=True)]
    for tuple_ns, calls_ns, train in zip(facts.tuple_work_ns, facts.call_work_ns, trains, strict=True):
        each_ns = max(tuple_ns, 1e-3)
        fair = calls_ns / each_ns  # here the calls cost as much as the tuples
        lately_ns = each_ns + calls_ns / max(train, 1.0)  # of a tuple, with its share of the calls
        surely = max(SURELY * max(whole_ns, SURE_NS) / lately_ns, 2.0 * train)
        out.append(int(max(LEAST_TUPLES, min(AUTO_TUPLES, surely, max(fair, (budget_ns - calls_ns) / each_ns)))))
    return out


class TrainTuner:
    """Halves trains when deadlines are missed without a backlog; doubles them when deadlines have held for a while."""

    def __init__(self) -> None:
        self.scale = 1.0
        self._held = 0  # ticks without a slip

    def outcome(self, missed: Iterable[float], backlog: bool) -> bool:
        """Take the shares of missed deadlines of the outputs that can be in time. Return whether the scale changed."""
        before = self.scale
        if max(missed, default=0.0) > SLIPPING and not backlog:
            self._held = 0
            self.scale = max(before / 2, LEAST_SCALE)
        else:
            self._held += 1
            if self._held % HOLD_TICKS == 0:
                self.scale = min(1.0, before * 2)
        return self.scale != before
