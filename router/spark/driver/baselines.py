"""Plain Spark, as a user would write it: the baselines of ``aurorad bench spark``, timed inside the driver."""

from __future__ import annotations

import shutil
import time
from typing import Any


def to_arrow(session: Any, request: dict[str, Any]) -> dict[str, Any]:
    begun = time.perf_counter()
    rows = session.read.format("parquet").load(request["path"]).toArrow().num_rows
    return {"rows": rows, "seconds": time.perf_counter() - begun}


def plain_write(session: Any, request: dict[str, Any]) -> dict[str, Any]:
    """Write an Arrow table that is in memory, by two tasks."""
    import pyarrow.parquet as pq

    table = pq.read_table(request["path"])
    session = session.newSession()
    session.conf.set("spark.sql.execution.arrow.localRelationThreshold", "48MB")  # the default of Spark
    shutil.rmtree(request["out"], ignore_errors=True)
    begun = time.perf_counter()
    session.createDataFrame(table).coalesce(2).write.parquet(request["out"])
    return {"rows": table.num_rows, "seconds": time.perf_counter() - begun}
