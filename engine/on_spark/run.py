"""Run a network on Spark until its sources end or a signal comes."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Any

from engine.on_spark.batches import BatchRunner
from engine.on_spark.checkpoint import SparkQuery
from engine.on_spark.plan import SparkPlan
from engine.on_spark.shipping import add_client, check_executors, ship
from engine.on_spark.sources import open_streams
from engine.on_spark.store import CheckpointStore
from router.spark.wire.errors import SparkFailedError

log = logging.getLogger("aurorad.on_spark")

NEEDED = {
    "spark.sql.ansi.enabled": "false",  # the meaning of our expressions
    "spark.sql.caseSensitive": "true",  # fields may differ in case only
    "spark.sql.adaptive.enabled": "false",  # a shard is a partition: Spark must not join partitions
    "spark.sql.session.timeZone": "UTC",
}
WAIT_SECONDS = 0.5


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
    batches = BatchRunner(session, plan, store, query.name, query.shards, now_ns)
    with batches.log.owned():
        ship(session)
        check_executors(session, context.defaultParallelism)
        if any(getattr(stream.source, "spark", "") == "aurorad" for stream in plan.network.streams):
            add_client(session)
        writer = open_streams(session, plan.network).writeStream.foreachBatch(batches)
        writer = writer.option("checkpointLocation", store.address("spark")).queryName(query.name)
        ways = {"availableNow": True} if once else {"processingTime": f"{int(every_s * 1e3)} ms"}
        log.info("query %s runs on %s with %d shards", query.name, context.master, query.shards)
        _wait(writer.trigger(**ways).start(), batches, stop)
        if once and not stop.is_set():
            batches.end()
    return batches


def _wait(running: Any, batches: BatchRunner, stop: threading.Event) -> None:
    """Wait until the query ends, and stop it when ``stop`` comes."""
    try:
        while running.isActive and not stop.is_set():
            stop.wait(WAIT_SECONDS)
    finally:
        failure = batches.failure  # before the stop: a batch that it cuts off runs again, and is no failure
        if running.isActive:
            running.stop()
    if failure is not None:
        raise failure
    if (error := running.exception()) is not None and not stop.is_set():
        raise SparkFailedError(str(error).splitlines()[0])
