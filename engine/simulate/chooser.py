"""``policy: auto`` at work: when to ask for forecasts, and the history of the choices.

``scheduler/choice`` makes the choice itself. The chooser is ticked ten times a second, by the simulation or by a thread
of the daemon. It asks a few times at the start, while the rates of the streams become known. From then on it asks only
while the outputs do badly: tuples come out with less utility than they could have, or wait until they will. While all
is well there is nothing to gain, and no time is spent. After the first few, each look that changes nothing doubles the
pause before the next one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from catalog.network import Network
from catalog.stats import Statistics
from engine.simulate.what_if import Snapshot, WhatIf
from scheduler.choice import Choice, candidates, first_choice, next_choice
from scheduler.feedback import utility
from scheduler.state import SchedulerState

WELL = 0.98
"""From this utility on there is nothing to gain."""

FIRST_NS = 200_000_000
FIRST_LOOKS = 3  # even if all is well: the rates of the streams are known better each time
SHORTEST_NS, LONGEST_NS = 500_000_000, 16_000_000_000  # between two looks


class Chosen(NamedTuple):
    """A choice, when it was made and why: for the report of a simulation and for the log."""

    at_ns: int
    policy: str
    reason: str


class Chooser:
    """``look`` may take long: call it on a thread that no other thread waits for."""

    def __init__(self, network: Network, what_if: WhatIf, start_ns: int = 0) -> None:
        self.choice: Choice = first_choice(network)
        self.history: list[Chosen] = [Chosen(start_ns, *self.choice)]
        self.changes = 0
        self.looks = 0
        self._names = candidates(network)
        self._what_if = what_if
        self._pause_ns = SHORTEST_NS
        self._due_ns = start_ns + FIRST_NS

    def is_due(self, now_ns: int) -> bool:
        return now_ns >= self._due_ns

    def not_before(self, now_ns: int) -> None:
        """Do not look before this time."""
        self._due_ns = max(self._due_ns, now_ns)

    def look(
        self, now_ns: int, health: float, snapshot: Callable[[], Snapshot], statistics: Statistics
    ) -> Choice | None:
        """Ask for forecasts if there is a reason to. Return the choice if it has changed.

        ``health``: the utility of the tuples that come out and wait, 0 to 1.
        """
        if health >= WELL and self.looks >= FIRST_LOOKS:
            self._due_ns = now_ns + SHORTEST_NS
            self._pause_ns = SHORTEST_NS
            return None
        self.looks += 1
        current = self.choice.policy
        found = next_choice(current, self._what_if.forecasts(snapshot(), statistics, self._names, current))
        settled = found is None and self.looks >= FIRST_LOOKS
        self._pause_ns = min(LONGEST_NS, 2 * self._pause_ns) if settled else SHORTEST_NS
        self._due_ns = now_ns + self._pause_ns
        if found is not None:
            self.choice = found
            self.changes += 1
            self.history.append(Chosen(now_ns, *found))
            del self.history[1:-HISTORY]
        return found


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
