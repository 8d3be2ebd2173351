"""The long version of the tests that kill JVMs: SIGKILL at random moments of an ingest and of a sink, many times.

    python -m tests.spark.kills [--kills 20] [--rows 2000000] [--seed 1]

Every ingest is compared with DuckDB over the same files, the sink with what was fed. A live stream runs beside it
all, and its p99 is shown with the JVM alone and in the quarter of a second around a kill. Exit code 1 when anything
is lost or there twice. Not in ``make test``: twenty JVMs take their time.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import tempfile
import threading
import time
from pathlib import Path

import duckdb
import numpy as np

from engine.daemon.daemon import Daemon
from engine.run.network_file import read_network
from engine.run.tuning import tune_process
from router.spark.daemon import outlets
from router.spark.daemon.host import SparkHost
from storage.train import Train
from tests.e2e.daemon import TRADES, wait_for
from tests.spark.conftest import QUICK
from tests.spark.data import write_parquet

LIVE = "{seq: bigint}"
AROUND_SECONDS = 0.25
SEGMENT_BYTES = 200_000  # so small that segments pile up behind a kill, and are prepared while others are committed


class Live:
    """A stream with a tuple every two milliseconds, and how long each took."""

    def __init__(self, daemon: Daemon) -> None:
        self.daemon = daemon
        self.samples: list[tuple[float, int]] = []
        self.stopped = threading.Event()
        daemon.subscribe("live_out", self._take)
        self.thread = threading.Thread(target=self._feed)
        self.thread.start()

    def _take(self, train: Train) -> None:
        self.samples.append((time.monotonic(), self.daemon.now_ns() - int(train.arrival_ns[0])))

    def _feed(self) -> None:
        schema = self.daemon.network.stream("live").schema
        number = 0
        while not self.stopped.wait(0.002):
            self.daemon.ingress.admit(
                self.daemon.network.stream("live").number,
                Train.from_pylists(schema, {"seq": [number]}, self.daemon.now_ns()),
            )
            number += 1

    def stop(self) -> None:
        self.stopped.set()
        self.thread.join()

    def report(self, kills: list[float]) -> str:
        near = [ns for at, ns in self.samples if any(abs(at - kill) < AROUND_SECONDS for kill in kills)]
        rest = [ns for at, ns in self.samples if all(abs(at - kill) >= AROUND_SECONDS for kill in kills)]
        if not near or not rest:
            return "no live tuples"
        return f"live p99 {np.quantile(rest, 0.99) / 1e6:.2f} ms, around a kill {np.quantile(near, 0.99) / 1e6:.2f} ms"


def ingest(kills: int, rows: int, rng: np.random.Generator, work: Path) -> bool:
    folder = write_parquet(work / "in", 4, rows // 4)
    [wanted] = duckdb.sql(f"select count(*), sum(size), sum(price * size) from '{folder}/*.parquet'").fetchall()
    text = f"""
http: {{listen: "off"}}
streams:
  trades: {{schema: {TRADES}, source: {{spark: parquet, path: {folder}}}}}
  live: {{schema: {LIVE}}}
outputs:
  out: {{from: trades}}
  live_out: {{from: live}}
"""
    good, done, jobs = True, 0, 0
    while done < kills:
        host = SparkHost("local[2]", QUICK, nice=0)
        daemon = Daemon(read_network(text, {}), spark=host)
        totals = [0, 0, 0.0]

        def take(train: Train, totals: list[float] = totals) -> None:
            totals[0] += train.count
            totals[1] += int(train.columns[3].sum())
            totals[2] += float((train.columns[2] * train.columns[3]).sum())

        daemon.subscribe("out", take)
        daemon.start()
        live, times = Live(daemon), []
        try:
            while daemon.spark.is_reading and done < kills:
                before = daemon.spark.intake.counts[0].received
                time.sleep(float(rng.random()) * 0.5)
                pid = host.jvm_pid
                if pid is not None and daemon.spark.intake.counts[0].received > before:
                    os.kill(pid, signal.SIGKILL)
                    times.append(time.monotonic())
                    done += 1
                    wait_for(lambda host=host, pid=pid: host.jvm_pid != pid, "the loss is noticed", 60)
            wait_for(lambda daemon=daemon: not daemon.spark.is_reading, "the job ends", 600)
            assert daemon.engine.drain(60)
        finally:
            live.stop()
            daemon.stop()
            host.stop()
        jobs += 1
        same = totals[:2] == list(wanted[:2]) and abs(totals[2] - wanted[2]) < 1e-6 * wanted[2]
        good &= same and not daemon.spark.failures
        print(f"ingest job {jobs}: {len(times)} kills, {totals[0]:,} of {wanted[0]:,} rows, "
              f"{'exact' if same else 'NOT EXACT'}; {live.report(times)}", flush=True)  # fmt: skip
    return good


def sink(kills: int, rng: np.random.Generator, work: Path) -> bool:
    out = work / "out"
    text = f"""
http: {{listen: "off"}}
streams:
  numbers: {{schema: {{n: bigint}}}}
  live: {{schema: {LIVE}}}
outputs:
  archive: {{from: numbers, sink: {{spark: parquet, path: {out}, every: 300ms}}}}
  live_out: {{from: live}}
"""
    outlets.SEGMENT_BYTES = SEGMENT_BYTES
    host = SparkHost("local[2]", QUICK, nice=0)
    daemon = Daemon(read_network(text, {}), spark=host)
    daemon.start()
    live, times, sent = Live(daemon), [], 0
    schema = daemon.network.stream("numbers").schema
    outlet = daemon.spark.sinks[0]
    try:
        while len(times) < kills:
            committed, until = outlet.commits, time.monotonic() + float(rng.random()) * 3
            while time.monotonic() < until or outlet.commits == committed:
                data = {"n": list(range(sent, sent + 1_000))}
                daemon.ingress.admit(
                    daemon.network.stream("numbers").number, Train.from_pylists(schema, data, daemon.now_ns())
                )
                sent += 1_000
                time.sleep(0.01)
            if (pid := host.jvm_pid) is not None:
                os.kill(pid, signal.SIGKILL)
                times.append(time.monotonic())
                wait_for(lambda pid=pid: host.jvm_pid != pid, "the loss is noticed", 60)
        assert daemon.engine.drain(60)
        assert daemon.spark.flush(300)
    finally:
        live.stop()
        daemon.stop()
        host.stop()
    [(rows, distinct, total)] = duckdb.sql(
        f"select count(*), count(distinct n), sum(n) from '{out}/*.parquet'"
    ).fetchall()
    same = rows == distinct == sent and total == sent * (sent - 1) // 2
    print(f"sink: {len(times)} kills, {rows:,} of {sent:,} rows in {len(list(out.glob('*.parquet')))} files, "
          f"{'exact' if same else 'NOT EXACT'}; {live.report(times)}", flush=True)  # fmt: skip
    return same


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    tune_process()
    rng = np.random.default_rng(options.seed)
    with tempfile.TemporaryDirectory() as work:
        good = sink(options.kills, rng, Path(work, "sink"))
        good &= ingest(options.kills, options.rows, rng, Path(work, "ingest"))
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
