"""Bulk jobs that ``aurorad ingest`` asks this daemon to run in the JVM that it has. Both ends.

A JVM needs half a minute to start and 400 MB. Where the daemon has one, a second one beside it is a waste. The daemon
then reads what the command names, with the rights of the daemon: so a user of ``access`` must be an admin for it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from threading import Event, Lock, Thread
from typing import Any

from pydantic import ValidationError

from catalog.config.models import SparkSource
from catalog.network import Network
from router.spark.daemon.host import SparkHost
from router.spark.daemon.intake import find_stream
from router.spark.daemon.jobs import BulkJob, batch_limit
from router.spark.daemon.port import Handler
from router.spark.daemon.progress import MAX_JOBS
from router.spark.daemon.request import PortRequest
from router.spark.daemon.source_job import SourceTarget
from router.spark.wire.aurorad_wire import Connection, WireError
from router.spark.wire.errors import SparkError, SparkFailedError, SparkRefusedError
from router.spark.wire.peer import Peer

POLL_SECONDS = 0.25
END_SECONDS = 5.0
TEXT_CHARACTERS = 100_000
MakeTarget = Callable[[Any, str, str], SourceTarget]
"""Makes the target of a job from its stream, its name and its pace."""


class _AskedJob:
    """Owner: its thread. Others read ``state`` and ``error``."""

    def __init__(self, job: BulkJob, target: SourceTarget) -> None:
        self.job = job
        self.target = target
        self.state = "running"  # running | done | failed
        self.error = ""
        self.thread = Thread(target=self._run, name=f"aurorad-bulk-{job.name}", daemon=True)

    def _run(self) -> None:
        try:
            self.job.run()
        except SparkError as error:
            self.error, self.state = str(error), "failed"
        else:
            self.state = "done"


class AskedJobs:
    """The daemon's end."""

    def __init__(self, network: Network, host: SparkHost, make_target: MakeTarget, staging: Callable[[], str | None]):
        self._network = network
        self._host = host
        self._make_target = make_target
        self._staging = staging
        self._jobs: dict[str, _AskedJob] = {}
        self._lock = Lock()
        self.handlers: dict[str, Handler] = {
            "ingest": self._ingest,
            "ingest_state": self._state,
            "ingest_stop": self._stop,
        }

    def _ingest(self, peer: Peer, request: PortRequest) -> None:
        """Begin a job, if there is a JVM or the request wants one to be started."""
        if not self._host.is_up and not request.number("start", 0):
            peer.say(ok=True, runs=False)
            return
        name, stream = request.text("job", characters=200), find_stream(self._network, request.text("stream"))
        source = _checked(request.json("source", TEXT_CHARACTERS))
        with self._lock:
            known = self._jobs.get(name)
            if known is not None and known.state == "running":
                raise SparkRefusedError(f"job {name} is running")
            self._forget()
            target = self._make_target(stream, name, request.text("pace", "as_fast"))
            job = BulkJob(
                self._host, name, source, stream.schema, target,
                staging=self._staging(), batch_limit=batch_limit(self._network),
            )  # fmt: skip
            asked = self._jobs[name] = _AskedJob(job, target)
        asked.thread.start()
        peer.say(ok=True, runs=True)

    def _forget(self) -> None:
        """Forget the oldest job that has ended when there are too many."""
        if len(self._jobs) >= MAX_JOBS:
            ended = next((name for name, job in self._jobs.items() if job.state != "running"), None)
            if ended is None:
                raise SparkRefusedError(f"{MAX_JOBS} bulk jobs are running already")
            del self._jobs[ended]

    def _get(self, request: PortRequest) -> _AskedJob:
        asked = self._jobs.get(request.text("job"))
        if asked is None:
            raise SparkRefusedError(f"there is no job {request.text('job')}: the daemon has started again")
        return asked

    def _state(self, peer: Peer, request: PortRequest) -> None:
        asked = self._get(request)
        reading = asked.target.reading()
        peer.say(
            ok=True, state=asked.state, failure=asked.error, rows=reading.rows, rows_expected=reading.rows_expected,
            rate_per_s=reading.rate_per_s, was_done=asked.job.was_done,
        )  # fmt: skip

    def _stop(self, peer: Peer, request: PortRequest) -> None:
        self._get(request).job.stop()
        peer.say(ok=True)

    def stop(self) -> None:
        """Stop all jobs. One that is asked for again goes on."""
        for asked in list(self._jobs.values()):
            if asked.state == "running":
                asked.job.stop()

    def join(self) -> None:
        for asked in list(self._jobs.values()):
            asked.thread.join(END_SECONDS)


def _checked(source: dict[str, Any]) -> dict[str, Any]:
    """Return a source that a peer has sent, as the driver takes it. Raises SparkRefusedError."""
    try:
        model = SparkSource.model_validate({key: value for key, value in source.items() if value is not None})
    except ValidationError as error:
        first = error.errors()[0]
        raise SparkRefusedError(f"source: {'.'.join(map(str, first['loc']))}: {first['msg']}") from None
    return {
        "spark": model.spark, "path": model.path, "options": dict(model.options), "sql": model.sql,
        "order_by": model.order_by,
    }  # fmt: skip


class DaemonJob:
    """The other end: a job that runs in the daemon, with the methods of a ``BulkJob`` and of its target."""

    def __init__(
        self, address: str, token: str, trust: str, job: str, *, stream: str, pace: str, source: Mapping[str, Any]
    ) -> None:
        self._to = (address, token, trust)
        self._what = {"stream": stream, "pace": pace, "source": dict(source)}
        self._job = job
        self._stopped = Event()
        self.begun = False
        self.was_done = False

    def begin(self, *, start: bool) -> bool:
        """Ask the daemon to run the job. False when it has no JVM, and ``start`` does not ask for one."""
        self.begun = bool(self._ask("ingest", start=int(start), **self._what)["runs"])
        return self.begun

    def run(self) -> int:
        """Wait for the end. Return how many rows came. Raises SparkError."""
        while True:
            state = self.progress()
            if state["state"] == "failed":
                raise SparkFailedError(state["failure"])
            if state["state"] == "done":
                self.was_done = state["was_done"]
                return int(state["rows"])
            self._stopped.wait(POLL_SECONDS)

    def progress(self) -> dict[str, Any]:
        return self._ask("ingest_state")

    def stop(self) -> None:
        self._stopped.set()
        self._ask("ingest_stop")

    def _ask(self, do: str, **arguments: Any) -> dict[str, Any]:
        try:
            with Connection(*self._to) as connection:
                return connection.ask(do, job=self._job, **arguments)
        except WireError as error:
            raise SparkRefusedError(str(error).removeprefix("aurorad: ")) from None
        except OSError as error:
            raise SparkRefusedError(f"no aurorad answers at {self._to[0]}: {error}") from error
