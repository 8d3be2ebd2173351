"""``policy: auto`` at work: when to ask for forecasts, and the history of the choices.

``scheduler/choice`` makes the choice itself. The chooser is ticked ten times a second, by the simulation or by a thread
of the daemon. It asks a few times at the start, while the rates of the streams become known. From then on it asks only
while the outputs do badly: tuples come out with less utility than they could have, or wait until they will. While all
is well there is nothing to gain, and no time is spent. After the first few, each look that changes nothing doubles the
pause before the next one. After a change ``feel`` measures what the outputs get; a policy that gives them less than the
one before is left again, and barred for a while.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from catalog.network import Network
from catalog.stats import Statistics
from engine.simulate.what_if import Snapshot, WhatIf
from scheduler.choice import (
    BARRED_NS,
    NO_PRESSURE,
    Choice,
    FeltLevel,
    Pressure,
    Probation,
    candidates,
    first_choice,
    next_choice,
)
from scheduler.feedback import utility
from scheduler.state import SchedulerState

WELL = 0.98
"""From this utility on there is nothing to gain."""

FIRST_NS = 200_000_000
FIRST_LOOKS = 3  # even if all is well: the rates of the streams are known better each time
FELT_MEMORY = 0.9  # weight of the level before; a look ten times a second
SHORTEST_NS, LONGEST_NS = 500_000_000, 16_000_000_000  # between two looks


class Chosen(NamedTuple):
    """A choice, when it was made and why: for the report of a simulation and for the log."""

    at_ns: int
    policy: str
    reason: str


class Chooser:
    """``look`` may take long: call it on a thread that no other thread waits for."""

    def __init__(self, network: Network, what_if: WhatIf, start_ns: int = 0, first_looks: int = FIRST_LOOKS) -> None:
        """``first_looks`` are made even if all is well."""
        self._first_looks = first_looks
        self.choice: Choice = first_choice(network)
        self.history: list[Chosen] = [Chosen(start_ns, *self.choice)]
        self.changes = 0
        self.looks = 0
        self._network = network
        self._what_if = what_if
        self._probation: Probation | None = None
        self._level: FeltLevel | None = None  # under the present policy, as a running mean
        self._barred: dict[str, int] = {}  # by policy that failed: until when
        self._bars: dict[str, int] = {}  # by policy: how often it failed
        self._pause_ns = SHORTEST_NS
        self._due_ns = start_ns + FIRST_NS

    def is_due(self, now_ns: int) -> bool:
        return now_ns >= self._due_ns

    def not_before(self, now_ns: int) -> None:
        """Do not look before this time."""
        self._due_ns = max(self._due_ns, now_ns)

    def feel(self, now_ns: int, felt: FeltLevel) -> Choice | None:
        """Note what the outputs get, some times a second. Return the choice if that takes a change back."""
        before = self._level
        self._level = felt if before is None else FeltLevel(*(FELT_MEMORY * b + (1 - FELT_MEMORY) * f
                                                              for b, f in zip(before, felt, strict=True)))  # fmt: skip
        if self._probation is None:
            return None
        self._probation = self._probation.note(now_ns, felt)
        if not self._probation.is_over(now_ns):
            return None
        failed, back = self.choice.policy, self._probation.failed(self.choice.policy)
        self._probation = None
        if back is not None:
            self._bars[failed] = self._bars.get(failed, 0) + 1
            self._barred[failed] = now_ns + BARRED_NS * 2 ** min(self._bars[failed] - 1, 6)
            self._follow(now_ns, back)
            self.not_before(now_ns + LONGEST_NS)
        return back

    def look(
        self,
        now_ns: int,
        health: float,
        snapshot: Callable[[], Snapshot],
        statistics: Statistics,
        pressure: Pressure = NO_PRESSURE,
    ) -> Choice | None:
        """Ask for forecasts if there is a reason to. Return the choice if it has changed.

        ``health``: the utility of the tuples that come out and wait, 0 to 1.
        """
        if self._probation is not None:
            self._due_ns = now_ns + SHORTEST_NS
            return None
        if health >= WELL and self.looks >= self._first_looks and not pressure.short_of:
            self._due_ns = now_ns + SHORTEST_NS
            self._pause_ns = SHORTEST_NS
            return None
        self.looks += 1
        current = self.choice.policy
        names = [n for n in candidates(self._network, pressure) if self._barred.get(n, 0) <= now_ns]
        forecasts = self._what_if.forecasts(snapshot(), statistics, names, current)
        found = next_choice(current, forecasts, pressure.short_of)
        settled = found is None and self.looks >= self._first_looks
        self._pause_ns = min(LONGEST_NS, 2 * self._pause_ns) if settled else SHORTEST_NS
        self._due_ns = now_ns + self._pause_ns
        if found is not None:
            if self._level is not None:
                self._probation = Probation(self.choice, self._level, now_ns)
            self._follow(now_ns, found)
        return found

    def _follow(self, now_ns: int, choice: Choice) -> None:
        self.choice = choice
        self.changes += 1
        self.history.append(Chosen(now_ns, *choice))
        del self.history[1:-HISTORY]


HISTORY = 64


def waiting_worth(state: SchedulerState, now_ns: int) -> float:
    """Return the mean utility of the tuples that wait if they were delivered now: 0 to 1."""
    outputs, worth, tuples = state.network.outputs, 0.0, 0
    for unit in state.ready:
        for box in state.unit_live[unit]:
            count = state.box_tuples(box)
            graphs = [g for o in state.network.box_outputs[box] if (g := outputs[o].qos.latency) is not None]
            if count and graphs:
                age_ns = now_ns - state.mean_arrival_ns(box)
                worth += count * min(utility(g, age_ns) for g in graphs)
                tuples += count
    return worth / tuples if tuples else 1.0
