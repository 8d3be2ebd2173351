"""One case of ``bench state`` in this process: ``python -m engine.lab.bench.state.feeder CASE KEYS MEMORY_BYTES``.

It answers in JSON lines: progress while it runs, then the figures.
"""

from __future__ import annotations

import sys
from pathlib import Path
from threading import Lock
from time import perf_counter
from typing import Any

import numpy as np
import orjson

from engine.lab.bench.state.cases import CASES, StateCase, network_text, trains
from engine.run.core import Engine
from engine.run.network_file import read_network
from storage.train import END_WATERMARK, Train

PROGRESS_SECONDS = 2.0
DRAIN_SECONDS = 3_600.0


class Checked:
    """The results, checked as they come."""

    def __init__(self, case: StateCase, keys: int) -> None:
        self._case = case
        self._keys = keys
        self._lock = Lock()
        self.rows = 0
        self.wrong = 0
        self.key_sum = 0

    def deliver(self, train: Train) -> None:
        columns = dict(zip(train.schema.names, train.columns, strict=True))
        right = self._case.is_right(columns, self._keys)
        with self._lock:
            self.rows += train.count
            self.wrong += train.count - int(np.count_nonzero(right))
            self.key_sum += int(columns["k"].sum())


def run(name: str, keys: int, memory_bytes: int) -> dict[str, Any]:
    case = CASES[name]
    checked = Checked(case, keys)
    engine = Engine(read_network(network_text(case)), [checked.deliver], workers=1,
                    memory_bytes=memory_bytes)  # fmt: skip
    engine.start()
    begun = said = perf_counter()
    most_state = 0
    fed = 0
    try:
        for stream, train in trains(engine.network.streams[0].schema, keys, case.sides):
            if case.sides == 2:  # the other side's watermark must follow
                other = engine.network.streams[1 - stream]
                engine.ingress.admit(other.number, Train.empty(other.schema, train.watermark_ns))
            if not engine.ingress.admit(stream, train, timeout_s=DRAIN_SECONDS):
                raise TimeoutError("no room")
            fed += train.count
            most_state = max(most_state, engine.storage.state_bytes)
            if perf_counter() - said > PROGRESS_SECONDS:
                said = perf_counter()
                _say({"done": fed, "of": 2 * keys, "disk_bytes": engine.state_home.disk_bytes})
        for stream_of in engine.network.streams:
            engine.ingress.admit(stream_of.number, Train.empty(stream_of.schema, END_WATERMARK))
        is_drained = engine.drain(DRAIN_SECONDS)
        seconds = perf_counter() - begun
    finally:
        engine.stop()
    return {
        "is_right": is_drained
        and checked.rows == case.rows(keys)
        and not checked.wrong
        and _sum_is_right(name, checked),
        "rows": checked.rows,
        "expected": case.rows(keys),
        "wrong": checked.wrong,
        "seconds": seconds,
        "tuples_per_second": 2 * keys / seconds,
        "peak_bytes": _peak_bytes(),
        "most_state_bytes": most_state,
        "written_bytes": engine.state_home.written_bytes,
    }


def _sum_is_right(name: str, checked: Checked) -> bool:
    """Every key once: the sum of all keys of the results; odd ones twice for latest."""
    case, keys = CASES[name], checked._keys
    once = case.rows(keys) * (case.rows(keys) - 1) // 2
    if name == "latest":
        once = keys * (keys - 1) // 2 + (keys // 2) ** 2
    return checked.key_sum == once


def _peak_bytes() -> int:
    status = Path("/proc/self/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith("VmHWM:")).split()[1]) * 1024


def _say(record: dict[str, Any]) -> None:
    sys.stdout.write(orjson.dumps(record).decode() + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    _say(run(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
