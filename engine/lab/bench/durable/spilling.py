"""Spilling trains to disk and reading them back, against sequential writing and reading."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

from engine.lab.bench import workload
from engine.lab.bench.durable.daemons import BATCH_TUPLES, MIB
from engine.lab.bench.harness import Options, interleave
from engine.lab.bench.report import Result
from storage.files import RealFiles
from storage.spill_files import SpillFiles

SPILL_OVER_DISK = 0.5


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
    # Both read from the page cache; with reads from the disk the ratio would be nearer to 1.
    yield Result("durable", "spill=back,cached", "bytes_per_s", max(read_rates["spill"]), max(read_rates["plain"]))
    yield Result(
        "durable", "spill=back,baseline=disk", "bytes_per_s", max(read_rates["spill"]), max(rates["plain"]),
        at_least=SPILL_OVER_DISK,
    )  # fmt: skip
