"""``bench on-spark``: four comparisons, each in one run.

- window and join: the network on Spark against Spark's own operators, cold (the first run of a JVM) and warm
  (interleaved rounds on one JVM), and against the daemon as a process on the same rows.
- executors: the window on two executors against one, each with a core.
- state: a batch on a state of 1 GB against the same batch on one of some MB.

Every run must give the daemon's rows; Spark's own operators may keep what their watermark has not passed.
"""

from __future__ import annotations

import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.ipc as pa_ipc

from engine.lab.bench.harness import BenchError, ChildProcess, Options, child, interleave
from engine.lab.bench.on_spark.cases import GIVE_UP_SECONDS, Case, network, write_rows
from engine.lab.bench.on_spark.state_case import BYTES_A_KEY, write_state_rows
from engine.lab.bench.report import Result
from engine.lab.processes import command

CASES = ("window", "join", "executors", "state")
CHILD = "engine.lab.bench.on_spark.child"
ROWS: dict[str, tuple[int, int]] = {"window": (4_000_000, 500_000), "join": (100_000, 20_000)}  # in full, and quick
GOALS = {"window": 0.5, "join": 1.0}
STATE_BYTES = 1024**3
BATCH_ROWS = 1_000_000


def run(options: Options, cases: Sequence[str] = CASES) -> Iterator[Result]:
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        for case in ("window", "join"):
            if case in cases:
                yield from against_native(work / case, case, options)
        if "executors" in cases:
            yield from executors(work / "executors", options)
        if "state" in cases:
            yield from state(work / "state", options)


def against_native(work: Path, case: Case, options: Options) -> Iterator[Result]:
    rows = ROWS[case][options.quick]
    write_rows(work, case, rows)
    all_rows = rows * (1 if case == "window" else 2)
    daemon_s, expected = _daemon(work, case)
    with ExitStack() as stack:
        cold = {}
        children: dict[str, ChildProcess] = {}
        for who in ("native", "ours"):
            children[who] = stack.enter_context(child(CHILD, "local[2]", work, case))
            cold[who] = _rate(children[who], who, all_rows, expected)
        note = _unfinished(cold["native"], all_rows)
        yield Result("on-spark", f"{case},cold", "rows_per_s", cold["ours"], cold["native"], extra=note)
        one = children["ours"]  # warm rounds of both on one JVM
        _rate(one, "native", all_rows, expected)
        rates = interleave(
            {who: lambda who=who: _rate(one, who, all_rows, expected) for who in ("native", "ours")},  # type: ignore[misc]
            2 if options.quick else 3,
        )
    note = _unfinished(max(rates["native"]), all_rows)
    yield Result.of_rounds(
        "on-spark", f"{case},warm", "rows_per_s", rates["ours"], rates["native"], "", note, at_least=GOALS[case]
    )
    yield Result("on-spark", f"{case},daemon", "rows_per_s", max(rates["ours"]), all_rows / daemon_s)


def executors(work: Path, options: Options) -> Iterator[Result]:
    rows = ROWS["window"][options.quick]
    write_rows(work, "window", rows)
    _, expected = _daemon(work, "window")
    with ExitStack() as stack:
        children = {
            number: stack.enter_context(child(CHILD, f"local-cluster[{number},1,1024]", work, "window"))
            for number in (1, 2)
        }
        for one in children.values():
            _rate(one, "ours", rows, expected)  # warm-up
        rates = interleave(
            {str(n): lambda n=n: _rate(children[n], "ours", rows, expected) for n in children},  # type: ignore[misc]
            2 if options.quick else 3,
        )
    yield Result.of_rounds("on-spark", "window,2 executors", "rows_per_s", rates["2"], rates["1"], "")


def state(work: Path, options: Options) -> Iterator[Result]:
    nbytes = STATE_BYTES // (10 if options.quick else 1)
    keys = {"large": nbytes // BYTES_A_KEY, "small": 100_000}
    seconds: dict[str, Any] = {}
    for name, count in keys.items():
        write_state_rows(work / name, count, BATCH_ROWS)
        with child(CHILD, "local[1]", work, "state") as one:
            one.say(name)
            seconds[name] = one.answer()
    size = f"{seconds['large']['state_bytes'] / 1024**2:.0f} MiB"
    values = [seconds[name]["batch_seconds"] for name in ("large", "small")]
    yield Result("on-spark", f"a batch on a state of {size}", "batch_s", values[0], values[1], at_most=1.2)


def _unfinished(native: float, rows: int) -> dict[str, Any]:
    """Say that Spark's own operators were stopped: their rate is below the one shown."""
    is_bound = rows / native >= GIVE_UP_SECONDS
    return {"why": f"the baseline was stopped after {GIVE_UP_SECONDS:g} s: it is an upper bound"} if is_bound else {}


def _rate(one: ChildProcess, who: str, rows: int, expected: tuple[int, int]) -> float:
    one.say(who)
    done = one.answer()
    found = (done["rows"], done["sum"])
    if (who == "ours" and found != expected) or found[0] > expected[0]:
        raise BenchError(f"{who} found {found} rows and their sum, the daemon {expected}")
    return float(rows / done["seconds"])


def _daemon(work: Path, case: Case) -> tuple[float, tuple[int, int]]:
    """Run the daemon on the same rows, from its start to its end. Return the seconds, the rows and their sum."""
    file, out = work / "network.yaml", work / "answer"
    file.write_text(network(case, work, out, on_spark=False))
    begun = time.perf_counter()
    done = subprocess.run(command("run", str(file)), check=False, capture_output=True)
    seconds = time.perf_counter() - begun
    if done.returncode:
        raise BenchError(f"the daemon failed: {done.stderr.decode()[-500:]}")
    with pa.OSFile(f"{out}.arrow", "rb") as source, pa_ipc.open_stream(source) as answer:
        column = answer.read_all().column("n")
    return seconds, (len(column), int(column.to_numpy().sum()))
