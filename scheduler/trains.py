"""How many tuples go into one box call (algorithms.md, section 3)."""

from __future__ import annotations

from dataclasses import dataclass

AUTO_TUPLES = 262_144
"""The longest train while nothing tunes it: past it a box call gains nothing more from its length (the kernels leave
the cache) and the tuples behind it wait longer."""


@dataclass(frozen=True, slots=True)
class TrainRule:
    """One of: every tuple there is, a count, a fraction of the queue."""

    kind: str = "auto"  # auto | all | tuples | fraction
    value: float = 0.0

    def tuples(self, waiting: int) -> int:
        """How many of the tuples that wait to take."""
        if self.kind == "all":
            return waiting
        if self.kind == "tuples":
            return min(waiting, int(self.value))
        if self.kind == "fraction":
            return min(waiting, max(1, round(waiting * self.value)))
        return min(waiting, AUTO_TUPLES)
