"""A calendar queue (Brown 1988): what is due when, at constant cost for each entry put in and taken out.

Time is cut into days of one width, the days of a year share ``days`` lists, and an entry goes on the list of its day
whatever its year. Reading moves from day to day and takes what is due by then. The width adapts: too many entries a day
and it halves, too few and it doubles, so that a day holds a handful.

Entries are (due_ns, item, stamp). Whoever changed their mind puts in a new entry with a higher stamp and ignores the
old one when it comes: nothing is searched for.
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
        """What is due already comes with the next reading."""
        due_ns = max(due_ns, self._now_ns)
        self._days[due_ns // self._width_ns % len(self._days)].append((due_ns, item, stamp))
        self._size += 1
        if self._size > 4 * len(self._days) and len(self._days) < MAX_DAYS:
            self._rebuild(2 * len(self._days))

    def pop_due(self, now_ns: int) -> list[Entry]:
        """Everything due by now, earliest first. Time goes forward only."""
        if now_ns < self._now_ns or not self._size:
            self._now_ns = max(now_ns, self._now_ns)
            return []
        due: list[Entry] = []
        days = self._days
        first, last = self._now_ns // self._width_ns, now_ns // self._width_ns
        for day in range(first, min(last, first + len(days) - 1) + 1):  # a year's worth visits every list
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
        """More or fewer days, and a width that puts about two entries into each day of the time that they span."""
        entries = [e for day in self._days for e in day]
        if len(entries) > 1:
            times = sorted(e[0] for e in entries)
            span_ns = times[len(times) * 3 // 4] - times[0]  # the far end is few and far between
            self._width_ns = max(1_000, 2 * span_ns // max(1, len(times) * 3 // 4))
        self._days = [[] for _ in range(days)]
        for entry in entries:
            self._days[entry[0] // self._width_ns % days].append(entry)
