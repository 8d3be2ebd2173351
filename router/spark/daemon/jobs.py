"""Run a bulk job: inspect its source, stage it if it is not stable, push it, go on after a loss.

A source of the network file and ``aurorad ingest`` run the same code. For a source the daemon drives Spark, and the
port is in this process; for ``aurorad ingest`` a process of its own drives Spark, and the port is in the running
daemon. ``Target`` is the difference.

- Lost (the JVM died, the driver did not answer): the job is tried again with growing pauses, and goes on from the rows
  that the daemon has. Only attempts that brought no row are counted, so a job of ten hours survives many losses.
- Refused (a path that does not exist, a schema that does not fit, input that changed) or failed (a corrupt file, after
  all retries of its tasks): the job ends with the reason. Rows that have entered before stay in the network.
"""

from __future__ import annotations

import logging
import shutil
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from threading import Event
from typing import Any, NamedTuple, Protocol

from catalog.config.models import SparkSource
from catalog.network import Network, Stream
from catalog.schema import Schema
from router.spark.daemon.driver_process import PendingRequest
from router.spark.daemon.host import SparkHost
from router.spark.daemon.ledger import JobMemory
from router.spark.daemon.local_files import files_of, local_fingerprint, local_paths
from router.spark.daemon.pace import TRAIN_ROWS
from router.spark.wire.aurorad_wire import BATCH_ROWS
from router.spark.wire.errors import SparkError, SparkLostError
from router.spark.wire.pipe import fields_of

log = logging.getLogger("aurorad.spark")

ATTEMPTS = 5  # in a row without a new row
PAUSE_SECONDS = 0.5
LONGEST_PAUSE_SECONDS = 30.0
INSPECT_SECONDS = 600.0
STAGED_SECONDS = 5.0  # from one line about staging to the next


class Target(Protocol):
    """The daemon that gets the rows: this one, or one that is reached over its port."""

    @property
    def address(self) -> str: ...

    @property
    def token(self) -> str: ...

    @property
    def trust(self) -> str:
        """Whom a client of the address trusts: see ``wire/aurorad_wire.py``."""

    def has_read(self, files: str) -> bool:
        """Tell whether exactly these files (``local_fingerprint``) have been read before."""

    def mark(self) -> str:
        """Return how far earlier jobs of this name have read an increasing field; empty at first."""

    def note(self, memory: JobMemory) -> None:
        """Note what to remember of the job when it is done."""

    def begin(self, fingerprint: str, parts: int, rows: int) -> bool:
        """Begin the job. False when this very input has been read before. Raises SparkRefusedError."""

    def expect(self, parts: int, rows: int) -> None:
        """Correct how many partitions and rows will come."""

    def rows(self) -> int:
        """Return how many rows have come so far."""

    def quarantine(self, rows: int, file: str) -> None:
        """Count rows that do not fit and were written to this file of ``bad_rows``."""

    def end(self, error: str) -> None:
        """End the job; ``error`` is empty when all rows have come."""


class StagedRows(NamedTuple):
    """What Spark has staged: files in the order in which they are sent."""

    fingerprint: str
    files: Sequence[str]
    rows: int
    batch_rows: int


class BulkJob:
    """Owner: the thread that calls ``run``. Any thread may call ``stop``."""

    def __init__(
        self,
        host: SparkHost,
        name: str,
        source: Mapping[str, Any],
        schema: Schema,
        target: Target,
        *,
        staging: str | None = None,
        batch_limit: int = TRAIN_ROWS,
    ) -> None:
        self.name = name
        self._batch_limit = batch_limit
        self._host = host
        self._source = dict(source)
        self._fields = fields_of(schema)
        self._target = target
        self._staging = staging
        self._inspected: dict[str, Any] | None = None  # the driver's answer, once the target has begun the job
        self._files_print = ""  # of the source's files on this machine
        self._files: list[str] | None = None  # staged, in the order in which they are sent
        self._sent = 0  # how many of them
        self._bad_file = ""  # where rows go that do not fit
        self._batch_rows = 0
        self._stopped = Event()
        self._temporary: str | None = None  # a staging folder of this job's own
        self.was_done = False  # an earlier job has read this input

    def stop(self) -> None:
        self._stopped.set()
        if self._host.is_up:
            try:
                self._host.call("cancel", 5.0, job=self.name)
            except SparkError:
                pass  # a driver that is gone runs no job

    def run(self) -> int:
        """Run to the end. Return how many rows came. Raises SparkError; the target has the reason by then."""
        try:
            self._run()
        except SparkError as error:
            self._target.end(str(error))
            raise
        finally:
            self._clear()
        self._target.end("")
        return self._target.rows()

    def _run(self) -> None:
        fruitless, before = 0, -1
        while True:
            try:
                self._attempt()
                return
            except SparkLostError as error:
                rows = self._target.rows() if self._inspected is not None else 0
                fruitless = fruitless + 1 if rows == before else 1
                before = rows
                if fruitless >= ATTEMPTS or self._stopped.is_set():
                    raise
                log.warning("bulk job %s goes on at %d rows: %s", self.name, rows, error)
                pause_s = min(PAUSE_SECONDS * 2 ** (fruitless - 1), LONGEST_PAUSE_SECONDS)
                if self._stopped.wait(pause_s):
                    raise

    def _attempt(self) -> None:
        inspected = self._inspected
        if inspected is None:
            self._files_print = local_fingerprint(self._source, self._fields)
            if self._target.has_read(self._files_print):
                self.was_done = True  # known without Spark, which needs half a minute to start
                return
            if self._source.get("increasing"):
                self._source["after"] = self._target.mark()
            self._target.note(JobMemory(self._files_print))
            inspected = self._patiently(
                "looks at the input", "inspect", INSPECT_SECONDS, source=self._source, fields=self._fields
            )
            if not self._target.begin(inspected["fingerprint"], inspected["partitions"], inspected["rows"]):
                self.was_done = True
                return
            self._inspected = inspected
        if inspected["stable"]:
            done = self._push(
                first=0, source=self._source, parts=inspected["parts"], batch_rows=inspected["batch_rows"],
                fingerprint=inspected["fingerprint"],
            )  # fmt: skip
            self._target.expect(len(done["partitions"]), inspected["rows"])
            return
        if self._files is None:
            log.info("bulk job %s: Spark stages the rows as files first, in order", self.name)
            staged = self._stage(inspected["fingerprint"])
            if "mark" in staged:
                self._target.note(JobMemory(mark=staged["mark"], grows=True))
            if staged["bad"]:
                self._target.quarantine(staged["bad"], self._bad_file)
            self._files, self._batch_rows = list(staged["files"]), staged["batch_rows"]
            self._target.expect(len(self._files), staged["rows"])
        self._push_files(self._files)

    def _push_files(self, files: Sequence[str]) -> None:
        """Push the staged files that have not been sent, and remove them all."""
        while self._sent < len(files):
            self._push(first=self._sent, file=files[self._sent], batch_rows=self._batch_rows)
            self._sent += 1
        self._host.call("unstage", INSPECT_SECONDS, staging=self._staging_path())

    def _stage(self, fingerprint: str) -> dict[str, Any]:
        """Stage the rows of the source, and those that do not fit in a file of their own."""
        source, files = self._source, None
        if source.get("bad_rows"):
            files = [[str(path), root] for given in local_paths(source["path"]) or () for path, root in files_of(given)]
            self._bad_file = str(Path(source["bad_rows"], f"{self.name}-{fingerprint}.ndjson").absolute())
            source = {**source, "bad_rows": self._bad_file}
        return self.stage(fingerprint, source=source, files=files)

    def stage(self, fingerprint: str, **what: Any) -> dict[str, Any]:
        """Let Spark stage rows, and say from time to time how far it is. Raises SparkError."""
        source = what.pop("source", self._source)
        return self._patiently(
            "stages", "stage", None, source=source, fields=self._fields, staging=self._staging_path(),
            fingerprint=fingerprint, **what,
        )  # fmt: skip

    def _patiently(self, what: str, do: str, deadline_s: float | None, **arguments: Any) -> dict[str, Any]:
        """Send a request that may take long. Log every few seconds that it goes on, also when Spark is too busy to say
        how far it is."""
        asked = self._host.ask(do, job=self.name, **arguments)
        done, begun = Event(), time.monotonic()
        asked.when_done(done.set)
        counting: PendingRequest | None = None
        while not done.wait(STAGED_SECONDS):
            if deadline_s is not None and time.monotonic() - begun > deadline_s:
                break
            how_far = ""
            if counting is not None and counting.is_done:
                found, counting = counting.result(0.0), None
                how_far = f", {found['done']} of {found['tasks']} tasks of Spark are done"
            if do == "stage" and counting is None:
                counting = self._host.ask("staged", job=self.name)
            log.info("bulk job %s: Spark %s for %.0f s%s", self.name, what, time.monotonic() - begun, how_far)
        return asked.result(deadline_s)

    def _push(self, batch_rows: int, **what: Any) -> dict[str, Any]:
        if self._stopped.is_set():
            raise SparkLostError("the job was stopped")
        target = self._target
        return self._host.call(
            "push", job=self.name, fields=self._fields, address=target.address, token=target.token, trust=target.trust,
            batch_rows=whole_trains(batch_rows, self._batch_limit), **what,
        )  # fmt: skip

    def _staging_path(self) -> str:
        """Return the folder for staged files: it outlives the driver, and every executor can reach it."""
        if self._staging is None:
            self._staging = tempfile.mkdtemp(prefix="aurorad-staged-")
            self._temporary = self._staging
        return str(Path(self._staging) / self.name) if "://" not in self._staging else f"{self._staging}/{self.name}"

    def _clear(self) -> None:
        if self._temporary is not None:
            shutil.rmtree(self._temporary, ignore_errors=True)


class StagedJob(BulkJob):
    """A job whose rows are staged already: those of a round of a watched folder. Owner: the thread of the source."""

    def __init__(
        self, host: SparkHost, name: str, schema: Schema, target: Target, staged: StagedRows, *, staging: str,
        batch_limit: int = TRAIN_ROWS,
    ) -> None:  # fmt: skip
        super().__init__(host, name, {}, schema, target, staging=staging, batch_limit=batch_limit)
        self._staged = staged

    def _attempt(self) -> None:
        staged = self._staged
        if self._inspected is None:
            if not self._target.begin(staged.fingerprint, len(staged.files), staged.rows):
                self.was_done = True
                return
            self._inspected, self._batch_rows = {}, staged.batch_rows
        self._push_files(staged.files if staged.rows else ())


def order_for(network: Network, stream: Stream, asked: Sequence[str] | None, pace: str) -> list[str]:
    """Return the fields by which Spark sorts the rows of a job.

    If windows, joins or a pace go by the stream's event time, rows must come in that order. Partitions are read side by
    side, and the newest event time of one would make all rows of another late.
    """
    if asked is not None:
        return list(asked)
    timed = any(network.arcs[arc].timed for arc in stream.arcs)
    if stream.time_field is not None and (timed or pace != "as_fast"):
        return [stream.time_field]
    return []


def batch_limit(network: Network) -> int:
    """Return how many rows of a bulk job may come in one batch.

    Decoding 65,536 rows takes a core 1.5 ms, and a live tuple that needs that core waits. If every stream comes from
    Spark there are no live tuples, and long batches are a tenth faster.
    """
    is_live = any(not isinstance(stream.source, SparkSource) for stream in network.streams)
    return TRAIN_ROWS if is_live else BATCH_ROWS


def whole_trains(found: int, limit: int) -> int:
    """Return the rows of a batch: at most ``limit``, and a multiple of TRAIN_ROWS if it is more than one train.

    Then the same rows make the same trains, with the same numbers in the log, when a job goes on after a restart in a
    network that has got a live stream.
    """
    rows = min(found, limit)
    return rows - rows % TRAIN_ROWS or rows
