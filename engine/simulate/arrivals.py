"""When tuples arrive: seeded, by stream, as trains of tuples that were read together.

Every process has a mean rate and gives trains as (time, count) in the order of time. Above ``READS_PER_S`` trains a
second, tuples come several to a read, as they do from a socket. The same seed gives the same arrivals, and a stream's
arrivals do not depend on how many other streams there are.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from catalog.errors import AuroraError

READS_PER_S = 500.0
ON_NS = 200_000_000  # mean length of a burst of the bursty process ...
DUTY = 0.2  # ... and the share of time that is inside one
ZIPF_EXPONENT = 2.2
ZIPF_LONGEST = 1_000
LONGEST_READ = 1_000_000_000  # tuples in one row of a trace

Number = TypeVar("Number", int, float)

Times = npt.NDArray[np.int64]
Trains = tuple[Times, npt.NDArray[np.int64]]
"""When, and how many."""

Process = Callable[[np.random.Generator, float, int], Times]
"""(random numbers, events a second, duration) -> when the events are, ascending."""


class TraceError(AuroraError):
    """A trace that cannot be replayed, with the line at fault."""


def uniform(random: np.random.Generator, rate_per_s: float, duration_ns: int) -> Times:
    """Evenly spaced, from a random start."""
    count = int(rate_per_s * duration_ns / 1e9)
    gap_ns = 1e9 / rate_per_s
    places = np.arange(count) + random.random()
    return (places * gap_ns).astype(np.int64)


def poisson(random: np.random.Generator, rate_per_s: float, duration_ns: int) -> Times:
    return _from_gaps(lambda n: random.exponential(1e9 / rate_per_s, n), rate_per_s, duration_ns)


def bursty(random: np.random.Generator, rate_per_s: float, duration_ns: int) -> Times:
    """On and off: Poisson at rate/duty inside bursts of exponential length, nothing between them."""
    on_ns = random.exponential(ON_NS, int(duration_ns / ON_NS * DUTY * 2) + 16)
    off_ns = random.exponential(ON_NS * (1 - DUTY) / DUTY, on_ns.shape[0])
    inside = poisson(random, rate_per_s / DUTY, int(on_ns.sum()))
    # A moment inside the bursts is moved by the silences before it.
    before = np.searchsorted(np.cumsum(on_ns), inside, side="right")
    silence = np.concatenate([[0.0], np.cumsum(off_ns)])[before]
    moved: Times = inside + silence.astype(np.int64)
    return moved[moved < duration_ns]


def zipf(random: np.random.Generator, rate_per_s: float, duration_ns: int) -> Times:
    """Gaps of Zipf's distribution, cut at the end: most are short, a few are very long."""
    lengths = np.arange(1, ZIPF_LONGEST + 1)
    shares = lengths**-ZIPF_EXPONENT
    shares /= shares.sum()
    unit_ns = 1e9 / rate_per_s / float(np.dot(lengths, shares))
    return _from_gaps(lambda n: random.choice(lengths, n, p=shares) * unit_ns, rate_per_s, duration_ns)


def ramp(random: np.random.Generator, rate_per_s: float, duration_ns: int) -> Times:
    """Poisson, from nothing at the start to twice the rate at the end."""
    times = poisson(random, rate_per_s, duration_ns)
    # The k-th of n evenly spaced moments moves to where a linear rate has brought k tuples.
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
    """The trains of one stream."""
    if rate_per_s <= 0:
        return np.empty(0, np.int64), np.empty(0, np.int64)
    random = np.random.default_rng([seed, stream])
    together = max(1, round(rate_per_s / READS_PER_S))  # tuples to a read
    times = PROCESSES[process](random, rate_per_s / together, duration_ns)
    return times, np.full(times.shape[0], together, np.int64)


def read_trace(path: Path, streams: Mapping[str, int]) -> dict[int, Trains]:
    """A recorded trace: CSV with the columns seconds, stream and, if a row is more than a tuple, tuples."""
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
        raise TraceError(f"{path}: nothing arrives in this trace: it has no row")
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
        raise TraceError(f"{place}: {column} must be {what}, and {text[:40]!r} is none") from None
