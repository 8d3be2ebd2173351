"""Draining: everything that was read goes out before the process ends.

The order is that of a tuple's way: bytes that are being decoded, the log, the engine, the readers' sockets, Spark's
sinks. Each step waits until its part is empty. Nothing new comes behind it, because the daemon has stopped reading. All
steps share one deadline.
"""

from __future__ import annotations

from time import monotonic, sleep
from typing import TYPE_CHECKING

from engine.daemon.io_loop import IoLoop
from engine.run.core import Engine
from router.server import Server
from router.spark.daemon.pipeline import SparkPipeline

if TYPE_CHECKING:
    from engine.daemon.durable.keeper import Keeper

POLL_SECONDS = 0.002


def drain(
    io: IoLoop, server: Server, keeper: Keeper | None, engine: Engine, spark: SparkPipeline, deadline: float
) -> bool:
    """Wait until every tuple that was read is out. False when ``deadline``, on the monotonic clock, came first."""
    while server.is_decoding or (keeper is not None and not keeper.is_settled):
        if monotonic() > deadline:
            return False
        sleep(POLL_SECONDS)
    if not engine.drain(deadline - monotonic()):
        return False
    if not io.run(server.flush(max(0.0, deadline - monotonic()))):
        return False
    return spark.flush(max(0.0, deadline - monotonic()))


def describe_backlog(engine: Engine, server: Server) -> str:
    """Say how many tuples are not out yet, and where they wait."""
    waiting = sum(queue.tuples for queue in engine.storage.queues)
    pending = sum(s.pending for outlet in server.outlets for s in outlet.readings())
    return f"{waiting} tuples wait in queues, {pending} for slow readers"
