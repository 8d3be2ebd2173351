"""Self-tuning of settings: hill climbing on a ladder of values, by a cost that is measured while they are in force.

P0 leaves it open (section 8): "we intend to extend these studies in the future by examining self-tuning approaches that
dynamically revise algorithm parameters". P4 chooses Kp and Ki by trial (section 3.2): one after the other is varied and
the effect observed, "until the response is satisfactory". This is ours, and does for a running engine what P4 did by
hand. ``scheduler: {tune: [grid, spanner, controller]}`` switches it on, by setting.

A climber measures the cost at its place for a number of readings, then at a neighbour. It moves there if that is better
by a margin, and goes on in the same direction; else it turns round. When neither side is better it has settled: it
rests, twice as long each time up to a limit, and looks again, because the load changes. The margin keeps it from
following chance; the rest keeps the price of looking below a tenth of the time.
"""

from __future__ import annotations

from collections.abc import Sequence

MARGIN = 0.05
"""A neighbour must cost this much less, as a share of the cost ..."""
LEAST = 0.005
"""... and at least this much: a share of deadlines that chance explains."""
READINGS = 20  # for one measurement
LONGEST_REST = 64  # measurements


EVERY_BOX = 1 << 20
"""Stands for a spanner of all boxes on the ladder, behind the largest k. (The setting writes it as 0.)"""
SPANNERS = (1, 2, 4, 8, 16, 32, EVERY_BOX)
GRIDS = (1, 2, 5, 10, 20, 40, 80)
PROPORTIONALS = (0.5, 1.0, 2.5, 10.0, 20.0)
"""Kp and Ki as P4 tried them, in figures 5 and 6."""
INTEGRALS = (1.0, 5.0, 10.0, 15.0, 20.0)


class Climber:
    """Looks for the value of least cost. ``values`` is a ladder: neighbours differ little in effect."""

    def __init__(self, values: Sequence[float], start: float, readings: int = READINGS) -> None:
        self._values = sorted({*values, start})
        self._at = self._values.index(start)  # the best place so far
        self._step = 1  # the direction of the next look
        self._tried = 0  # directions that were no better
        self._looks = False  # it measures a neighbour
        self._here: float | None = None  # the cost at the best place
        self._rest = 0  # measurements left before it looks again
        self._next_rest = 4
        self._readings = readings
        self._sum, self._count = 0.0, 0

    @property
    def value(self) -> float:
        """The value in force: that of the best place, or of the neighbour that is being measured."""
        return self._values[self._at + self._step] if self._looks else self._values[self._at]

    @property
    def best(self) -> float:
        """The best value so far."""
        return self._values[self._at]

    @property
    def has_settled(self) -> bool:
        """Whether no neighbour was better at the last look."""
        return self._rest > 0

    def observe(self, cost: float) -> bool:
        """Take one reading of the cost of the value in force. Return whether another value is in force now."""
        self._sum += cost
        self._count += 1
        if self._count < self._readings:
            return False
        measured = self._sum / self._count
        self._sum, self._count = 0.0, 0
        before = self.value
        if self._looks:
            self._compare(measured)
        elif self._rest > 0:
            self._rest -= 1
            self._here = None
        else:
            self._here = measured
            self._look()
        return self.value != before

    def _compare(self, measured: float) -> None:
        assert self._here is not None
        self._looks = False
        if measured < self._here * (1 - MARGIN) - LEAST:
            self._at += self._step
            self._here = measured
            self._tried, self._next_rest = 0, 4
        else:
            self._tried += 1
            self._step = -self._step
        self._look()

    def _look(self) -> None:
        """Measure the next neighbour, or rest when both sides were no better."""
        while self._tried < 2:
            if 0 <= self._at + self._step < len(self._values):
                self._looks = True
                return
            self._tried += 1
            self._step = -self._step
        self._tried = 0
        self._rest = self._next_rest
        self._next_rest = min(2 * self._next_rest, LONGEST_REST)


class TakeTurns:
    """Climbers of several settings that share one cost: one at a time, the next when it has settled."""

    def __init__(self, *climbers: Climber) -> None:
        self._climbers = climbers
        self._turn = 0

    def observe(self, cost: float) -> bool:
        """Take one reading. Return whether a value has changed."""
        climber = self._climbers[self._turn]
        settled_before = climber.has_settled
        changed = climber.observe(cost)
        if climber.has_settled and not settled_before:
            self._turn = (self._turn + 1) % len(self._climbers)
        return changed


def spanner_tuner(start: int) -> Climber:
    """Return the climber of the top-k spanner's k."""
    return Climber(SPANNERS, start or EVERY_BOX)


def spanner_of(value: float) -> int:
    """Return k as the setting writes it: 0 for all boxes."""
    return 0 if value == EVERY_BOX else int(value)
