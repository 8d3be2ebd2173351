"""``bench state``: the table. Each case runs twice in processes of its own, at the small budget and in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from engine.lab.bench.harness import BenchError, Options, child
from engine.lab.bench.report import Result

FEEDER = "engine.lab.bench.state.feeder"
MIB = 1024**2
KEYS = 10_000_000
QUICK_KEYS = 500_000
BUDGET_BYTES = 64 * MIB
QUICK_BUDGET_BYTES = 8 * MIB
IN_MEMORY_BYTES = 64 * 1024**3

OnProgress = Callable[[str], None]


def run(
    options: Options, keys: int | None, cases: Sequence[str], memory_bytes: int | None, on_progress: OnProgress
) -> Iterator[Result]:
    keys = keys or (QUICK_KEYS if options.quick else KEYS)
    budget_bytes = memory_bytes or (QUICK_BUDGET_BYTES if options.quick else BUDGET_BYTES)
    allowed_bytes = 1.25 * budget_bytes + 250e6
    for name in cases:
        spilled = _measured(name, keys, budget_bytes, on_progress)
        whole = _measured(name, keys, IN_MEMORY_BYTES, on_progress)
        case = f"{name},keys={keys / 1e6:g} M,budget={budget_bytes // MIB} MiB"
        extra = {k: spilled[k] for k in ("rows", "seconds", "written_bytes", "most_state_bytes")}
        extra |= {"in_memory_peak_bytes": whole["peak_bytes"], "in_memory_seconds": whole["seconds"]}
        yield Result(
            "state", case, "peak_bytes", spilled["peak_bytes"], allowed_bytes, at_most=1.0, extra={"answers": "right"}
        )
        yield Result(
            "state", case, "tuples_per_second", spilled["tuples_per_second"], whole["tuples_per_second"], extra=extra
        )


def _measured(name: str, keys: int, memory_bytes: int, on_progress: OnProgress) -> dict[str, Any]:
    with child(FEEDER, name, keys, memory_bytes) as process:
        while "seconds" not in (record := process.answer()):
            done, of, disk = record["done"], record["of"], record["disk_bytes"]
            on_progress(f"{name}, budget {memory_bytes // MIB} MiB: {done / of:.0%}, {disk // MIB} MiB on disk")
    if not record["is_right"]:
        raise BenchError(f"{name}: {record['rows']:,} of {record['expected']:,} results, {record['wrong']:,} wrong")
    return record
