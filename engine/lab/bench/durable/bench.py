"""Run all parts of ``bench durable`` in one temporary folder."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

from engine.lab.bench.durable.checkpoints import checkpoint, recovery
from engine.lab.bench.durable.log import ack_latency, fed_log, log_against_none, raw_log
from engine.lab.bench.durable.spilling import spill
from engine.lab.bench.harness import Options
from engine.lab.bench.report import Result
from engine.run.tuning import tune_process


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
