"""A bulk job from its plan to its end: look, check, stage what would not hold still, push, go on after a loss.

The same for a source of the network file (the daemon drives Spark and the port is in this process) and for ``aurorad
ingest`` (a process of its own drives Spark and the port is the running daemon's): ``Target`` is the difference.

- Lost (the JVM died, the driver went silent): tried again from the cursor, with growing pauses. Attempts that got
  nowhere are counted, those that brought rows are not: a job of ten hours survives more than one bad night.
- Refused (no such path, a schema that does not fit, input that changed) and failed (a corrupt file, each task as
  often as it may): the end, with the reason. What was good until then has entered and stays counted.
"""

from __future__ import annotations

import logging
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from threading import Event
from typing import Any, Protocol

from catalog.config.models import SparkSource
from catalog.network import Network, Stream
from catalog.schema import Schema
from router.spark.aurorad_wire import BATCH_ROWS
from router.spark.errors import SparkError, SparkLostError, SparkRefusedError
from router.spark.host import SparkHost
from router.spark.pace import TRAIN_ROWS

log = logging.getLogger("aurorad.spark")

ATTEMPTS = 5  # without a single row in between
PAUSE_SECONDS = 0.5
LONGEST_PAUSE_SECONDS = 30.0
PLAN_SECONDS = 600.0


class Target(Protocol):
    """Where the rows go: this daemon, or one that is reached over its port."""

    @property
    def address(self) -> str: ...

    @property
    def token(self) -> str: ...

    def begin(self, fingerprint: str, parts: int, rows: int) -> bool:
        """False when this very input has come before. Raises SparkRefusedError."""

    def expect(self, parts: int, rows: int) -> None:
        """As is known better now."""

    def rows(self) -> int:
        """That have come so far."""

    def end(self, error: str) -> None: ...


class BulkJob:
    """Owner: the thread that calls ``run``. ``stop`` may come from any."""

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
        self._plan: dict[str, Any] | None = None
        self._files: list[str] | None = None  # staged, in the order in which they are sent
        self._sent = 0  # of those
        self._batch_rows = 0
        self._stopped = Event()
        self.was_done = False  # before: there was nothing to do

    def stop(self) -> None:
        self._stopped.set()
        if self._host.is_up:
            try:
                self._host.call("cancel", 5.0, job=self.name)
            except SparkError:
                pass  # what is gone needs no cancelling

    def run(self) -> int:
        """To the end; how many rows. Raises SparkError after having told the target."""
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
                rows = self._target.rows() if self._plan is not None else 0
                fruitless = fruitless + 1 if rows == before else 1
                before = rows
                if fruitless >= ATTEMPTS or self._stopped.is_set():
                    raise
                log.warning("bulk job %s goes on at %d rows: %s", self.name, rows, error)
                pause_s = min(PAUSE_SECONDS * 2 ** (fruitless - 1), LONGEST_PAUSE_SECONDS)
                if self._stopped.wait(pause_s):
                    raise

    def _attempt(self) -> None:
        plan = self._plan
        if plan is None:
            plan = self._host.call("plan", PLAN_SECONDS, job=self.name, source=self._source, fields=self._fields)
            if not self._target.begin(plan["fingerprint"], plan["partitions"], plan["rows"]):
                self.was_done = True
                return
            self._plan = plan
        if plan["stable"]:
            done = self._push(
                first=0, source=self._source, parts=plan["parts"], batch_rows=plan["batch_rows"],
                fingerprint=plan["fingerprint"],
            )  # fmt: skip
            self._target.expect(len(done["partitions"]), plan["rows"])
            return
        if self._files is None:
            log.info("bulk job %s: staged as files first, in order, and sent from there", self.name)
            staged = self._host.call(
                "stage", job=self.name, source=self._source, fields=self._fields, staging=self._staging_path(),
                fingerprint=plan["fingerprint"],
            )  # fmt: skip
            self._files, self._batch_rows = list(staged["files"]), staged["batch_rows"]
            self._target.expect(len(self._files), staged["rows"])
        while self._sent < len(self._files):
            self._push(first=self._sent, file=self._files[self._sent], batch_rows=self._batch_rows)
            self._sent += 1
        self._host.call("unstage", PLAN_SECONDS, staging=self._staging_path())

    def _push(self, batch_rows: int, **what: Any) -> dict[str, Any]:
        if self._stopped.is_set():
            raise SparkLostError("the job was stopped")
        target = self._target
        return self._host.call(
            "push", job=self.name, fields=self._fields, address=target.address, token=target.token,
            batch_rows=whole_trains(batch_rows, self._batch_limit), **what,
        )  # fmt: skip

    def _staging_path(self) -> str:
        """A place that outlives the driver, and that every executor can reach."""
        if self._staging is None:
            self._staging = tempfile.mkdtemp(prefix="aurorad-staged-")
            self._owned = self._staging
        return str(Path(self._staging) / self.name) if "://" not in self._staging else f"{self._staging}/{self.name}"

    _owned: str | None = None

    def _clear(self) -> None:
        if self._owned is not None:
            shutil.rmtree(self._owned, ignore_errors=True)


def fields_of(schema: Schema) -> list[list[Any]]:
    """As it travels to the driver."""
    return [[f.name, str(f.type), f.nullable] for f in schema]


def order_for(network: Network, stream: Stream, asked: Sequence[str] | None, pace: str) -> list[str]:
    """What a job is sorted by. Where windows or joins go by the stream's event time, or a pace does, rows must come in
    its order: parts are read side by side, and the newest time of one would make all the rows of another late."""
    if asked is not None:
        return list(asked)
    timed = any(network.arcs[arc].timed for arc in stream.arcs)
    if stream.time_field is not None and (timed or pace != "as_fast"):
        return [stream.time_field]
    return []


def batch_limit(network: Network) -> int:
    """How many rows of a bulk job may travel together. To unpack 65,536 takes a core 1.5 ms, and a live tuple that
    needs that core waits. Where every stream comes from Spark nobody waits, and long batches are a tenth faster."""
    is_live = any(not isinstance(stream.source, SparkSource) for stream in network.streams)
    return TRAIN_ROWS if is_live else BATCH_ROWS


def whole_trains(found: int, limit: int) -> int:
    """At most so many rows, in whole trains where it is more than one: then the same rows make the same trains, and
    have the same numbers in the log, when a job goes on in a network that has become a live one."""
    rows = min(found, limit)
    return rows - rows % TRAIN_ROWS or rows


def check_master(master: str, staging: str | None, stable: bool) -> None:
    """On a cluster, what is staged must lie where every executor can read it."""
    if not stable and staging is None and not master.startswith("local"):
        raise SparkRefusedError(
            "spark.staging must name a folder that all executors reach: this source is staged first"
        )
