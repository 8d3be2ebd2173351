"""The memory of a daemon while a bulk load goes through it, against what its budget allows.

The daemon is the real one, in a process of its own with a small budget, and ends by itself when the load is through.
Its peak is the kernel's word (VmHWM), which no sample between two looks can miss. The promise is clause G's: resident
size at most 1.25 times the budget and 250 MB for Python, its libraries and what is on its way.
"""

from __future__ import annotations

import re
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from engine.bench import workload
from engine.bench.harness import BenchError
from engine.bench.report import Result
from engine.processes import command, end, spawn

BUDGET_BYTES = 128 * 1024**2
LOOK_SECONDS = 0.05
WAIT_SECONDS = 600.0


def memory(work: Path, write_files: Callable[[Path, int], Path], rows: int) -> Iterator[Result]:
    folder = write_files(work / "load", rows)
    file = work / "load.yaml"
    file.write_text(network(folder))
    out = work / "load.log"
    with out.open("wb") as log:
        process = spawn(command("run", str(file), "--once"), stdout=subprocess.DEVNULL, stderr=log)
        try:
            peak_bytes = watch(process)
            code = process.wait()
        finally:
            end(process)
    told = out.read_text(errors="replace")
    if code or f"all {rows} rows have come" not in told:
        raise BenchError(f"the load of {rows} rows ended with code {code}: {told[-500:]}")
    allowed = 1.25 * BUDGET_BYTES + 250e6
    case = f"daemon,{rows // 10**6} M rows,budget={BUDGET_BYTES // 1024**2} MiB"
    yield Result("spark", case, "peak_bytes", peak_bytes, allowed, at_most=1.0)


def network(folder: Path) -> str:
    schema = "{seq: bigint, symbol: string, price: double, size: int}"
    boxes = workload.chain_boxes("q0", "history", workload.bounds(0))
    return "\n".join(
        [
            f"engine: {{memory: {BUDGET_BYTES // 1024**2}MiB}}",
            "http: {listen: 'off'}",
            "streams:",
            f"  history: {{schema: {schema}, source: {{spark: parquet, path: {folder}}}}}",
            "boxes:",
            *boxes,
            "outputs:",
            f"  out: {{from: q0_{workload.FILTERS - 1}}}",
            "",
        ]
    )


def watch(process: subprocess.Popen[bytes]) -> int:
    """The peak of its resident size until it ends."""
    peak, deadline = 0, time.monotonic() + WAIT_SECONDS
    while process.poll() is None:
        if time.monotonic() > deadline:
            raise BenchError("the load did not end")
        try:
            status = Path(f"/proc/{process.pid}/status").read_text()
        except OSError:
            break
        if found := re.search(r"VmHWM:\s+(\d+) kB", status):
            peak = max(peak, int(found[1]) * 1024)
        time.sleep(LOOK_SECONDS)
    return peak
