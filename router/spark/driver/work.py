"""The requests that need a session: one function each, called with the session and the request.

Each bulk job works in a session of its own (``newSession`` costs nothing and shares the JVM). So the settings that fix
its partitions affect no other job.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from router.spark.driver import commits, sources
from router.spark.driver import compact as compaction
from router.spark.driver.bad_rows import with_place
from router.spark.driver.baselines import plain_write, to_arrow
from router.spark.driver.folders import open_folder
from router.spark.driver.infer import infer
from router.spark.driver.taking import take
from router.spark.wire.errors import SparkFailedError, SparkRefusedError
from router.spark.wire.pipe import Answer, Request

__all__ = [
    "cancel", "commit", "compact", "infer", "inspect", "plain_write", "prepare", "push", "stage", "staged", "to_arrow",
    "unstage",
]  # fmt: skip

PART_BYTES = 128 * 1024**2
PARTS = 16
"""Partitions of a source that is smaller than as many of the size above. With fewer than four for each core, one core
works on the last partition while the others are idle. Refused: a number that follows from the cores. A job that goes on
after a restart with another number of cores would continue in the middle of other partitions.
"""
COMMIT_BYTES = 96 * 1024**2  # of segments at a time for each GiB of the heap: one segment, and half of the next
_running: dict[str, str] = {}  # job: the group in which its Spark jobs run
_inspected: dict[str, tuple[int, Any, sources.BulkRead]] = {}  # job: its partitions, its source, what "inspect" found
_lock = threading.Lock()


def inspect(session: Any, request: Request) -> Answer:
    """Check a source without reading it: whether its schema fits, how many partitions and rows it has."""
    read = sources.open_source(_job_session(session, PARTS), request["source"], request["fields"])
    found = sources.fingerprint(session, read.frame, request["source"])
    answer: Answer = {"stable": read.is_stable, "parts": PARTS, "rows": 0, "fingerprint": found, "partitions": 0}
    if read.is_stable:
        answer["rows"], answer["batch_rows"] = sources.measure(read)
        if not answer["rows"]:  # then progress is counted in partitions; counting them makes Spark optimize the query
            answer["partitions"] = read.frame._jdf.queryExecution().toRdd().getNumPartitions()
        _inspected[request["job"]] = (PARTS, request["source"], read)
    return answer


def stage(session: Any, request: Request) -> Answer:
    """Write the rows of a source as files, sorted where the request asks for it: files have stable partitions.

    Files that were staged from this very input before a restart are used again. A second sort could put equal rows in
    another order.

    With ``files`` these very files are staged (``taking.py``). ``lenient``: one that cannot be read is left out.
    """
    job = _job_session(session, 0)
    folder = open_folder(session, request["staging"])
    mark = f"_{request['fingerprint']}.staged"
    taken: Answer = {"bad": 0, "failed": {}, "staged": True}
    if not request["fingerprint"] or not folder.has(mark):
        with _JobGroup(session, request["job"], "stage"), _places_of_bad_rows(session, request):
            if request.get("files") is not None:
                taken = take(job, request)
            else:
                frame = sources.open_source(job, request["source"], request["fields"]).frame
                frame.write.mode("overwrite").parquet(request["staging"])
        if taken["failed"] and not request.get("lenient"):
            raise SparkFailedError(next(iter(taken["failed"].values())))
        if not taken["staged"]:
            return {**taken, "files": [], "rows": 0, "batch_rows": 1}
        folder.write(mark, b"staged\n")
    staged = job.read.parquet(request["staging"])
    rows, batch_rows = sources.measure(sources.BulkRead(staged, True, "parquet"))
    answer = {**taken, "files": sorted(staged.inputFiles()), "rows": rows or staged.count(), "batch_rows": batch_rows}
    if request["source"].get("increasing"):
        answer["mark"] = sources.highest(staged, request["source"])
    return answer


def staged(session: Any, request: Request) -> Answer:
    """Tell how far the staging of a job is, in tasks of Spark."""
    with _lock:
        group = _running.get(request["job"])
    tracker = session.sparkContext.statusTracker()
    tasks = done = 0
    for job in tracker.getJobIdsForGroup(group) if group is not None else ():
        info = tracker.getJobInfo(job)
        for stage in (tracker.getStageInfo(number) for number in (info.stageIds if info is not None else ())):
            if stage is not None:
                tasks, done = tasks + stage.numTasks, done + stage.numCompletedTasks
    return {"tasks": tasks, "done": done}


def unstage(session: Any, request: Request) -> Answer:
    """Remove the staged files of a job."""
    open_folder(session, request["staging"]).delete()
    return {}


def push(session: Any, request: Request) -> Answer:
    """Let the executors push a stable source, or one staged file, to the daemon. Return when it has all rows."""
    first, name = request["first"], request["job"]
    to = (request["address"], request["token"], request.get("trust", ""))
    if request.get("file"):
        frame = _job_session(session, 1, PART_BYTES * 1024).read.parquet(request["file"]).coalesce(1)
    else:
        frame = _open_again(session, request).frame
    schema, messages = arrow_messages(frame, request["batch_rows"])

    def push_one(index: int, part: Iterator[bytes]) -> Iterator[tuple[int, int]]:
        # Spark ships this function by value; the import happens in the Python worker.
        from aurorad_push import push_partition  # type: ignore[import-not-found]

        yield first + index, push_partition(to, name, first + index, schema, part)

    with _JobGroup(session, name, "push"), _places_of_bad_rows(session, request):
        pushed = messages.mapPartitionsWithIndex(push_one).collect()
    return {"partitions": {str(number): rows for number, rows in pushed}}


def _open_again(session: Any, request: Request) -> sources.BulkRead:
    """Return the source that "inspect" opened in this process. After a restart of the driver, open it anew."""
    parts, source, read = _inspected.pop(request["job"], (0, None, None))
    if read is not None and (parts, source) == (request["parts"], request["source"]):
        return read
    read = sources.open_source(_job_session(session, request["parts"]), request["source"], request["fields"])
    now = sources.fingerprint(session, read.frame, request["source"])
    if not read.is_stable or now != request["fingerprint"]:
        raise SparkRefusedError("the input has changed while it was read")
    return read


def arrow_messages(frame: Any, batch_rows: int) -> tuple[bytes, Any]:
    """Return the schema of a frame as an Arrow message, and its rows as an RDD of Arrow messages.

    ``toArrow`` collects the same RDD in the driver. Here it stays distributed, and a Python worker passes the messages
    on without decoding them.

    Refused: ``mapInArrow``, the public API. It wraps every row in another row, and its worker decodes and encodes what
    it passes on: 1.6 CPU seconds of the JVM and 0.2 of Python for 5 M rows, where this takes 1.0 and 0.15.
    """
    from pyspark import RDD
    from pyspark.serializers import NoOpSerializer
    from pyspark.sql.pandas.types import to_arrow_schema

    zone = "UTC"
    messages = frame._jdf.toArrowBatchRdd(batch_rows, zone, True, False).toJavaRDD()
    schema = to_arrow_schema(frame.schema, timezone=zone).serialize().to_pybytes()
    return schema, RDD(messages, frame.sparkSession.sparkContext, NoOpSerializer())


def commit(session: Any, request: Request) -> Answer:
    """Commit a segment of an output to its sink, once.

    Small segments run side by side, large ones in turn: the JVM needs about five times a segment's size to write it. A
    prepared segment is written already and needs no memory.
    """
    nbytes = 0 if commits.is_prepared(request) else os.path.getsize(request["file"])
    with _commit_memory(session).take(nbytes):
        return commits.commit(session, request)


def prepare(session: Any, request: Request) -> Answer:
    """Write the files of a segment before its turn to be committed."""
    with _commit_memory(session).take(os.path.getsize(request["file"])):
        commits.prepare(session, request)
    return {}


def compact(session: Any, request: Request) -> Answer:
    """Rewrite small files of a sink as large ones."""
    return compaction.compact(session.newSession(), request)


def cancel(session: Any, request: Request) -> Answer:
    """Cancel what Spark runs for a job, if anything."""
    with _lock:
        group = _running.get(request["job"])
    if group is not None:
        session.sparkContext.cancelJobGroup(group)
    return {}


class CommitMemory:
    """A budget of segment bytes that are written at a time. A segment above the whole budget is written alone."""

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


_memories: list[CommitMemory] = []  # the one of this driver, made when the size of the JVM's heap is known


def _commit_memory(session: Any) -> CommitMemory:
    with _lock:
        if not _memories:
            heap = session.sparkContext._jvm.Runtime.getRuntime().maxMemory()
            _memories.append(CommitMemory(int(COMMIT_BYTES * heap // 1024**3)))
        return _memories[0]


@contextmanager
def _places_of_bad_rows(session: Any, request: Request) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        raise with_place(session, request, error) from error


class _JobGroup:
    """Puts the Spark jobs of this thread into a group, so that ``cancel`` can end them."""

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
    """Open a session with fixed settings for the partitions of files: the same files give the same partitions."""
    job = session.newSession()
    if parts:
        job.conf.set("spark.sql.files.minPartitionNum", str(parts))
    job.conf.set("spark.sql.files.maxPartitionBytes", str(part_bytes))
    job.conf.set("spark.sql.files.openCostInBytes", str(4 * 1024**2))
    return job
