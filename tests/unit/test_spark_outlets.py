"""The writer of a sink: what becomes one commit. Nothing is committed here, so no JVM starts."""

from __future__ import annotations

from pathlib import Path
from threading import Thread

import numpy as np
import pytest

from catalog.config.models import SparkSink
from engine.run.network_file import read_network
from router.spark.daemon.committer import SinkCommitter
from router.spark.daemon.host import SparkHost
from router.spark.daemon.outlets import BATCH_ROWS, SinkOutlet
from storage.train import Train, constant_ns
from tests.e2e.daemon import wait_for

NETWORK = """
http: {listen: "off"}
streams: {s: {schema: {x: bigint}}}
outputs: {o: {from: s, sink: {spark: parquet, path: out, every: 1h}}}
"""


def test_a_flush_makes_one_commit_of_all_that_waits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two would be two jobs for Spark, one after the other, and twice as many files."""
    monkeypatch.setattr(SinkCommitter, "start", lambda self, segments: None)
    [output] = read_network(NETWORK, {}).outputs
    assert isinstance(output.sink, SparkSink)
    outlet = SinkOutlet(output, output.sink, tmp_path, SparkHost(), lambda number, blocked: None)
    assert outlet.queue is not None
    for _ in range(5):
        x = np.arange(BATCH_ROWS)
        outlet.queue.deliver(Train(output.schema, (x,), constant_ns(1, BATCH_ROWS)))
    flush = Thread(target=outlet.flush, args=(2.0,))
    flush.start()
    wait_for(lambda: outlet._flushing, "the flush has begun")
    outlet.open()  # with all of it waiting
    try:
        wait_for(lambda: outlet.segments.sealed_rows == 5 * BATCH_ROWS, "all of it is sealed")
        assert len(outlet.segments.sealed) == 1
    finally:
        flush.join()
        outlet.close()
