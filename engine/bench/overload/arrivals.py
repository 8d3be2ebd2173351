"""How much is due when: multiples of the knee over time. Pure; the senders and the judges share it."""

from __future__ import annotations

from typing import NamedTuple

SHAPES = ("uniform", "bursty", "ramp", "step")
STEP_LOW = 0.5


class Shape(NamedTuple):
    """``load`` is the mean of uniform, bursty and ramp, and the height of a step."""

    name: str
    load: float
    seconds: float

    def factor(self, at_s: float) -> float:
        """Of the knee, at this moment."""
        share = at_s / self.seconds
        if self.name == "bursty":  # half a second of much, half a second of little
            return self.load * (1.6 if at_s % 1.0 < 0.5 else 0.4)
        if self.name == "ramp":
            return self.load * 2.0 * share
        if self.name == "step":  # a quarter of low, then high, then low for as long as both
            return self.load if 0.25 <= share < 0.5 else STEP_LOW
        return self.load
