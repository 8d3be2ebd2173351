"""Rewrite the small files of a sink as few large ones, on request. The sink may go on meanwhile.

A compaction is a commit: it stages new files, its manifest (files added, files removed) appears by one rename, then the
new files move to their places and the old ones are deleted. It touches only files that a manifest names, so it does not
touch what the sink writes meanwhile. A lock keeps a second compaction out: it would join the same files once more. The
next compaction finishes one that broke off after its manifest, and deletes what one staged that broke off before it.

Readers that use the manifests see the same rows before, during and after it. Readers that list the folder may see rows
twice between the moves and the deletions.
"""

from __future__ import annotations

import secrets
from typing import Any

from router.spark.driver.commits import META, STAGING, SinkStore, staging_of, text_options
from router.spark.driver.sources import ddl

PREFIX = "compact-"
LOCK = f"{META}/compact.lock"
NO_GLOB = "__globPaths__"  # Spark's own switch, with which its streams read the files that they have listed


def compact(session: Any, request: dict[str, Any]) -> dict[str, Any]:
    """Compact files below ``small_bytes`` of a sink. Return how many files became how many."""
    store = SinkStore(session, request["sink"]["path"])
    with store.folder.lock(LOCK):
        manifests = store.manifests()
        clean_up(store, manifests)
        return _join(session, store, request, manifests)


def clean_up(store: SinkStore, manifests: list[dict[str, Any]]) -> None:
    """Finish compactions that broke off after their manifest. Delete what others staged. Call it with the lock."""
    for entry in manifests:
        if entry.get("removes"):
            finish(store, entry)
    for name in store.folder.names(STAGING):
        if name.startswith(PREFIX):
            store.folder.delete(staging_of(name))


def _join(session: Any, store: SinkStore, request: dict[str, Any], manifests: list[dict[str, Any]]) -> dict[str, Any]:
    sink = request["sink"]
    groups = choose(live_files(manifests), request["small_bytes"])
    if not groups:
        return {"before": 0, "after": 0, "bytes": 0}
    name = f"{PREFIX}{secrets.token_hex(6)}"
    for folder, files in groups.items():
        target = "/".join(filter(None, [staging_of(name), folder]))
        _rewrite(session, store, sink, request["fields"], target, [file["to"] for file in files])
    entry = store.describe(name, 0)
    entry["removes"] = sorted(file["to"] for files in groups.values() for file in files)
    store.record(entry)
    finish(store, entry)
    return {
        "before": len(entry["removes"]),
        "after": len(entry["files"]),
        "bytes": sum(file["bytes"] for file in entry["files"]),
    }


def live_files(manifests: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return every file of the sink that a manifest names and no compaction has removed."""
    gone = {name for entry in manifests for name in entry.get("removes", ())}
    return [file for entry in manifests for file in entry["files"] if file["to"] not in gone]


def choose(files: list[dict[str, Any]], small_bytes: int) -> dict[str, list[dict[str, Any]]]:
    """Group the small files by folder. A folder with a single one is left out."""
    groups: dict[str, list[dict[str, Any]]] = {}
    for file in files:
        if file["bytes"] < small_bytes:
            groups.setdefault(file["to"].rpartition("/")[0], []).append(file)
    return {folder: group for folder, group in sorted(groups.items()) if len(group) > 1}


def _rewrite(session: Any, store: SinkStore, sink: dict[str, Any], fields: Any, target: str, names: list[str]) -> None:
    """Write the files of one folder as one file. Columns that the folder's name holds are not in the files."""
    inside = [f for f in fields if f[0] not in (sink.get("partition_by") or ())]
    reader = session.read.format(sink["spark"]).options(**text_options(sink)).schema(ddl(inside))
    reader = reader.option("recursiveFileLookup", "true")  # so that Spark reads no column from the folder's name
    reader = reader.option(NO_GLOB, "false")  # the names are names, also those with *, [ or {
    frame = reader.load([store.folder.address(name) for name in names])
    store.write(frame, {**sink, "partition_by": [], "files": 1}, target)


def finish(store: SinkStore, entry: dict[str, Any]) -> None:
    """Publish the new files of a compaction and delete the old ones."""
    store.publish(entry)
    for name in entry["removes"]:
        store.folder.delete(name)
