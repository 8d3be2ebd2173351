"""``bench durable``: what keeping its word costs, against not keeping it and against the disk itself, in one run.

- throughput of numbered batches of 10,000 tuples with the log on, against the same daemon without one
- bytes a second into the log, against plain sequential write + fdatasync of as many bytes at a time
- how long a client waits for its acknowledgement, against one plain write + fdatasync
- spilling and reading back, against plain sequential writing and reading
- recovery of 1,000,000 logged tuples, against the rate at which they came in
- how far a checkpoint of 100 MB of window state lengthens latency while it runs
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from threading import Thread

import numpy as np

from catalog.schema import Schema
from engine.bench import workload
from engine.bench.harness import BenchError, Options, child, interleave
from engine.bench.report import Result
from engine.daemon import Daemon
from engine.durable.committer import GROUP_AT_MOST_BYTES
from engine.load import load_network
from engine.tuning import tune_process
from storage.checkpoint import KEPT
from storage.encode import encode_train
from storage.files import RealFiles
from storage.log import Log
from storage.spill import SpillFiles
from storage.train import Train, constant_ns

BATCH_TUPLES = 10_000
WINDOW = 64
RECOVERED_TUPLES = 1_000_000
STATE_KEYS = 1_000_000
LOG_OVER_NONE = 0.6
LOG_OVER_DISK = 0.5
SPILL_OVER_DISK = 0.5
RECOVERY_OVER_LIVE = 0.5
CHECKPOINT_P99_MS = 20.0
MIB = 1024**2
SEQUENTIAL_BYTES = 4 * MIB


def network(format: str, data_dir: str | None) -> str:
    data = "" if data_dir is None else f", data_dir: {data_dir}, checkpoint: 1h"
    lines = [
        f"engine: {{workers: 1, memory: 512MiB{data}}}",
        'http: {listen: "off"}',
        "streams:",
        "  rows:",
        "    schema: {seq: bigint, symbol: string, price: double, size: int}",
        f"    source: {{tcp: 127.0.0.1:0, format: {format}}}",
        "    overload: block",
        "boxes:",
        *workload.chain_boxes("q0", "rows", workload.bounds(0)),
        "outputs:",
        f"  out: {{from: q0_{workload.FILTERS - 1}}}",
    ]
    return "\n".join(lines) + "\n"


@contextmanager
def running(text: str) -> Iterator[Daemon]:
    daemon = Daemon(load_network(text, {}))
    daemon.start()
    try:
        yield daemon
    finally:
        daemon.stop(10.0)


def send(daemon: Daemon, format: str, ack: str, tuples: int, count: int, window: int) -> dict[str, float]:
    """Until everything is acknowledged and has come out; what the sender says, with the rate to that point."""
    port = daemon.server.address("stream rows")[1]
    with child("engine.bench.batches", port, format, ack, tuples, count, window) as sender:
        sender.answer()
        begun = time.perf_counter()
        sender.say("go")
        said: dict[str, float] = sender.answer()
    if not daemon.engine.drain(60):
        raise BenchError("tuples are left in the engine")
    said["tuples_per_s"] = said["tuples"] / (time.perf_counter() - begun)
    return said


# -- the log ----------------------------------------------------------------------------------------------------------


def log_against_none(format: str, options: Options, folder: Path) -> Iterator[Result]:
    count = {"ndjson": 60, "arrow": 200}[format] // (4 if options.quick else 1)
    with running(network(format, None)) as off, running(network(format, str(folder / format))) as on:
        assert on.keeper is not None
        keeper = on.keeper
        disk_rates: list[float] = []

        def logged() -> float:
            before = keeper.log.committed_bytes
            said = send(on, format, "disk", BATCH_TUPLES, count, WINDOW)
            log_rates.append((keeper.log.committed_bytes - before) / said["seconds"])
            return said["tuples_per_s"]

        def disk() -> float:
            disk_rates.append(sequential(folder, 64 * MIB))
            return 0.0

        log_rates: list[float] = []
        rates = interleave(
            {
                "disk": disk,
                "off": lambda: send(off, format, "memory", BATCH_TUPLES, count, WINDOW)["tuples_per_s"],
                "on": logged,
            },
            options.rounds,
        )
    case = f"log=on,format={format},train={BATCH_TUPLES}"
    yield Result("durable", case, "tuples_per_s", max(rates["on"]), max(rates["off"]), at_least=LOG_OVER_NONE)
    # ndjson cannot fill a disk: its decoder is the limit. The fast lane can.
    at_least = LOG_OVER_DISK if format == "arrow" else None
    yield Result("durable", f"{case},baseline=disk", "bytes_per_s", max(log_rates), max(disk_rates), at_least=at_least)


def sequential(folder: Path, size: int, piece: int = SEQUENTIAL_BYTES) -> float:
    """The disk's own rate: so many bytes, each piece synced; bytes a second."""
    data = os.urandom(piece)
    path = folder / "plain"
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    try:
        begun = time.perf_counter()
        for _ in range(size // piece):
            os.write(fd, data)
            os.fdatasync(fd)
        return size / (time.perf_counter() - begun)
    finally:
        os.close(fd)
        path.unlink()


def raw_log(options: Options, folder: Path) -> Result:
    """The log without anything around it, in groups of the size that the disk is given."""
    trains = workload.trains(4, BATCH_TUPLES)

    def logged() -> float:
        log = Log(RealFiles(tempfile.mkdtemp(dir=folder)))
        log.open()
        begun = time.perf_counter()
        before = log.committed_bytes
        while log.committed_bytes - before < 64 * MIB:
            while log.group_bytes < SEQUENTIAL_BYTES:
                log.append(1, encode_train(trains[log.commits % 4]))
            log.commit()
        rate = (log.committed_bytes - before) / (time.perf_counter() - begun)
        log.close()
        return rate

    rates = interleave({"disk": lambda: sequential(folder, 64 * MIB), "log": logged}, options.rounds)
    return Result(
        "durable",
        "log=alone,baseline=disk",
        "bytes_per_s",
        max(rates["log"]),
        max(rates["disk"]),
        at_least=LOG_OVER_DISK,
    )


def fed_log(options: Options, folder: Path) -> Result:
    """The whole way through the daemon but for the socket and its decoder: log, sync, admit, five filters."""
    trains = workload.trains(8, BATCH_TUPLES)
    count = 100 if options.quick else 400
    with running(network("arrow", str(folder / "fed"))) as daemon:
        assert daemon.keeper is not None
        keeper = daemon.keeper

        def fed() -> float:
            before, begun = keeper.log.committed_bytes, time.perf_counter()
            for n in range(count):
                daemon.feed("rows", trains[n % len(trains)])
            while not keeper.is_settled:
                time.sleep(0.0005)
            rate = (keeper.log.committed_bytes - before) / (time.perf_counter() - begun)
            daemon.engine.drain(60)
            return rate

        # The disk is given as much, in pieces as large as the groups of a log that cannot keep up.
        size = count * trains[0].nbytes // GROUP_AT_MOST_BYTES * GROUP_AT_MOST_BYTES
        disk = lambda: sequential(folder, size, GROUP_AT_MOST_BYTES)  # noqa: E731
        rates = interleave({"disk": disk, "fed": fed}, options.rounds)
    case = f"log=on,fed,train={BATCH_TUPLES},baseline=disk"
    return Result("durable", case, "bytes_per_s", max(rates["fed"]), max(rates["disk"]), at_least=LOG_OVER_DISK)


def ack_latency(options: Options, folder: Path) -> Iterator[Result]:
    count = 100 if options.quick else 400
    plain = [1.0 / sequential(folder, 4_096 * 50, 4_096) * 4_096 for _ in range(options.rounds)]
    with running(network("ndjson", str(folder / "ack"))) as daemon:
        said = send(daemon, "ndjson", "disk", 1, count, 1)
        shared = send(daemon, "ndjson", "disk", 1, count * 4, 32)
    baseline = median(plain) * 1e3
    yield Result("durable", "ack=disk,clients=1,tuples=1", "p50_ms", said["p50_s"] * 1e3, baseline, at_most=3.0)
    yield Result("durable", "ack=disk,clients=1,tuples=1", "p99_ms", said["p99_s"] * 1e3, baseline)
    yield Result("durable", "ack=disk,window=32,tuples=1", "p50_ms", shared["p50_s"] * 1e3, baseline)


# -- spilling ---------------------------------------------------------------------------------------------------------


def spill(options: Options, folder: Path) -> Iterator[Result]:
    trains = workload.trains(8, BATCH_TUPLES)
    block = trains[:4]
    count = 16 if options.quick else 96
    read_rates: dict[str, list[float]] = {"plain": [], "spill": []}

    def spilled() -> float:
        files = SpillFiles(RealFiles(str(folder)), "spilled")
        files.open()
        begun = time.perf_counter()
        refs = [files.write(block) for _ in range(count)]
        files.sync()
        rate = files.written_bytes / (time.perf_counter() - begun)
        begun = time.perf_counter()
        for ref in refs:
            files.read(ref, workload.SCHEMA)
        read_rates["spill"].append(files.read_bytes / (time.perf_counter() - begun))
        for ref in refs:
            files.release(ref)
        files.close()
        return rate

    def plain() -> float:
        size = count * sum(t.nbytes for t in block)
        path = folder / "plain"
        data = os.urandom(MIB)
        with path.open("wb", buffering=0) as file:
            begun = time.perf_counter()
            for _ in range(size // MIB):
                file.write(data)
            os.fdatasync(file.fileno())
            rate = size / (time.perf_counter() - begun)
        with path.open("rb", buffering=0) as file:
            begun = time.perf_counter()
            while file.read(MIB):
                pass
            read_rates["plain"].append(size / (time.perf_counter() - begun))
        path.unlink()
        return rate

    rates = interleave({"plain": plain, "spill": spilled}, options.rounds)
    yield Result(
        "durable", "spill=out", "bytes_per_s", max(rates["spill"]), max(rates["plain"]), at_least=SPILL_OVER_DISK
    )
    # What was just written is in the kernel's memory for both; against a disk that must be read the ratio is nearer 1.
    yield Result("durable", "spill=back,cached", "bytes_per_s", max(read_rates["spill"]), max(read_rates["plain"]))
    yield Result(
        "durable", "spill=back,baseline=disk", "bytes_per_s", max(read_rates["spill"]), max(rates["plain"]),
        at_least=SPILL_OVER_DISK,
    )  # fmt: skip


# -- recovery ---------------------------------------------------------------------------------------------------------


def recovery(options: Options, folder: Path) -> Result:
    """Live: through a socket, logged, acknowledged, processed. Recovery: the same tuples out of the log."""
    total = RECOVERED_TUPLES // (4 if options.quick else 1)
    text = network("ndjson", str(folder / "recovery"))
    with running(text) as daemon:
        live = send(daemon, "ndjson", "disk", BATCH_TUPLES, total // BATCH_TUPLES, WINDOW)["tuples_per_s"]
        daemon.failed = True  # ends without a checkpoint, as if it had been killed
    daemon = Daemon(load_network(text, {}))
    begun = time.perf_counter()
    daemon.start()
    seconds = time.perf_counter() - begun
    found = daemon.keeper.recovered if daemon.keeper is not None else None
    daemon.stop(10.0)
    if found is None or found.tuples != total:
        raise BenchError(f"{found} of {total} tuples were recovered")
    return Result(
        "durable", f"recovery,tuples={total}", "tuples_per_s", total / seconds, live, at_least=RECOVERY_OVER_LIVE
    )


# -- checkpoints ------------------------------------------------------------------------------------------------------

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


class Probe:
    """Sends one tuple a millisecond through the log and a filter, and notes how long each took."""

    def __init__(self, daemon: Daemon) -> None:
        self._daemon = daemon
        self._schema = Schema.of(sent="bigint")
        self.waits: list[float] = []
        daemon.subscribe("out", self._take)

    def _take(self, train: Train) -> None:
        now_ns = time.perf_counter_ns()
        self.waits += [(now_ns - sent) / 1e6 for sent in train.columns[0].tolist()]

    def run(self, seconds: float, during: Callable[[], None] | None = None) -> float:
        """The p99 in milliseconds, while ``during`` runs beside it if given."""
        self.waits = []
        beside = Thread(target=during, name="bench-checkpoint") if during is not None else None
        end = time.perf_counter() + seconds
        if beside is not None:
            beside.start()
        while time.perf_counter() < end or (beside is not None and beside.is_alive()):
            sent = np.array([time.perf_counter_ns()], np.int64)
            self._daemon.feed("live", Train(self._schema, (sent,), constant_ns(time.time_ns(), 1)))
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
            daemon.feed("big", Train(schema, columns, constant_ns(time.time_ns(), len(k))))
        while not keeper.is_settled:
            time.sleep(0.01)
        daemon.engine.drain(60)
        state_bytes = sum(r.state_bytes for r in daemon.engine.box_readings())
        probe = Probe(daemon)
        probe.run(0.5)
        quiet = [probe.run(1.0) for _ in range(options.rounds)]

        def one() -> None:
            keeper.life += "x"  # so that every part counts as changed
            if not keeper.checkpoint():
                raise BenchError("a checkpoint failed")

        busy = [probe.run(0.5, one) for _ in range(options.rounds)]
        pause_ms = keeper.checkpoint_pause_s * 1e3
        written = sum(f.stat().st_size for f in (folder / "state/checkpoint").glob("*.part")) // KEPT
    more_ms = median(busy) - median(quiet)
    case = f"checkpoint,state={state_bytes // MIB}MiB,written={written // MIB}MiB"
    yield Result("durable", case, "p99_more_ms", max(more_ms, 0.0), CHECKPOINT_P99_MS, at_most=1.0)
    yield Result("durable", case, "scheduler_held_ms", pause_ms)


def run(options: Options) -> Iterator[Result]:
    tune_process()
    with tempfile.TemporaryDirectory(prefix="aurorad-bench-") as name:
        folder = Path(name)
        yield raw_log(options, folder)
        yield fed_log(options, folder)
        for format in ("ndjson", "arrow"):
            yield from log_against_none(format, options, folder)
        yield from ack_latency(options, folder)
        yield from spill(options, folder)
        yield recovery(options, folder)
        yield from checkpoint(options, folder)
