"""What the driver does when asked: one function for each question, called with the session and the request.

Each bulk job works in a session of its own (``newSession`` costs nothing and shares the JVM), so that the settings
which fix its parts are nobody else's.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from router.spark import commits, sources
from router.spark import compact as compaction
from router.spark.baselines import plain_write, to_arrow
from router.spark.errors import SparkRefusedError
from router.spark.folders import open_folder

__all__ = ["cancel", "commit", "compact", "plain_write", "plan", "prepare", "push", "stage", "to_arrow", "unstage"]

Request = dict[str, Any]
Answer = dict[str, Any]

PART_BYTES = 128 * 1024**2
PARTS_A_CORE = 4  # or one core has a part to itself at the end while the others have none
COMMIT_BYTES = 96 * 1024**2  # of segments for each GiB of the heap: one, and half of the next
_running: dict[str, str] = {}  # job: the group its Spark jobs run in
_planned: dict[str, tuple[int, Any, sources.Plan]] = {}  # job: what was found when it was looked at
_lock = threading.Lock()


def plan(session: Any, request: Request) -> Answer:
    """Look at the source without reading it: does it fit, into how many parts does it fall, how many rows are there."""
    parts = PARTS_A_CORE * session.sparkContext.defaultParallelism
    planned = sources.plan(_job_session(session, parts), request["source"], request["fields"])
    found = sources.fingerprint(session, planned.frame, request["source"])
    answer: Answer = {"stable": planned.is_stable, "parts": parts, "rows": 0, "fingerprint": found, "partitions": 0}
    if planned.is_stable:
        answer["rows"], answer["batch_rows"] = sources.measure(planned)
        if not answer["rows"]:  # then the parts tell how far it is; to count them takes a planning of its own
            answer["partitions"] = planned.frame._jdf.queryExecution().toRdd().getNumPartitions()
        _planned[request["job"]] = (parts, request["source"], planned)
    return answer


def stage(session: Any, request: Request) -> Answer:
    """Write what the source gives as files, sorted where that was asked for: parts that stay as they are. What was
    staged from this very input before a restart is taken as it is: sorted again, equal rows could change places."""
    job = _job_session(session, 0)
    folder = open_folder(session, request["staging"])
    mark = f"_{request['fingerprint']}.staged"
    if not request["fingerprint"] or not folder.has(mark):
        frame = sources.plan(job, request["source"], request["fields"]).frame
        with _Group(session, request["job"], "stage"):
            frame.write.mode("overwrite").parquet(request["staging"])
        folder.write(mark, b"staged\n")
    staged = job.read.parquet(request["staging"])
    rows, batch_rows = sources.measure(sources.Plan(staged, True, "parquet"))
    return {"files": sorted(staged.inputFiles()), "rows": rows or staged.count(), "batch_rows": batch_rows}


def unstage(session: Any, request: Request) -> Answer:
    open_folder(session, request["staging"]).delete()
    return {}


def push(session: Any, request: Request) -> Answer:
    """Let the executors bring a stable source, or one staged file, to the daemon. Returns when all of it is there."""
    first, address, token, name = request["first"], request["address"], request["token"], request["job"]
    if request.get("file"):
        frame = _job_session(session, 1, PART_BYTES * 1024).read.parquet(request["file"]).coalesce(1)
    else:
        frame = _plan_again(session, request).frame
    schema, messages = arrow_messages(frame, request["batch_rows"])

    def bring(index: int, part: Iterator[bytes]) -> Iterator[tuple[int, int]]:
        from aurorad_wire import push_partition  # type: ignore[import-not-found]  # where the executors have it

        yield first + index, push_partition(address, token, name, first + index, schema, part)

    with _Group(session, name, "push"):
        brought = messages.mapPartitionsWithIndex(bring).collect()
    return {"partitions": {str(number): rows for number, rows in brought}}


def _plan_again(session: Any, request: Request) -> sources.Plan:
    """As it was looked at, when that was in this process; else anew."""
    parts, source, planned = _planned.pop(request["job"], (0, None, None))
    if planned is not None and (parts, source) == (request["parts"], request["source"]):
        return planned
    planned = sources.plan(_job_session(session, request["parts"]), request["source"], request["fields"])
    now = sources.fingerprint(session, planned.frame, request["source"])
    if not planned.is_stable or now != request["fingerprint"]:
        raise SparkRefusedError("the input has changed while it was read")
    return planned


def arrow_messages(frame: Any, batch_rows: int) -> tuple[bytes, Any]:
    """The schema of a frame and its rows, both as Arrow messages, the rows in an RDD of bytes. This is what ``toArrow``
    collects; here it stays where it is, and a worker in Python hands it on without looking into it.

    Refused: ``mapInArrow``, the public way. It wraps every row in another one, and its worker unpacks and packs what it
    hands on: 1.6 CPU seconds of the JVM and 0.2 of Python for 5 M rows where this takes 1.0 and 0.15."""
    from pyspark import RDD
    from pyspark.serializers import NoOpSerializer
    from pyspark.sql.pandas.types import to_arrow_schema

    zone = "UTC"
    messages = frame._jdf.toArrowBatchRdd(batch_rows, zone, True, False).toJavaRDD()
    schema = to_arrow_schema(frame.schema, timezone=zone).serialize().to_pybytes()
    return schema, RDD(messages, frame.sparkSession.sparkContext, NoOpSerializer())


def commit(session: Any, request: Request) -> Answer:
    """A segment of an output into its sink, once. Small ones side by side, large ones in turn: the JVM holds a segment
    about five times over while it writes it. One that was prepared is written already, and waits for nobody."""
    with _room(session).take(0 if commits.is_prepared(request) else os.path.getsize(request["file"])):
        return commits.commit(session, request)


def prepare(session: Any, request: Request) -> Answer:
    """The files of a segment whose turn has not come yet."""
    with _room(session).take(os.path.getsize(request["file"])):
        commits.prepare(session, request)
    return {}


def compact(session: Any, request: Request) -> Answer:
    """Small files of a sink into large ones."""
    return compaction.compact(session.newSession(), request)


def cancel(session: Any, request: Request) -> Answer:
    with _lock:
        group = _running.get(request["job"])
    if group is not None:
        session.sparkContext.cancelJobGroup(group)
    return {}


class Room:
    """So many bytes at once; whoever wants more than all of it gets it alone."""

    def __init__(self, nbytes: int) -> None:
        self._all = self._free = nbytes
        self._change = threading.Condition()

    @contextmanager
    def take(self, nbytes: int) -> Iterator[None]:
        wanted = min(nbytes, self._all)
        with self._change:
            self._change.wait_for(lambda: self._free >= wanted)
            self._free -= wanted
        try:
            yield
        finally:
            with self._change:
                self._free += wanted
                self._change.notify_all()


_rooms: list[Room] = []  # the one of this driver, once it is known how large its JVM is


def _room(session: Any) -> Room:
    with _lock:
        if not _rooms:
            heap = session.sparkContext._jvm.Runtime.getRuntime().maxMemory()
            _rooms.append(Room(int(COMMIT_BYTES * heap // 1024**3)))
        return _rooms[0]


class _Group:
    """Marks the Spark jobs of this thread, so that they can be cancelled."""

    def __init__(self, session: Any, job: str, what: str) -> None:
        self._context = session.sparkContext
        self._job = job
        self._group = f"aurorad {what} {job}"

    def __enter__(self) -> None:
        with _lock:
            _running[self._job] = self._group
        self._context.setJobGroup(self._group, self._group, interruptOnCancel=True)

    def __exit__(self, *_: object) -> None:
        with _lock:
            _running.pop(self._job, None)


def _job_session(session: Any, parts: int, part_bytes: int = PART_BYTES) -> Any:
    """With the settings that decide how files fall into parts fixed, so that they fall the same way again."""
    job = session.newSession()
    if parts:
        job.conf.set("spark.sql.files.minPartitionNum", str(parts))
    job.conf.set("spark.sql.files.maxPartitionBytes", str(part_bytes))
    job.conf.set("spark.sql.files.openCostInBytes", str(4 * 1024**2))
    return job
