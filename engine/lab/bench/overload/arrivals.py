"""Shapes of arrivals: multiples of the knee over time. Pure functions, shared by the senders and the evaluation."""

from __future__ import annotations

from typing import NamedTuple

SHAPES = ("uniform", "bursty", "ramp", "step")
STEP_LOW = 0.5
STEP_UP, STEP_DOWN = 0.25, 0.5  # of the time
BURST_S, BURST_EVERY_S, BURST_RATIO = 0.5, 5.0, 10.0  # of ``bursts``


class ArrivalShape(NamedTuple):
    """``load`` is the mean of uniform, bursty, bursts and ramp, and the height of a step."""

    name: str
    load: float
    seconds: float

    def factor(self, at_s: float) -> float:
        """Return the multiple of the knee at a time."""
        share = at_s / self.seconds
        if self.name == "bursty":  # half a second high, half a second low
            return self.load * (1.6 if at_s % 1.0 < 0.5 else 0.4)
        if self.name == "bursts":  # half a second in five at ten times the rate between
            low = BURST_EVERY_S / (BURST_EVERY_S + BURST_S * (BURST_RATIO - 1))
            return self.load * low * (BURST_RATIO if at_s % BURST_EVERY_S >= BURST_EVERY_S - BURST_S else 1.0)
        if self.name == "ramp":
            return self.load * 2.0 * share
        if self.name == "step":  # low for a quarter, high for a quarter, low for half of the time
            return self.load if STEP_UP <= share < STEP_DOWN else STEP_LOW
        return self.load
