"""Bulk jobs as the daemon's port knows them: which rows of which part are here.

A part is cut off when its task fails, its executor is lost or the JVM dies. The next attempt asks how many rows are
here, skips them and goes on. Exactly once hangs on three things:

- a part's rows come in the same order each time (``sources.py`` sees to that);
- rows are counted in the same step as they enter, and an attempt that a newer one has replaced enters nothing more;
- rows are counted as the source has them. A batch may have rows that are refused (NULL where there must be none), and
  the attempt may end in the middle of it; so ``rows`` counts whole batches, and ``ahead`` the good rows beyond them
  that have entered already and are left out when they come again.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from threading import Event, Lock
from typing import NamedTuple, Protocol

from catalog.network import Stream
from catalog.readings import BulkReading
from router.spark.errors import SparkRefusedError
from router.spark.pace import Pacer, StoppedError
from storage.train import Train

MAX_LOADS = 1_000
RATE_NS = 5 * 10**9


class Numbered(Protocol):
    """An engine with a log: it takes trains with a number, and knows after a restart which it has."""

    def submit(self, stream: int, train: Train, source: str, epoch: int, sequence: int) -> bool | None:
        """True: taken. False: it has that one already. None: it lacks one before it, which it had to let go."""

    def committed(self, stream: int, source: str, epoch: int) -> int:
        """The last sequence that is on disk."""


class Doors(NamedTuple):
    """Into the network."""

    admit: Callable[[int, Train], None]
    tally: Callable[[int, int, int], None]  # a stream's number, tuples received, duplicates among them


class Part:
    """One partition of a job. Guarded by its lock."""

    def __init__(self) -> None:
        self.lock = Lock()
        self.attempt = 0  # the newest that has asked; older ones are fenced off
        self.rows = 0
        self.ahead = 0
        self.sequence = 0  # of its last train, where trains are numbered
        self.is_done = False
        self.stopped = Event()  # of the newest attempt


class Load:
    """One job's rows into one stream. Any thread."""

    def __init__(
        self,
        job: str,
        stream: Stream,
        pacer: Pacer,
        *,
        fingerprint: str,
        parts: int,
        rows: int,
        numbered: Numbered | None = None,
        epoch: int = 0,
    ) -> None:
        self.numbered = numbered
        self.epoch = epoch
        self.job = job
        self.stream = stream
        self.pacer = pacer
        self.fingerprint = fingerprint
        self.expected_parts = parts
        self.expected_rows = rows
        self.state = "reading"
        self.error = ""
        self.attempts = 1
        self.stopped = False
        self.begun_ns = time.monotonic_ns()
        self.ended_ns = 0
        self._parts: dict[int, Part] = {}
        self._lock = Lock()
        self._marks: list[tuple[int, int]] = []  # (time, rows) of the last seconds, for the rate

    def part(self, number: int) -> Part:
        with self._lock:
            return self._parts.setdefault(number, Part())

    def take_over(self, part: Part) -> tuple[int, Event]:
        """A new attempt: its number, and what tells it to stop. The one before it enters nothing from here on."""
        with part.lock:
            part.stopped.set()
            part.attempt += 1
            part.stopped = Event()
            if self.stopped:
                part.stopped.set()
            return part.attempt, part.stopped

    def enter(self, number: int, attempt: int, train: Train, doors: Doors) -> None:
        """A train enters, unless a newer attempt has taken over. Raises StoppedError."""
        part, stream = self.part(number), self.stream.number
        with part.lock:
            if part.attempt != attempt or part.stopped.is_set():
                raise StoppedError
            if self.numbered is None:
                doors.tally(stream, train.count, 0)
                doors.admit(stream, train)
            else:
                taken = self.numbered.submit(stream, train, self._name(number), self.epoch, part.sequence + 1)
                if taken is None:
                    part.rows = part.ahead = part.sequence = 0
                    raise SparkRefusedError("the log let go of rows that the disk had no room for; they come again")
                doors.tally(stream, train.count, 0 if taken else train.count)
            part.sequence += 1
            part.ahead += train.count

    def is_on_disk(self, number: int, part: Part) -> bool:
        if self.numbered is None:
            return True
        return self.numbered.committed(self.stream.number, self._name(number), self.epoch) >= part.sequence

    def _name(self, part: int) -> str:
        return f"spark/{self.job}/{part}"

    def close_batch(self, part: Part, attempt: int, rows: int, good: int) -> None:
        """A whole batch of ``rows``, ``good`` of them admitted, has been dealt with."""
        with part.lock:
            if part.attempt != attempt:
                raise StoppedError
            part.rows += rows
            part.ahead -= good

    def finish_part(self, part: Part, attempt: int, rows: int) -> None:
        """Everything of a part is here; the executor says how many rows that is."""
        with part.lock:
            if part.attempt != attempt:
                raise StoppedError
            if part.rows != rows:
                raise SparkRefusedError(f"{part.rows} rows came of the {rows} that were sent")
            part.is_done = True

    def stop(self) -> None:
        """No row enters any more."""
        with self._lock:
            self.stopped = True
            parts = list(self._parts.values())
        for part in parts:
            part.stopped.set()

    def end(self, error: str = "") -> None:
        self.stop()
        self.state, self.error = ("failed", error) if error else ("done", "")
        self.ended_ns = time.monotonic_ns()

    @property
    def rows(self) -> int:
        with self._lock:
            return sum(part.rows + part.ahead for part in self._parts.values())

    @property
    def parts_done(self) -> int:
        with self._lock:
            return sum(part.is_done for part in self._parts.values())

    def reading(self) -> BulkReading:
        rows = self.rows
        return BulkReading(
            stream=self.stream.name,
            job=self.job,
            state=self.state,
            rows=rows,
            rows_expected=self.expected_rows,
            partitions=self.expected_parts,
            partitions_done=self.parts_done,
            rate_per_s=self._rate(rows),
            attempts=self.attempts,
            yielded_ns=self.pacer.yielded_ns,
            error=self.error,
        )

    def _rate(self, rows: int) -> float:
        """Over the last seconds; of the whole job once it has ended."""
        now_ns = self.ended_ns or time.monotonic_ns()
        if self.ended_ns:
            return rows / max(1e-9, (now_ns - self.begun_ns) / 1e9)
        with self._lock:
            self._marks.append((now_ns, rows))
            while len(self._marks) > 2 and now_ns - self._marks[0][0] > RATE_NS:
                self._marks.pop(0)
            (begun_ns, before), (end_ns, after) = self._marks[0], self._marks[-1]
        return (after - before) / max(1e-9, (end_ns - begun_ns) / 1e9)


class Loads:
    """All jobs, by their name. The oldest that have ended are forgotten."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._loads: dict[str, Load] = {}
        self._forgotten: dict[str, int] = {}  # rows, by stream

    def get(self, job: str) -> Load:
        load = self._loads.get(job)
        if load is None:
            raise SparkRefusedError(f"there is no job {job}")
        return load

    def begin(self, load: Load) -> Load:
        """The job under this name: a new one, or the one that was there, which goes on. Raises SparkRefusedError."""
        with self._lock:
            known = self._loads.get(load.job)
            if known is None:
                self._forget_one()
                self._loads[load.job] = load
                return load
        if known.stream is not load.stream or known.fingerprint != load.fingerprint:
            raise SparkRefusedError(f"job {load.job} was another one: its input has changed since")
        if known.state == "done":
            raise SparkRefusedError(f"job {load.job} is done")
        known.stopped = False
        known.attempts += 1
        known.state = "reading"
        return known

    def _forget_one(self) -> None:
        if len(self._loads) < MAX_LOADS:
            return
        ended = next((job for job, load in self._loads.items() if load.state != "reading"), None)
        if ended is None:
            raise SparkRefusedError(f"{MAX_LOADS} bulk jobs are running already")
        load = self._loads.pop(ended)
        self._forgotten[load.stream.name] = self._forgotten.get(load.stream.name, 0) + load.rows

    def stop(self) -> None:
        for load in list(self._loads.values()):
            load.stop()

    def readings(self) -> list[BulkReading]:
        """One for each stream that ever had a job: its newest, and the rows of all."""
        newest: dict[str, BulkReading] = {}
        totals = dict(self._forgotten)
        for load in list(self._loads.values()):
            reading = newest[load.stream.name] = load.reading()
            totals[reading.stream] = totals.get(reading.stream, 0) + reading.rows
        return [reading._replace(rows_total=totals[name]) for name, reading in newest.items()]
