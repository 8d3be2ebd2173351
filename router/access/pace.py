"""A pace: so much a second, with a burst. A bucket that fills with time; what is taken too early must be waited for."""

from __future__ import annotations

from threading import Lock
from time import monotonic


class Pace:
    """``a_second`` units on average, ``burst`` at once. Any thread."""

    def __init__(self, a_second: float, burst: float) -> None:
        self._a_second = a_second
        self._burst = burst
        self._level = burst
        self._at = monotonic()
        self._lock = Lock()

    def take(self, units: float, now: float | None = None) -> float:
        """Take units, also below zero, and return how many seconds to wait before more are taken."""
        now = monotonic() if now is None else now
        with self._lock:
            self._level = min(self._burst, self._level + (now - self._at) * self._a_second) - units
            self._at = now
            return max(0.0, -self._level / self._a_second)

    def may_take(self, now: float | None = None) -> bool:
        """Take one unit if there is one."""
        now = monotonic() if now is None else now
        with self._lock:
            self._level = min(self._burst, self._level + (now - self._at) * self._a_second)
            self._at = now
            if self._level < 1:
                return False
            self._level -= 1
            return True
