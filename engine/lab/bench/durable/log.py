"""The log and its acknowledgements, against a daemon without a log and against the disk alone."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median

from engine.daemon.durable.committer import GROUP_AT_MOST_BYTES
from engine.lab.bench import workload
from engine.lab.bench.durable.daemons import (
    BATCH_TUPLES,
    MIB,
    SEQUENTIAL_BYTES,
    WINDOW,
    network,
    running,
    send,
    sequential,
)
from engine.lab.bench.harness import Options, interleave
from engine.lab.bench.report import Result
from storage.encode import encode_train
from storage.files import RealFiles
from storage.log import Log

LOG_OVER_NONE = 0.6
LOG_OVER_DISK = 0.5


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
    # With ndjson the decoder is slower than the disk, so only arrow has a goal here.
    at_least = LOG_OVER_DISK if format == "arrow" else None
    yield Result("durable", f"{case},baseline=disk", "bytes_per_s", max(log_rates), max(disk_rates), at_least=at_least)


def raw_log(options: Options, folder: Path) -> Result:
    """Measure the log alone, with commits of the size that the disk gets."""
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
    """Measure the whole daemon without socket and decoder: log, sync, admission, five filters."""
    trains = workload.trains(8, BATCH_TUPLES)
    count = 100 if options.quick else 400
    with running(network("arrow", str(folder / "fed"))) as daemon:
        assert daemon.keeper is not None
        keeper = daemon.keeper

        def fed() -> float:
            before, begun = keeper.log.committed_bytes, time.perf_counter()
            for n in range(count):
                daemon.ingress.admit(daemon.network.stream("rows").number, trains[n % len(trains)])
            while not keeper.is_settled:
                time.sleep(0.0005)
            rate = (keeper.log.committed_bytes - before) / (time.perf_counter() - begun)
            daemon.engine.drain(60)
            return rate

        # The disk gets as much, in pieces of the size that a saturated log commits at once.
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
