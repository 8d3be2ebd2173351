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

``file:``, ``hdfs:`` and ``s3a:`` are alike (``folders``); on this machine files are synced before the manifest says
that they are there.
"""

from __future__ import annotations

import json
from threading import Lock
from typing import Any

from router.spark.errors import SparkFailedError
from router.spark.folders import open_folder

META = "_aurorad"
COMMITS = f"{META}/commits"
FILES = ("parquet", "orc", "csv", "json", "text", "avro", "xml")
COMMIT_COLUMN = "commit_column"


# Nobody looks into a staging folder before its manifest is there: tasks may put their files there at once, without a
# second move of all of them at the end, and no mark is needed that says that the job is done.
STAGED = {
    "mapreduce.fileoutputcommitter.algorithm.version": "2",
    "mapreduce.fileoutputcommitter.marksuccessfuljobs": "false",
}
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
        self.folder = open_folder(session, path)

    def commit(self, request: dict[str, Any]) -> dict[str, Any]:
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
        """The files of a commit, in a folder where nobody looks; what its manifest will say."""
        name = request["commit"]
        self.folder.delete(staging_of(name))
        frame = frame_of(self._session, request["file"], request["fields"])
        self.write(frame, request["sink"], staging_of(name))
        entry = {**self.describe(name, request["rows"]), "output": request["sink"].get("output", "")}
        if request["rows"] and not entry["files"]:
            raise SparkFailedError(f"{request['rows']} rows were written to {staging_of(name)}, and no file is there")
        return entry

    def has_commit(self, name: str) -> bool:
        return self.folder.has(manifest_of(name))

    def _is_staged(self, entry: dict[str, Any]) -> bool:
        """Whether what was prepared is still there: a file that is missing would be taken for one that was moved."""
        staging = staging_of(entry["commit"])
        return all(self.folder.has(f"{staging}/{file['from']}") for file in entry["files"])

    def _is_lost(self, entry: dict[str, Any]) -> bool:
        """Whether somebody has removed all files of a commit before they were moved: then it is written again, while
        its rows are still there. What a compaction has joined is not lost."""
        staging, files = staging_of(entry["commit"]), entry["files"]
        if any(self.folder.has(f"{staging}/{file['from']}") or self.folder.has(file["to"]) for file in files):
            return False
        joined = {name for other in self.manifests() for name in other.get("removes", ())}
        return bool(files) and not any(file["to"] in joined for file in files)

    def write(self, frame: Any, sink: dict[str, Any], target: str) -> None:
        folders = sink.get("partition_by") or []
        frame = frame.coalesce(sink.get("files") or 1)
        writer = frame.write.format(sink["spark"]).mode("overwrite").options(**STAGED).options(**text_options(sink))
        if folders:
            writer = writer.partitionBy(*folders)
        writer.save(self.folder.address(target))

    def describe(self, name: str, rows: int) -> dict[str, Any]:
        """What a commit consists of, now that it is staged: where each file lies, and where it goes."""
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
        """The manifest, which makes it a commit."""
        self.folder.write(manifest_of(entry["commit"]), json.dumps(entry, sort_keys=True).encode())

    def publish(self, entry: dict[str, Any]) -> None:
        """Move what has not been moved yet. For good: whoever asked forgets its rows when this is done."""
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
    return f"{META}/staging/{commit}"


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
