"""How far each bulk job is: which rows of which partition the daemon has.

An attempt at a partition breaks off when its task fails, its executor is lost or the JVM dies. The next attempt asks
how many rows the daemon has, skips them and sends the rest. Three rules make that exactly once:

- The rows of a partition come in the same order in every attempt (``driver/sources.py``).
- A train enters and is counted in one step, under the partition's lock. An attempt that a newer one has replaced enters
  nothing.
- ``rows`` counts rows as the source has them, so that the next attempt can skip them. But a batch may contain rows that
  are refused (NULL in a field that is not nullable), and an attempt may break off inside a batch. So ``rows`` counts
  whole batches, and ``ahead`` counts the accepted rows of the batch behind them. When that batch comes again, its first
  ``ahead`` accepted rows are left out.
"""

from __future__ import annotations

import time
from threading import Event, Lock

from catalog.network import Stream
from catalog.readings import BulkReading
from router.spark.daemon.entrance import BulkEntrance
from router.spark.daemon.pace import JobStoppedError, Pacer
from router.spark.wire.errors import SparkRefusedError
from storage.train import Train

MAX_JOBS = 1_000
RATE_NS = 5 * 10**9


class JobPartition:
    """How far one partition of a job is. Guarded by its lock."""

    def __init__(self) -> None:
        self.lock = Lock()
        self.attempt = 0  # the newest; older ones are fenced off
        self.rows = 0
        self.ahead = 0
        self.sequence = 0  # of its last train
        self.is_done = False
        self.stopped = Event()  # tells the newest attempt to stop


class JobProgress:
    """How far one job is with the rows that it brings to one stream. Any thread."""

    def __init__(
        self,
        job: str,
        stream: Stream,
        pacer: Pacer,
        entrance: BulkEntrance,
        *,
        fingerprint: str,
        parts: int,
        rows: int,
        epoch: int = 0,
    ) -> None:
        self.job = job
        self.stream = stream
        self.pacer = pacer
        self.epoch = epoch
        self.fingerprint = fingerprint
        self.expected_parts = parts
        self.expected_rows = rows
        self.state = "reading"
        self.error = ""
        self.attempts = 1
        self.stopped = False
        self.begun_ns = time.monotonic_ns()
        self.ended_ns = 0
        self._entrance = entrance
        self._parts: dict[int, JobPartition] = {}
        self._lock = Lock()
        self._marks: list[tuple[int, int]] = []  # (time, rows) of the last seconds, for the rate

    def part(self, number: int) -> JobPartition:
        with self._lock:
            return self._parts.setdefault(number, JobPartition())

    def take_over(self, part: JobPartition) -> tuple[int, Event]:
        """Begin a new attempt and fence off the one before it. Return its number and the event that stops it."""
        with part.lock:
            part.stopped.set()
            part.attempt += 1
            part.stopped = Event()
            if self.stopped:
                part.stopped.set()
            return part.attempt, part.stopped

    def enter(self, number: int, attempt: int, train: Train) -> None:
        """Let a train in. Raises JobStoppedError when a newer attempt has taken over."""
        part, stream = self.part(number), self.stream.number
        with part.lock:
            if part.attempt != attempt or part.stopped.is_set():
                raise JobStoppedError
            if not self._entrance.enter(stream, train, self._source(number), self.epoch, part.sequence + 1):
                part.rows = part.ahead = part.sequence = 0
                raise SparkRefusedError("the disk had no room for rows of this job; they come again from the start")
            part.sequence += 1
            part.ahead += train.count

    def is_on_disk(self, number: int, part: JobPartition) -> bool:
        return self._entrance.is_on_disk(self.stream.number, self._source(number), self.epoch, part.sequence)

    def _source(self, part: int) -> str:
        """Return the name under which the log knows the trains of a partition."""
        return f"spark/{self.job}/{part}"

    def close_batch(self, part: JobPartition, attempt: int, rows: int, good: int) -> None:
        """Count a batch of ``rows`` as complete. ``good`` of them were accepted and have entered."""
        with part.lock:
            if part.attempt != attempt:
                raise JobStoppedError
            part.rows += rows
            part.ahead -= good

    def finish_part(self, part: JobPartition, attempt: int, rows: int) -> None:
        """Count a partition as complete. ``rows`` is the executor's count; it must be the daemon's too."""
        with part.lock:
            if part.attempt != attempt:
                raise JobStoppedError
            if part.rows != rows:
                raise SparkRefusedError(f"{part.rows} rows came of the {rows} that were sent")
            part.is_done = True

    def stop(self) -> None:
        """Let no more rows in."""
        with self._lock:
            self.stopped = True
            parts = list(self._parts.values())
        for part in parts:
            part.stopped.set()

    def end(self, error: str = "") -> None:
        """Record that the job is done, or why it failed."""
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
        """Return the rate over the last seconds; over the whole job once it has ended."""
        now_ns = self.ended_ns or time.monotonic_ns()
        if self.ended_ns:
            return rows / max(1e-9, (now_ns - self.begun_ns) / 1e9)
        with self._lock:
            self._marks.append((now_ns, rows))
            while len(self._marks) > 2 and now_ns - self._marks[0][0] > RATE_NS:
                self._marks.pop(0)
            (begun_ns, before), (end_ns, after) = self._marks[0], self._marks[-1]
        return (after - before) / max(1e-9, (end_ns - begun_ns) / 1e9)


class JobTable:
    """All bulk jobs by name. Beyond MAX_JOBS the oldest one that has ended is forgotten."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._jobs: dict[str, JobProgress] = {}
        self._forgotten: dict[str, int] = {}  # rows, by stream

    def get(self, job: str) -> JobProgress:
        progress = self._jobs.get(job)
        if progress is None:
            raise SparkRefusedError(f"there is no job {job}")
        return progress

    def begin(self, progress: JobProgress) -> JobProgress:
        """Add a job, or return the one of this name, which goes on. Raises SparkRefusedError."""
        with self._lock:
            known = self._jobs.get(progress.job)
            if known is None:
                self._forget_one()
                self._jobs[progress.job] = progress
                return progress
        if known.stream is not progress.stream or known.fingerprint != progress.fingerprint:
            raise SparkRefusedError(f"job {progress.job} had another input: its input has changed since")
        if known.state == "done":
            raise SparkRefusedError(f"job {progress.job} is done")
        known.stopped = False
        known.attempts += 1
        known.state = "reading"
        return known

    def forget(self, job: str) -> None:
        """Forget a job that is done, if there is one of this name. Its rows stay counted."""
        with self._lock:
            if job in self._jobs and self._jobs[job].state == "done":
                self._pop(job)

    def _forget_one(self) -> None:
        if len(self._jobs) < MAX_JOBS:
            return
        ended = next((job for job, progress in self._jobs.items() if progress.state != "reading"), None)
        if ended is None:
            raise SparkRefusedError(f"{MAX_JOBS} bulk jobs are running already")
        self._pop(ended)

    def _pop(self, job: str) -> None:
        progress = self._jobs.pop(job)
        self._forgotten[progress.stream.name] = self._forgotten.get(progress.stream.name, 0) + progress.rows

    def stop(self) -> None:
        """Let no more rows of any job in."""
        for progress in list(self._jobs.values()):
            progress.stop()

    def readings(self) -> list[BulkReading]:
        """Return one reading for each stream that has had a job: its newest job, and the rows of all its jobs."""
        newest: dict[str, BulkReading] = {}
        totals = dict(self._forgotten)
        for progress in list(self._jobs.values()):
            reading = newest[progress.stream.name] = progress.reading()
            totals[reading.stream] = totals.get(reading.stream, 0) + reading.rows
        return [reading._replace(rows_total=totals[name]) for name, reading in newest.items()]
