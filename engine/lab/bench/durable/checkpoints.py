"""Recovery from the log, and the latency that a checkpoint adds."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from threading import Thread

import numpy as np

from catalog.schema import Schema
from engine.daemon.daemon import Daemon
from engine.lab.bench.durable.daemons import BATCH_TUPLES, MIB, WINDOW, network, running, send
from engine.lab.bench.harness import BenchError, Options
from engine.lab.bench.report import Result
from engine.run.network_file import read_network
from storage.checkpoint import KEPT
from storage.train import Train, constant_ns

RECOVERED_TUPLES = 1_000_000
STATE_KEYS = 1_000_000
RECOVERY_OVER_LIVE = 0.5
CHECKPOINT_P99_MS = 20.0

STATE = """
engine: {{workers: 2, memory: 512MiB, data_dir: {data}, checkpoint: 1h}}
http: {{listen: "off"}}
streams:
  big: {{schema: {{ts: timestamp, k: bigint, v: double}}, time: ts}}
  live: {{schema: {{sent: bigint}}}}
boxes:
  held:
    aggregate: big
    window: {{tumbling: 1d}}
    by: [k]
    select: {{s: "sum(v)", n: "count(*)", lo: "min(v)", hi: "max(v)"}}
  pass: {{filter: live, where: "sent > 0"}}
outputs:
  sums: {{from: held}}
  out: {{from: pass}}
"""


def recovery(options: Options, folder: Path) -> Result:
    """Compare recovery from the log with the live rate of the same tuples: socket, log, acknowledgement, processing."""
    total = RECOVERED_TUPLES // (4 if options.quick else 1)
    text = network("ndjson", str(folder / "recovery"))
    with running(text) as daemon:
        live = send(daemon, "ndjson", "disk", BATCH_TUPLES, total // BATCH_TUPLES, WINDOW)["tuples_per_s"]
        daemon.failed = True  # stop without a checkpoint, as after a kill
    daemon = Daemon(read_network(text, {}))
    begun = time.perf_counter()
    daemon.start()
    seconds = time.perf_counter() - begun
    found = daemon.keeper.recovered if daemon.keeper is not None else None
    daemon.stop(10.0)
    if found is None or found.tuples != total:
        raise BenchError(f"recovered {found} instead of {total} tuples")
    return Result(
        "durable", f"recovery,tuples={total}", "tuples_per_s", total / seconds, live, at_least=RECOVERY_OVER_LIVE
    )


class LatencyProbe:
    """Send one tuple a millisecond through the log and a filter, and record the latency of each."""

    def __init__(self, daemon: Daemon) -> None:
        self._daemon = daemon
        self._schema = Schema.of(sent="bigint")
        self.waits: list[float] = []
        daemon.subscribe("out", self._take)

    def _take(self, train: Train) -> None:
        now_ns = time.perf_counter_ns()
        self.waits += [(now_ns - sent) / 1e6 for sent in train.columns[0].tolist()]

    def run(self, seconds: float, during: Callable[[], None] | None = None) -> float:
        """Return the p99 in milliseconds, while ``during`` runs on another thread if given."""
        self.waits = []
        beside = Thread(target=during, name="bench-checkpoint") if during is not None else None
        end = time.perf_counter() + seconds
        if beside is not None:
            beside.start()
        while time.perf_counter() < end or (beside is not None and beside.is_alive()):
            sent = np.array([time.perf_counter_ns()], np.int64)
            self._daemon.ingress.admit(
                self._daemon.network.stream("live").number, Train(self._schema, (sent,), constant_ns(time.time_ns(), 1))
            )
            time.sleep(0.001)
        if beside is not None:
            beside.join()
        self._daemon.engine.drain(10)
        return float(np.quantile(self.waits, 0.99))


def checkpoint(options: Options, folder: Path) -> Iterator[Result]:
    keys = STATE_KEYS // (4 if options.quick else 1)
    with running(STATE.format(data=folder / "state")) as daemon:
        assert daemon.keeper is not None
        keeper = daemon.keeper
        schema = daemon.network.stream("big").schema
        for start in range(0, keys, 100_000):
            k = np.arange(start, min(start + 100_000, keys))
            columns = (np.full(len(k), 10**18, np.int64), k, k * 0.5)
            daemon.ingress.admit(
                daemon.network.stream("big").number, Train(schema, columns, constant_ns(time.time_ns(), len(k)))
            )
        while not keeper.is_settled:
            time.sleep(0.01)
        daemon.engine.drain(60)
        state_bytes = sum(r.state_bytes for r in daemon.engine.readings.boxes())
        probe = LatencyProbe(daemon)
        probe.run(0.5)
        quiet = [probe.run(1.0) for _ in range(options.rounds)]

        def one() -> None:
            keeper.checkpointer.life += "x"  # so that the checkpoint writes every part, as if all had changed
            if not keeper.checkpointer.make():
                raise BenchError("a checkpoint failed")

        busy = [probe.run(0.5, one) for _ in range(options.rounds)]
        pause_ms = keeper.checkpointer.pause_s * 1e3
        written = sum(f.stat().st_size for f in (folder / "state/checkpoint").glob("*.part")) // KEPT
    more_ms = median(busy) - median(quiet)
    case = f"checkpoint,state={state_bytes // MIB}MiB,written={written // MIB}MiB"
    yield Result("durable", case, "p99_more_ms", max(more_ms, 0.0), CHECKPOINT_P99_MS, at_most=1.0)
    yield Result("durable", case, "scheduler_held_ms", pause_ms)
