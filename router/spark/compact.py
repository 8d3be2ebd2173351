"""Many small files of a sink into few large ones, on request. Runs in the driver process, beside a sink that goes on.

A compaction is a commit like any other: new files are staged, its manifest (what comes, what goes) appears in one
rename, and then the new files move in and the old ones are deleted. Only files that some manifest names are touched,
so what the sink writes meanwhile is not. One that was cut off after its manifest is finished by the next one.

Readers that go by the manifests see the same rows before, while and after. Readers that list the folder may see rows
twice between the moves and the deletes.
"""

from __future__ import annotations

import secrets
from typing import Any

from router.spark.commits import Store, staging_of, text_options
from router.spark.sources import ddl

PREFIX = "compact-"


def compact(session: Any, request: dict[str, Any]) -> dict[str, Any]:
    """``sink``, ``fields``, and files below ``small_bytes``; how many files became how many."""
    sink = request["sink"]
    store = Store(session, sink["path"])
    manifests = store.manifests()
    for entry in manifests:
        if entry.get("removes"):
            finish(store, entry)
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
    """Every file that the sink consists of now, by its manifests."""
    gone = {name for entry in manifests for name in entry.get("removes", ())}
    return [file for entry in manifests for file in entry["files"] if file["to"] not in gone]


def choose(files: list[dict[str, Any]], small_bytes: int) -> dict[str, list[dict[str, Any]]]:
    """Small files by folder, where there are at least two of them."""
    groups: dict[str, list[dict[str, Any]]] = {}
    for file in files:
        if file["bytes"] < small_bytes:
            groups.setdefault(file["to"].rpartition("/")[0], []).append(file)
    return {folder: group for folder, group in sorted(groups.items()) if len(group) > 1}


def _rewrite(session: Any, store: Store, sink: dict[str, Any], fields: Any, target: str, names: list[str]) -> None:
    """The files of one folder as one. What the folder's name says is not in them and stays out."""
    inside = [f for f in fields if f[0] not in (sink.get("partition_by") or ())]
    reader = session.read.format(sink["spark"]).options(**text_options(sink)).schema(ddl(inside))
    reader = reader.option("recursiveFileLookup", "true")  # a folder's name is not read as a column
    frame = reader.load([store.folder.address(name) for name in names])
    store.write(frame, {**sink, "partition_by": [], "files": 1}, target)


def finish(store: Store, entry: dict[str, Any]) -> None:
    store.publish(entry)
    for name in entry["removes"]:
        store.folder.delete(name)
