"""A calendar queue (Brown 1988): a priority queue by time, at constant cost for each entry put in and taken out.

Time is divided into days of one width. A year has ``days`` days with one list each, and an entry goes on the list of
its day whatever its year. Reading goes from day to day and takes the entries that are due. The width adapts so that a
day holds a handful of entries: with too many entries a day it halves, with too few it doubles.

Entries are (due_ns, item, stamp). To move an entry, put in a new one with a higher stamp and ignore the old one when it
comes up: no entry is ever searched for.
"""

from __future__ import annotations

MIN_DAYS = 16
MAX_DAYS = 65_536

Entry = tuple[int, int, int]


class CalendarQueue:
    def __init__(self, width_ns: int = 1_000_000, start_ns: int = 0) -> None:
        self._width_ns = width_ns
        self._days: list[list[Entry]] = [[] for _ in range(MIN_DAYS)]
        self._now_ns = start_ns
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def put(self, due_ns: int, item: int, stamp: int) -> None:
        """Add an entry. One that is due already comes up with the next reading."""
        due_ns = max(due_ns, self._now_ns)
        self._days[due_ns // self._width_ns % len(self._days)].append((due_ns, item, stamp))
        self._size += 1
        if self._size > 4 * len(self._days) and len(self._days) < MAX_DAYS:
            self._rebuild(2 * len(self._days))

    def pop_due(self, now_ns: int) -> list[Entry]:
        """Take out all entries that are due, earliest first. Time goes forward only."""
        if now_ns < self._now_ns or not self._size:
            self._now_ns = max(now_ns, self._now_ns)
            return []
        due: list[Entry] = []
        days = self._days
        first, last = self._now_ns // self._width_ns, now_ns // self._width_ns
        for day in range(first, min(last, first + len(days) - 1) + 1):  # one year visits every list
            entries = days[day % len(days)]
            if entries:
                later = [e for e in entries if e[0] > now_ns]
                if len(later) < len(entries):
                    due += [e for e in entries if e[0] <= now_ns]
                    days[day % len(days)] = later
        self._now_ns = now_ns
        self._size -= len(due)
        if self._size < len(days) // 8 and len(days) > MIN_DAYS:
            self._rebuild(len(days) // 2)
        due.sort()
        return due

    def _rebuild(self, days: int) -> None:
        """Change the number of days, and the width so that a day of the span in use holds about two entries."""
        entries = [e for day in self._days for e in day]
        if len(entries) > 1:
            times = sorted(e[0] for e in entries)
            span_ns = times[len(times) * 3 // 4] - times[0]  # without the far end, where entries are sparse
            self._width_ns = max(1_000, 2 * span_ns // max(1, len(times) * 3 // 4))
        self._days = [[] for _ in range(days)]
        for entry in entries:
            self._days[entry[0] // self._width_ns % days].append(entry)
