"""Commit a segment to a sink, once.

A sink of files takes three steps:

1. Spark writes the files into ``<path>/_aurorad/staging/<commit>``.
2. The manifest ``<path>/_aurorad/commits/<commit>.json`` appears by one rename. This is the commit.
3. The files move to their final places, under names that contain the commit's name.

A repeated commit whose manifest exists repeats only step 3. A JVM that dies before step 2 leaves a staging folder,
which the next attempt empties. A JVM that dies after step 2 leaves files to move. A commit may be *prepared* while the
commit before it runs: step 1 is done, this process remembers it, and no manifest exists. Readers that use the manifests
see whole commits. Readers that list the folder see the files of a commit appear one after another.

Other sinks: Delta gets the commit as its transaction (txnAppId, txnVersion). JDBC with ``commit_column`` in its options
writes one transaction, and first looks for the commit's name in that column. Anything else is at least once.

``file:``, ``hdfs:`` and ``s3a:`` differ only in ``folders.py``. On this machine files are synced before the manifest
names them.
"""

from __future__ import annotations

import json
from contextlib import suppress
from threading import Lock
from typing import Any

from router.spark.driver.folders import open_folder
from router.spark.wire.errors import SparkFailedError
from router.spark.wire.pipe import FILE_SINKS

META = "_aurorad"
COMMITS = f"{META}/commits"
STAGING = f"{META}/staging"
COMMIT_COLUMN = "commit_column"


# No reader looks into a staging folder. So tasks write their files there directly, without Spark's second move at the
# end of the job, and Spark need not write _SUCCESS.
STAGING_OPTIONS = {
    "mapreduce.fileoutputcommitter.algorithm.version": "2",
    "mapreduce.fileoutputcommitter.marksuccessfuljobs": "false",
}
PREPARED = 256  # remembered at a time; beyond that the oldest is forgotten, and written again when its turn comes
_prepared: dict[
    tuple[str, str], dict[str, Any]
] = {}  # (path, commit): the manifest of files that are complete in staging
_lock = Lock()


def commit(session: Any, request: dict[str, Any]) -> dict[str, Any]:
    """Commit a segment, or find that it was committed before (``repeated``)."""
    sink = request["sink"]
    if sink["spark"] in FILE_SINKS:
        return SinkStore(session, sink["path"]).commit(request)
    return _commit_elsewhere(session, request)


def prepare(session: Any, request: dict[str, Any]) -> None:
    """Write the files of a commit before its turn. No reader can see them."""
    path, name = request["sink"]["path"], request["commit"]
    store = SinkStore(session, path)
    entry = None if store.has_commit(name) else store.stage(request)
    with _lock:
        if entry is not None:
            _prepared[path, name] = entry
        while len(_prepared) > PREPARED:
            del _prepared[next(iter(_prepared))]


def is_prepared(request: dict[str, Any]) -> bool:
    with _lock:
        return (request["sink"].get("path"), request["commit"]) in _prepared


def frame_of(session: Any, file: str, fields: list[list[Any]]) -> Any:
    """Open a segment as a DataFrame. The JVM reads the file itself, with one partition for each batch."""
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType, _parse_datatype_string

    types = [(name, kind, nullable) for name, kind, nullable in fields]
    schema = StructType()
    for name, kind, nullable in types:
        schema.add(name, _parse_datatype_string(kind), nullable)
    utils = session._jvm.PythonSQLUtils
    frame = utils.toDataFrame(utils.readArrowStreamFromFile(file), schema.json(), session._jsparkSession)
    return DataFrame(frame, session)


def rows_of(session: Any, request: dict[str, Any]) -> Any:
    """Open the rows of a commit: a segment of the daemon, or the Parquet files in which executors have left them."""
    if "parquet" not in request:
        return frame_of(session, request["file"], request["fields"])
    types = ", ".join(f"`{name}` {kind}" for name, kind, _ in request["fields"])
    return session.read.schema(types).parquet(*request["parquet"])


class SinkStore:
    """The files of one sink: manifests, staged files, published files."""

    def __init__(self, session: Any, path: str) -> None:
        self._session = session
        self.folder = open_folder(session, path)

    def commit(self, request: dict[str, Any]) -> dict[str, Any]:
        """Do the steps that an earlier attempt has not done."""
        name = request["commit"]
        with _lock:
            entry = _prepared.pop((request["sink"]["path"], name), None)
        if self.has_commit(name):
            published = json.loads(self.folder.read(manifest_of(name)))
            if not self._is_lost(published):
                self.publish(published)
                return {"repeated": True, "rows": published["rows"], "files": len(published["files"])}
        if entry is None or not self._is_staged(entry):
            entry = self.stage(request)
        self.record(entry)
        self.publish(entry)
        return {"repeated": False, "rows": entry["rows"], "files": len(entry["files"])}

    def stage(self, request: dict[str, Any]) -> dict[str, Any]:
        """Write the files of a commit into its staging folder. Return its manifest."""
        name = request["commit"]
        self.folder.delete(staging_of(name))
        frame = rows_of(self._session, request)
        try:
            self.write(frame, request["sink"], staging_of(name))
        except Exception:  # of any kind: free the space of the failed files, then raise the error again
            self._give_space_back(name)
            raise
        entry = {**self.describe(name, request["rows"]), "output": request["sink"].get("output", "")}
        if request["rows"] and not entry["files"]:
            raise SparkFailedError(f"Spark wrote {request['rows']} rows to {staging_of(name)}, but no file is there")
        return entry

    def _give_space_back(self, name: str) -> None:
        """Delete what a failed write has staged, also what Spark has deleted and still holds open.

        A task that fails on a full disk closes none of its files. They keep their space on the full disk until the
        JVM's garbage collector finds them.
        """
        with suppress(Exception):  # the caller reports why the write failed
            self.folder.delete(staging_of(name))
            self._session.sparkContext._jvm.System.gc()

    def has_commit(self, name: str) -> bool:
        return self.folder.has(manifest_of(name))

    def _is_staged(self, entry: dict[str, Any]) -> bool:
        """Tell whether the prepared files still exist. ``publish`` would take a missing file for one that it moved."""
        staging = staging_of(entry["commit"])
        return all(self.folder.has(f"{staging}/{file['from']}") for file in entry["files"])

    def _is_lost(self, entry: dict[str, Any]) -> bool:
        """Tell whether somebody has removed all files of a commit. Then it is written again: its segment still exists.

        Files that a compaction has replaced are not lost.
        """
        staging, files = staging_of(entry["commit"]), entry["files"]
        if any(self.folder.has(f"{staging}/{file['from']}") or self.folder.has(file["to"]) for file in files):
            return False
        compacted = {name for other in self.manifests() for name in other.get("removes", ())}
        return bool(files) and not any(file["to"] in compacted for file in files)

    def write(self, frame: Any, sink: dict[str, Any], target: str) -> None:
        folders = sink.get("partition_by") or []
        frame = frame.coalesce(sink.get("files") or 1)
        writer = (
            frame.write.format(sink["spark"]).mode("overwrite").options(**STAGING_OPTIONS).options(**text_options(sink))
        )
        if folders:
            writer = writer.partitionBy(*folders)
        writer.save(self.folder.address(target))

    def describe(self, name: str, rows: int) -> dict[str, Any]:
        """Sync the staged files of a commit. Return its manifest: where each file lies, and where it goes."""
        staging = staging_of(name)
        files = []
        for number, found in enumerate(self.folder.walk(staging)):
            folder, _, file = found.name.rpartition("/")
            ending = file.partition(".")[2]
            final = "/".join(filter(None, [folder, f"{name}-{number:04d}.{ending}"]))
            files.append({"from": found.name, "to": final, "bytes": found.nbytes})
        self.folder.sync(f"{staging}/{file['from']}" for file in files)
        return {"commit": name, "rows": rows, "files": files}

    def record(self, entry: dict[str, Any]) -> None:
        """Write the manifest. This makes it a commit."""
        self.folder.write(manifest_of(entry["commit"]), json.dumps(entry, sort_keys=True).encode())

    def publish(self, entry: dict[str, Any]) -> None:
        """Move the files that have not been moved, and sync them: the daemon deletes the segment after this."""
        staging = staging_of(entry["commit"])
        for file in entry["files"]:
            source = f"{staging}/{file['from']}"
            if self.folder.has(source):
                self.folder.move(source, file["to"])
        self.folder.sync(file["to"] for file in entry["files"])
        self.folder.delete(staging)

    def manifests(self) -> list[dict[str, Any]]:
        names = [name for name in self.folder.names(COMMITS) if name.endswith(".json")]
        return [json.loads(self.folder.read(f"{COMMITS}/{name}")) for name in names]


def manifest_of(commit: str) -> str:
    return f"{COMMITS}/{commit}.json"


def staging_of(commit: str) -> str:
    return f"{STAGING}/{commit}"


def _commit_elsewhere(session: Any, request: dict[str, Any]) -> dict[str, Any]:
    """Commit to a sink that is not files: Delta, JDBC, any format of the user's Spark."""
    sink, name = request["sink"], request["commit"]
    options = text_options(sink)
    frame = rows_of(session, request).coalesce(sink.get("files") or 1)
    if sink["spark"] == "delta":
        options |= {"txnAppId": f"aurorad-{sink['epoch']}-{sink['output']}", "txnVersion": str(sink["number"])}
    if sink["spark"] == "jdbc" and (column := options.pop(COMMIT_COLUMN, None)):
        from pyspark.sql.functions import lit

        types = options.get("createTableColumnTypes")
        options["createTableColumnTypes"] = ", ".join(filter(None, [types, f"{column} VARCHAR(64)"]))
        if _has_commit(session, options, column, name):
            return {"repeated": True, "rows": request["rows"], "files": 0}
        frame = frame.coalesce(1).withColumn(column, lit(name))  # one partition is one transaction
    writer = frame.write.format(sink["spark"]).mode("append").options(**options)
    if sink.get("partition_by"):
        writer = writer.partitionBy(*sink["partition_by"])
    if sink.get("path"):
        writer.save(sink["path"])
    else:
        writer.save()
    return {"repeated": False, "rows": request["rows"], "files": 0}


def _has_commit(session: Any, options: dict[str, str], column: str, name: str) -> bool:
    """Tell whether the table has rows of this commit. A table that does not exist has none."""
    from pyspark.sql.functions import col

    read_options = {key: value for key, value in options.items() if key != "createTableColumnTypes"}
    try:  # the database compares, with the column's name quoted as when Spark made the table
        rows = session.read.format("jdbc").options(**read_options).load()
        return bool(rows.where(col(column) == name).limit(1).count())
    except Exception as error:
        if any(word in str(error).lower() for word in ("does not exist", "not found", "no such table")):
            return False
        raise


def text_options(sink: dict[str, Any]) -> dict[str, str]:
    """Return the sink's options as Spark takes them."""
    return {key: str(value) for key, value in (sink.get("options") or {}).items() if value is not None}
