"""Stage files: the rows that fit as Parquet, the rows that do not in one file of bad rows. A file enters whole or not.

Nothing has entered the network while files are staged. So a file that cannot be read to its end is left out, with its
reason, and the others are staged again: no part of it is in the stream. The staged rows do not change any more,
whatever happens to the files.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from router.spark.driver.bad_rows import with_place
from router.spark.driver.fitting import FILE, FITS, TEXT, WHY, InputFile, by_shape, open_group
from router.spark.wire.disk import sync_path
from router.spark.wire.errors import SparkFailedError, SparkRefusedError
from router.spark.wire.pipe import Fields

LEFT_OUT_AT_ONCE = 20
"""So often is one more file left out and the rest staged again; then the request fails, and the daemon asks for fewer
files."""


def take(session: Any, request: Mapping[str, Any]) -> dict[str, Any]:
    """Stage the files of a request. Return how many rows went to the file of bad rows, and which files were left out.

    ``bad_rows`` of the source is the path of the file; empty: such rows are refused later, by the daemon."""
    source, fields = request["source"], request["fields"]
    session.conf.set("spark.sql.csv.parser.columnPruning.enabled", "false")  # a column that nobody reads is checked too
    # Above 32 paths Spark would list each file in a task of its own: ten minutes for 10,000 files of this machine.
    session.conf.set("spark.sql.sources.parallelPartitionDiscovery.threshold", "1000000")
    session.conf.set("spark.sql.sources.partitionColumnTypeInference.enabled", "false")
    options = {key: str(value) for key, value in (source.get("options") or {}).items() if value is not None}
    failed: dict[str, str] = {}
    groups = by_shape(source["spark"], options, (InputFile(*file) for file in request["files"]), failed)
    for _ in range(LEFT_OUT_AT_ONCE):
        frame = _open(session, source, fields, groups, failed)
        if frame is None:
            return {"bad": 0, "failed": failed, "staged": False}
        try:
            bad = _write(frame, source, fields, request["staging"])
        except Exception as error:
            path, why = culprit(session, request, error)
            if not any(path in files for files in groups.values()):
                raise
            failed[path] = why
            groups = {shape: rest for shape, files in groups.items() if (rest := [f for f in files if f != path])}
            continue
        return {"bad": bad, "failed": failed, "staged": True}
    raise SparkFailedError(f"{len(failed)} files cannot be read, such as {next(iter(failed.values()))}")


def _open(session: Any, source: Mapping[str, Any], fields: Fields, groups: Any, failed: dict[str, str]) -> Any:
    """Open all groups as one frame; None if none is left. A group with other columns than the stream is left out."""
    frame = None
    for shape, files in list(groups.items()):
        try:
            group = open_group(session, source, fields, shape, files)
            whole = group if frame is None else frame.unionByName(group)
        except Exception as error:
            if not isinstance(error, SparkRefusedError) and type(error).__name__ != "AnalysisException":
                raise
            del groups[shape]
            failed.update({path: f"{path}: {str(error).splitlines()[0]}"[:800] for path in files})
        else:
            frame = whole
    return frame


def _write(frame: Any, source: Mapping[str, Any], fields: Fields, staging: str) -> int:
    """Write what fits, then what does not, if there is any. Return the number of bad rows."""
    from pyspark.sql import Observation
    from pyspark.sql.functions import count_if, expr

    names = [f"`{name}`" for name, _, _ in fields]
    good, target = frame, source.get("bad_rows")
    seen = Observation()
    if target:
        good = frame.observe(seen, count_if(expr(f"not `{FITS}`")).alias("bad")).where(f"`{FITS}`")
    good = good.selectExpr(*names)
    if order := source.get("order_by"):
        good = good.orderBy(*[f"`{name}`" for name in order])
    good.write.mode("overwrite").parquet(staging)
    if not target:
        return 0
    return write_bad_rows(frame, Path(target)) if seen.get["bad"] else _no_bad_rows(Path(target))


def _no_bad_rows(path: Path) -> int:
    """Remove what an attempt before a crash has left under this name: then other files were there."""
    path.unlink(missing_ok=True)
    return 0


def write_bad_rows(frame: Any, path: Path) -> int:
    """Write one line of JSON for each row that does not fit, in one step, synced. Raises SparkFailedError."""
    rows = frame.where(f"not `{FITS}`").selectExpr(f"`{FILE}`", f"`{TEXT}`", f"`{WHY}`")
    new = path.with_name(f".{path.name}.new")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        count = 0
        with new.open("wb") as out:
            for line in _lines(rows):
                out.write(line)
                count += 1
            out.flush()
            os.fsync(out.fileno())
        new.replace(path)
        sync_path(path.parent)
    except OSError as error:
        new.unlink(missing_ok=True)
        raise SparkFailedError(f"bad_rows: {path.parent}: {error.strerror}") from error
    return count


def _lines(rows: Any) -> Iterator[bytes]:
    for file, record, why in rows.toLocalIterator():
        entry = {"file": _path(file), "record": record, "reason": why}
        yield json.dumps(entry, ensure_ascii=False).encode(errors="replace") + b"\n"


def _path(address: str) -> str:
    return unquote(urlsplit(address).path)


def culprit(session: Any, request: Mapping[str, Any], error: Exception) -> tuple[str, str]:
    """Return the file that a job of Spark could not read, and why; an empty path if the error names none."""
    found = re.search(r"reading file (\S+?)[.,]?(?:\s|$)", str(error)) or re.search(r"CSV file: (\S+)", str(error))
    if found is None:
        return "", ""
    path = _path(found[1])
    place = with_place(session, {**request, "source": {**request["source"], "path": f"file:{path}"}}, error)
    causes = [line.strip() for line in str(error).splitlines() if line.strip().startswith("Caused by: ")]
    why = str(place) if place is not error else f"{path}: {(causes or [str(error).splitlines()[0]])[-1]}"
    return path, why[:500]
