"""A segment into a sink, once. Runs in the driver process.

For files: Spark writes into ``<path>/_aurorad/staging/<commit>``; then the manifest
``<path>/_aurorad/commits/<commit>.json`` appears in one rename, and that is the commit; then the files move to their
places, under names that hold the commit's. A commit whose manifest is there is done, and only its moves are done
again. A JVM that dies before leaves a staging folder, which the next attempt empties; one that dies after leaves
files to be moved. A commit may be *prepared* first, while the one before it is on its way: its files are written and
remembered in this process, and no manifest says so. Readers that go by the manifests see whole commits; readers that
list the folder see its files one after another (of one file: at once).

For what is not files: Delta is told the commit as its transaction (txnAppId, txnVersion); JDBC with ``commit_column``
in its options writes in one transaction and looks for the commit's name in that column first; anything else is at
least once.

Hadoop's file systems do the deeds, so ``file:``, ``hdfs:`` and ``s3a:`` are alike; on this machine files are synced
before the manifest says that they are there.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Lock
from typing import Any

from router.spark.errors import SparkRefusedError

META = "_aurorad"
FILES = ("parquet", "orc", "csv", "json", "text", "avro", "xml")
COMMIT_COLUMN = "commit_column"


# Nobody looks into a staging folder before its manifest is there: tasks may put their files there at once, without a
# second move of all of them at the end, and no mark is needed that says that the job is done.
STAGED = {
    "mapreduce.fileoutputcommitter.algorithm.version": "2",
    "mapreduce.fileoutputcommitter.marksuccessfuljobs": "false",
}
SYNCS_AT_ONCE = 4
PREPARED = 256  # that wait at a time; one more and the oldest is written again when its turn comes
_prepared: dict[tuple[str, str], dict[str, Any]] = {}  # by path and commit: manifests of what lies in staging, whole
_lock = Lock()


def commit(session: Any, request: dict[str, Any]) -> dict[str, Any]:
    sink = request["sink"]
    if sink["spark"] in FILES:
        return Store(session, sink["path"]).commit(request)
    return _commit_elsewhere(session, request)


def prepare(session: Any, request: dict[str, Any]) -> None:
    """Do of a commit what can be done before it is its turn: files, and nothing that anybody could see."""
    path, name = request["sink"]["path"], request["commit"]
    store = Store(session, path)
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
    """A segment as a DataFrame, read by the JVM itself: a partition for each of its batches."""
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType, _parse_datatype_string

    types = [(name, kind, nullable) for name, kind, nullable in fields]
    schema = StructType()
    for name, kind, nullable in types:
        schema.add(name, _parse_datatype_string(kind), nullable)
    utils = session._jvm.PythonSQLUtils
    frame = utils.toDataFrame(utils.readArrowStreamFromFile(file), schema.json(), session._jsparkSession)
    return DataFrame(frame, session)


class Store:
    """The files of one sink."""

    def __init__(self, session: Any, path: str) -> None:
        self._session = session
        self._jvm = session.sparkContext._jvm
        self.root = self._jvm.org.apache.hadoop.fs.Path(path)
        self._files = self.root.getFileSystem(session.sparkContext._jsc.hadoopConfiguration())
        self.root = self._files.makeQualified(self.root)
        self.is_local = str(self._files.getUri()).startswith("file:")
        if self.is_local:
            self._files = self._files.getRawFileSystem()  # without a checksum file beside every file

    def path(self, *parts: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path("/".join([self.root.toString(), *parts]))

    def commit(self, request: dict[str, Any]) -> dict[str, Any]:
        name = request["commit"]
        manifest = self._manifest(name)
        with _lock:
            entry = _prepared.pop((request["sink"]["path"], name), None)
        if self._files.exists(manifest):
            entry = json.loads(self._read(manifest))
            self.publish(entry)
            return {"repeated": True, "rows": entry["rows"], "files": len(entry["files"])}
        if entry is None or not self._is_staged(entry):
            entry = self.stage(request)
        self.record(manifest, entry)
        self.publish(entry)
        return {"repeated": False, "rows": entry["rows"], "files": len(entry["files"])}

    def stage(self, request: dict[str, Any]) -> dict[str, Any]:
        """The files of a commit, in a folder where nobody looks; what its manifest will say."""
        name = request["commit"]
        staging = self.path(META, "staging", name)
        self._files.delete(staging, True)
        frame = frame_of(self._session, request["file"], request["fields"])
        self.write(frame, request["sink"], staging)
        entry = self.describe(name, staging, request["rows"])
        entry["output"] = request["sink"].get("output", "")
        return entry

    def has_commit(self, name: str) -> bool:
        return bool(self._files.exists(self._manifest(name)))

    def _manifest(self, name: str) -> Any:
        return self.path(META, "commits", f"{name}.json")

    def _is_staged(self, entry: dict[str, Any]) -> bool:
        """Whether what was prepared is still there: a file that is missing would be taken for one that was moved."""
        staging = self.path(META, "staging", entry["commit"])
        return all(self._files.exists(self.below(staging, file["from"])) for file in entry["files"])

    def write(self, frame: Any, sink: dict[str, Any], target: Any) -> None:
        folders = sink.get("partition_by") or []
        frame = frame.coalesce(sink.get("files") or 1)
        writer = frame.write.format(sink["spark"]).mode("overwrite").options(**STAGED).options(**text_options(sink))
        if folders:
            writer = writer.partitionBy(*folders)
        writer.save(target.toString())

    def describe(self, name: str, staging: Any, rows: int) -> dict[str, Any]:
        """What a commit consists of: where each file lies now, and where it goes."""
        base = staging.toUri().getPath()
        files = []
        for number, status in enumerate(sorted(self._walk(staging), key=lambda s: str(s.getPath().toString()))):
            path = status.getPath()
            folder = path.getParent().toUri().getPath()[len(base) :].strip("/")
            ending = path.getName().partition(".")[2]
            final = "/".join(filter(None, [folder, f"{name}-{number:04d}.{ending}"]))
            files.append(
                {"from": path.toUri().getPath()[len(base) :].lstrip("/"), "to": final, "bytes": status.getLen()}
            )
        if self.is_local and files:
            with ThreadPoolExecutor(SYNCS_AT_ONCE) as pool:
                list(pool.map(_sync_file, [f"{base}/{file['from']}" for file in files]))
        return {"commit": name, "rows": rows, "files": files}

    def publish(self, entry: dict[str, Any]) -> None:
        """Move what has not been moved yet."""
        staging = self.path(META, "staging", entry["commit"])
        for file in entry["files"]:
            source, final = self.below(staging, file["from"]), self.below(self.root, file["to"])
            if self._files.exists(source):
                self._files.mkdirs(final.getParent())
                if not self._files.rename(source, final) and not self._files.exists(final):
                    raise SparkRefusedError(f"cannot move {source.toString()} to {final.toString()}")
        self._files.delete(staging, True)

    def below(self, parent: Any, name: str) -> Any:
        """The Path of a name that may hold signs which a URI escapes."""
        path = self._jvm.org.apache.hadoop.fs.Path
        for part in name.split("/"):
            parent = path(parent, path(None, None, part))
        return parent

    def manifests(self) -> list[dict[str, Any]]:
        folder = self.path(META, "commits")
        if not self._files.exists(folder):
            return []
        names = sorted(str(s.getPath().getName()) for s in self._files.listStatus(folder))
        return [json.loads(self._read(self.path(META, "commits", n))) for n in names if n.endswith(".json")]

    def record(self, manifest: Any, entry: dict[str, Any]) -> None:
        """The manifest, whole or not at all."""
        new = self._jvm.org.apache.hadoop.fs.Path(manifest.toString() + ".new")
        self._files.mkdirs(manifest.getParent())
        out = self._files.create(new, True)
        try:
            out.write(json.dumps(entry, sort_keys=True).encode())
            out.hflush()
            out.hsync()
        finally:
            out.close()
        if not self._files.rename(new, manifest):
            raise SparkRefusedError(f"cannot write {manifest.toString()}")

    def has(self, name: str) -> bool:
        return bool(self._files.exists(self.path(name)))

    def remove(self) -> None:
        self._files.delete(self.root, True)

    def delete(self, name: str) -> None:
        self._files.delete(self.below(self.root, name), False)

    def _read(self, path: Any) -> str:
        stream = self._files.open(path)
        try:
            return bytes(self._jvm.org.apache.commons.io.IOUtils.toByteArray(stream)).decode()
        finally:
            stream.close()

    def _walk(self, folder: Any) -> Iterator[Any]:
        for status in self._files.listStatus(folder):
            name = status.getPath().getName()
            if name.startswith(("_", ".")):
                continue
            if status.isDirectory():
                yield from self._walk(status.getPath())
            else:
                yield status


def _commit_elsewhere(session: Any, request: dict[str, Any]) -> dict[str, Any]:
    sink, name = request["sink"], request["commit"]
    options = text_options(sink)
    frame = frame_of(session, request["file"], request["fields"]).coalesce(sink.get("files") or 1)
    if sink["spark"] == "delta":
        options |= {"txnAppId": f"aurorad-{sink['epoch']}-{sink['output']}", "txnVersion": str(sink["number"])}
    if sink["spark"] == "jdbc" and (column := options.pop(COMMIT_COLUMN, None)):
        from pyspark.sql.functions import lit

        types = options.get("createTableColumnTypes")
        options["createTableColumnTypes"] = ", ".join(filter(None, [types, f"{column} VARCHAR(64)"]))
        if _is_there(session, options, column, name):
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


def _is_there(session: Any, options: dict[str, str], column: str, name: str) -> bool:
    """Whether the table has rows of this commit. A table that is not there yet has none."""
    from pyspark.sql.functions import col

    looking = {key: value for key, value in options.items() if key != "createTableColumnTypes"}
    try:  # the comparison is done by the database, with the column's name quoted as it was when the table was made
        rows = session.read.format("jdbc").options(**looking).load()
        return bool(rows.where(col(column) == name).limit(1).count())
    except Exception as error:
        if any(word in str(error).lower() for word in ("does not exist", "not found", "no such table")):
            return False
        raise


def text_options(sink: dict[str, Any]) -> dict[str, str]:
    return {key: str(value) for key, value in (sink.get("options") or {}).items() if value is not None}


def _sync_file(path: str) -> None:
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
