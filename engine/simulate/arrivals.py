"""Arrivals: when the tuples of each stream arrive, from a seed, as trains of tuples that are read together.

Every process has a mean rate and returns trains as (time, count) in the order of time. Above ``READS_PER_S`` trains a
second a read holds several tuples, as it does from a socket. The same seed gives the same arrivals, and the arrivals of
a stream do not depend on the other streams.
"""

from __future__ import annotations

import csv
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from catalog.errors import AuroraError

READS_PER_S = 500.0
ON_NS = 200_000_000  # mean length of a burst of the bursty process ...
DUTY = 0.2  # ... and the share of time inside bursts
ZIPF_EXPONENT = 2.2
ZIPF_LONGEST = 1_000
LONGEST_READ = 1_000_000_000  # tuples in one row of a trace

Number = TypeVar("Number", int, float)

Times = npt.NDArray[np.int64]
Trains = tuple[Times, npt.NDArray[np.int64]]
"""The times of trains, and how many tuples each holds."""

Process = Callable[[np.random.Generator, float, int], Times]
"""(random numbers, events a second, duration) -> the times of the events, ascending."""


class TraceError(AuroraError):
    """A trace that cannot be replayed, with the line at fault."""


def uniform(random: np.random.Generator, rate_per_s: float, duration_ns: int) -> Times:
    """Return evenly spaced times from a random start."""
    count = int(rate_per_s * duration_ns / 1e9)
    gap_ns = 1e9 / rate_per_s
    places = np.arange(count) + random.random()
    return (places * gap_ns).astype(np.int64)


def poisson(random: np.random.Generator, rate_per_s: float, duration_ns: int) -> Times:
    """Return the times of a Poisson process."""
    return _from_gaps(lambda n: random.exponential(1e9 / rate_per_s, n), rate_per_s, duration_ns)


def bursty(random: np.random.Generator, rate_per_s: float, duration_ns: int) -> Times:
    """Return bursts: Poisson at rate/duty inside bursts of exponential length, and nothing between them."""
    on_ns = random.exponential(ON_NS, int(duration_ns / ON_NS * DUTY * 2) + 16)
    off_ns = random.exponential(ON_NS * (1 - DUTY) / DUTY, on_ns.shape[0])
    inside = poisson(random, rate_per_s / DUTY, int(on_ns.sum()))
    # A time inside the bursts is shifted by the silences before it.
    before = np.searchsorted(np.cumsum(on_ns), inside, side="right")
    silence = np.concatenate([[0.0], np.cumsum(off_ns)])[before]
    moved: Times = inside + silence.astype(np.int64)
    return moved[moved < duration_ns]


def zipf(random: np.random.Generator, rate_per_s: float, duration_ns: int) -> Times:
    """Return times with gaps of a truncated Zipf distribution: most are short, a few are very long."""
    lengths = np.arange(1, ZIPF_LONGEST + 1)
    shares = lengths**-ZIPF_EXPONENT
    shares /= shares.sum()
    unit_ns = 1e9 / rate_per_s / float(np.dot(lengths, shares))
    return _from_gaps(lambda n: random.choice(lengths, n, p=shares) * unit_ns, rate_per_s, duration_ns)


def ramp(random: np.random.Generator, rate_per_s: float, duration_ns: int) -> Times:
    """Return a Poisson process whose rate grows from nothing at the start to twice the rate at the end."""
    times = poisson(random, rate_per_s, duration_ns)
    # The k-th of n evenly spaced times moves to the time by which a linear rate has brought k tuples.
    places = np.sqrt(times / duration_ns)
    return (places * duration_ns).astype(np.int64)


PROCESSES: Mapping[str, Process] = {
    "uniform": uniform,
    "poisson": poisson,
    "bursty": bursty,
    "zipf": zipf,
    "ramp": ramp,
}


def _from_gaps(draw: Callable[[int], npt.NDArray[np.float64]], rate_per_s: float, duration_ns: int) -> Times:
    """Draw gaps until the duration is full."""
    expected = rate_per_s * duration_ns / 1e9
    gaps = draw(int(expected + 5 * np.sqrt(expected) + 16))
    while float(gaps.sum()) < duration_ns:
        gaps = np.concatenate([gaps, draw(max(16, gaps.shape[0] // 4))])
    times = np.cumsum(gaps)
    return times[times < duration_ns].astype(np.int64)


def arrivals(process: str, seed: int, stream: int, rate_per_s: float, duration_ns: int) -> Trains:
    """Return the trains of one stream."""
    if rate_per_s <= 0:
        return np.empty(0, np.int64), np.empty(0, np.int64)
    random = np.random.default_rng([seed, stream])
    together = max(1, round(rate_per_s / READS_PER_S))  # tuples to a read
    times = PROCESSES[process](random, rate_per_s / together, duration_ns)
    return times, np.full(times.shape[0], together, np.int64)


class Reads:
    """The trains of all streams in the order of time: what the I/O thread reads, one after the other."""

    def __init__(self, trains: Mapping[int, Trains]) -> None:
        self._times, self._streams, self._counts = merge(trains)
        self.taken = 0

    @property
    def is_over(self) -> bool:
        return self.taken >= len(self._times)

    @property
    def due_ns(self) -> int:
        """When the next read is due; there must be one."""
        return self._times[self.taken]

    def take(self) -> tuple[int, int]:
        """Return the stream and the tuples of the next read, and go on to the one behind it."""
        at = self.taken
        self.taken = at + 1
        return self._streams[at], self._counts[at]

    def between(self, first_ns: int, last_ns: int) -> dict[int, Trains]:
        """Return the trains of this span of time, by stream."""
        times, streams, counts = self._times, self._streams, self._counts
        last = bisect_right(times, last_ns)
        first = bisect_left(times, first_ns, 0, last)
        by_stream = np.array(streams[first:last], np.int64)
        moments, tuples = np.array(times[first:last], np.int64), np.array(counts[first:last], np.int64)
        return {int(s): (moments[by_stream == s], tuples[by_stream == s]) for s in np.unique(by_stream)}


def merge(trains: Mapping[int, Trains]) -> tuple[list[int], list[int], list[int]]:
    """Return times, streams and tuples of all trains in the order of time; at one moment by the stream's number."""
    if not trains:
        return [], [], []
    times = np.concatenate([t for t, _ in trains.values()])
    counts = np.concatenate([c for _, c in trains.values()])
    streams = np.concatenate([np.full(len(t), s, np.int64) for s, (t, _) in trains.items()])
    order = np.lexsort((streams, times))
    return times[order].tolist(), streams[order].tolist(), counts[order].tolist()


def read_trace(path: Path, streams: Mapping[str, int]) -> dict[int, Trains]:
    """Read a recorded trace: CSV with the columns seconds, stream and, where a row is several tuples, tuples."""
    times: dict[int, list[tuple[int, int]]] = {}
    try:
        with path.open(newline="", encoding="utf-8") as file:
            rows = csv.DictReader(file)
            if not {"seconds", "stream"} <= set(rows.fieldnames or ()):
                raise TraceError(f"{path}:1: a trace needs the columns seconds and stream, and may have tuples")
            for row in rows:
                stream, time_ns, tuples = _trace_row(row, streams, f"{path}:{rows.line_num}")
                times.setdefault(stream, []).append((time_ns, tuples))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise TraceError(f"{path}: {error}") from error
    if not times:
        raise TraceError(f"{path}: the trace has no rows, so nothing arrives")
    out: dict[int, Trains] = {}
    for stream, rows_of in times.items():
        table = np.array(sorted(rows_of), np.int64)
        out[stream] = (table[:, 0], table[:, 1])
    return out


def _trace_row(row: Mapping[str, str | None], streams: Mapping[str, int], place: str) -> tuple[int, int, int]:
    name = row.get("stream") or ""
    if name not in streams:
        raise TraceError(f"{place}: no stream is called {name!r}; there are {', '.join(streams)}")
    seconds = _number(float, row, "seconds", "", place)
    tuples = _number(int, row, "tuples", "1", place)
    if not 0 <= seconds < 1e9 or not 1 <= tuples <= LONGEST_READ:
        raise TraceError(f"{place}: seconds must be 0 or more and below 1e9, tuples 1 to {LONGEST_READ:,}")
    return streams[name], round(seconds * 1e9), tuples


def _number(kind: type[Number], row: Mapping[str, str | None], column: str, default: str, place: str) -> Number:
    text = row.get(column) or default
    try:
        return kind(text)
    except ValueError:
        what = {"seconds": "a number", "tuples": "a whole number"}[column]
        raise TraceError(f"{place}: {column} must be {what}, and {text[:40]!r} is not") from None
