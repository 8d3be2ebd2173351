"""Run a network on Spark until its sources end or a signal comes."""

from __future__ import annotations

import json
import logging
import secrets
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from engine.on_spark.batches import BatchRunner
from engine.on_spark.plan import SparkPlan
from engine.on_spark.shipping import archive, check_executors
from engine.on_spark.sources import open_streams
from engine.on_spark.stage_spec import stage_texts
from engine.on_spark.store import CheckpointStore, SparkCheckpointError
from router.spark.wire.errors import SparkFailedError

log = logging.getLogger("aurorad.on_spark")

NEEDED = {
    "spark.sql.ansi.enabled": "false",  # the meaning of our expressions
    "spark.sql.caseSensitive": "true",  # fields may differ in case only
    "spark.sql.adaptive.enabled": "false",  # a shard is a partition: Spark must not join partitions
    "spark.sql.session.timeZone": "UTC",
}
WAIT_SECONDS = 0.5
FORMAT = 1


class SparkQuery:
    """The facts of a query that stay as long as its checkpoint: its name, its shards, its boxes."""

    def __init__(self, plan: SparkPlan, store: CheckpointStore, shards: int | None, cores: int) -> None:
        known = json.loads(store.read("query.json")) if store.has("query.json") else None
        if known is None:
            self.shards = shards or max(1, cores)
            self.name = f"q{secrets.token_hex(6)}"
            facts = {"format": FORMAT, "query": self.name, "shards": self.shards}
            facts["stages"] = stage_texts(plan, self.shards)
            store.write("query.json", json.dumps(facts).encode())
            store.sync(["query.json"])
            return
        self.shards, self.name = known["shards"], known["query"]
        if shards is not None and shards != self.shards:
            raise SparkCheckpointError(
                f"the checkpoint {store.place} has {self.shards} shards, not {shards}: its state is divided by them; "
                "begin with another checkpoint"
            )
        if known["format"] != FORMAT or known["stages"] != stage_texts(plan, self.shards):
            raise SparkCheckpointError(
                f"the checkpoint {store.place} is that of another network: begin with another one, or go back"
            )


def run_query(
    session: Any,
    plan: SparkPlan,
    checkpoint: str,
    *,
    shards: int | None,
    once: bool,
    every_s: float,
    stop: threading.Event,
    now_ns: Callable[[], int] = time.time_ns,
) -> BatchRunner:
    """Run the network on a session until it ends. Raises SparkError and SparkCheckpointError."""
    context = session.sparkContext
    store = CheckpointStore(checkpoint)
    query = SparkQuery(plan, store, shards, context.defaultParallelism)
    ship(session)
    check_executors(session, context.defaultParallelism)
    batches = BatchRunner(session, plan, store, query.name, query.shards, now_ns)
    writer = open_streams(session, plan.network).writeStream.foreachBatch(batches)
    writer = writer.option("checkpointLocation", store.address("spark")).queryName(query.name)
    trigger = writer.trigger(availableNow=True) if once else writer.trigger(processingTime=f"{int(every_s * 1e3)} ms")
    log.info("query %s runs on %s with %d shards", query.name, context.master, query.shards)
    running = trigger.start()
    try:
        while running.isActive and not stop.is_set():
            stop.wait(WAIT_SECONDS)
    finally:
        if running.isActive:
            running.stop()
    if batches.failure is not None:
        raise batches.failure
    if (error := running.exception()) is not None and not stop.is_set():
        raise SparkFailedError(str(error).splitlines()[0])
    if once and not stop.is_set():
        batches.end()
    return batches


def ship(session: Any) -> None:
    """Give our packages to the executors, once for a session."""
    if getattr(session, "_aurorad_shipped", False):
        return
    context = session.sparkContext
    context.addPyFile(str(archive(Path(context._temp_dir))))  # Spark serves it from there, and removes it at its end
    session._aurorad_shipped = True
