"""What ``aurorad bench spark`` compares with: plain Spark, as anybody would write it, timed where it runs."""

from __future__ import annotations

import shutil
import time
from typing import Any


def to_arrow(session: Any, request: dict[str, Any]) -> dict[str, Any]:
    begun = time.perf_counter()
    rows = session.read.format("parquet").load(request["path"]).toArrow().num_rows
    return {"rows": rows, "seconds": time.perf_counter() - begun}


def plain_write(session: Any, request: dict[str, Any]) -> dict[str, Any]:
    """An Arrow table that is in memory, written by two tasks."""
    import pyarrow.parquet as pq

    table = pq.read_table(request["path"])
    session = session.newSession()
    session.conf.set("spark.sql.execution.arrow.localRelationThreshold", "48MB")  # Spark's own default, not ours
    shutil.rmtree(request["out"], ignore_errors=True)
    begun = time.perf_counter()
    session.createDataFrame(table).coalesce(2).write.parquet(request["out"])
    return {"rows": table.num_rows, "seconds": time.perf_counter() - begun}
