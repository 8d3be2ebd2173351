"""The memory of a daemon during a bulk job, against the limit that its budget sets.

The daemon runs in a process of its own with a small budget (``--once``) and ends when the job is done. The peak is the
kernel's VmHWM, so no peak between two samples is missed. The limit is that of clause G of the guarantees: a resident
size of at most 1.25 times the budget, plus 250 MB for Python, its libraries and data in transit.
"""

from __future__ import annotations

import re
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from engine.lab.bench import workload
from engine.lab.bench.harness import BenchError
from engine.lab.bench.report import Result
from engine.lab.processes import command, end, spawn

BUDGET_BYTES = 128 * 1024**2
SAMPLE_SECONDS = 0.05
WAIT_SECONDS = 600.0


def memory(work: Path, write_files: Callable[[Path, int], Path], rows: int) -> Iterator[Result]:
    folder = write_files(work / "bulk", rows)
    file = work / "bulk.yaml"
    file.write_text(network(folder))
    out = work / "bulk.log"
    with out.open("wb") as log:
        process = spawn(command("run", str(file), "--once"), stdout=subprocess.DEVNULL, stderr=log)
        try:
            peak_bytes = watch(process)
            code = process.wait()
        finally:
            end(process)
    logged = out.read_text(errors="replace")
    if code or f"all {rows} rows have come" not in logged:
        raise BenchError(f"the bulk job of {rows} rows ended with code {code}: {logged[-500:]}")
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
    """Return the peak of a process's resident size until it ends."""
    peak, deadline = 0, time.monotonic() + WAIT_SECONDS
    while process.poll() is None:
        if time.monotonic() > deadline:
            raise BenchError("the bulk job did not end")
        try:
            status = Path(f"/proc/{process.pid}/status").read_text()
        except OSError:
            break
        if found := re.search(r"VmHWM:\s+(\d+) kB", status):
            peak = max(peak, int(found[1]) * 1024)
        time.sleep(SAMPLE_SECONDS)
    return peak
