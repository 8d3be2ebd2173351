"""A process of ``bench on-spark`` with one JVM.

    python -m engine.lab.bench.on_spark.child MASTER FOLDER CASE

Each word on standard input is a run, answered by a line of JSON: ``native`` or ``ours``, and for the case ``state``
``small`` or ``large``.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median
from typing import Any, cast

from engine.lab.bench.on_spark.cases import GIVE_UP_SECONDS, Case, answer_of, native, network
from engine.lab.bench.on_spark.state_case import STATE_NETWORK
from engine.on_spark.plan import make_plan
from engine.on_spark.run import NEEDED, run_query
from engine.on_spark.service import end_spark
from engine.run.network_file import read_network


class Runs:
    """The runs of one case on one session. Each has folders of its own."""

    def __init__(self, session: Any, folder: Path, work: Path, case: str) -> None:
        self._session, self._folder, self._work, self._case = session, folder, work, case
        self._shards = session.sparkContext.defaultParallelism
        self._count = 0

    def run(self, word: str) -> dict[str, Any]:
        self._count += 1
        out, checkpoint = self._work / f"out{self._count}", self._work / f"checkpoint{self._count}"
        begun = time.perf_counter()
        if word == "native":
            done = self._native(out, checkpoint)
        else:
            done = self._ours(word, out, checkpoint)
        seconds = time.perf_counter() - begun
        rows, total = answer_of(sorted(out.glob("*.parquet"))) if self._case != "state" else (0, 0)
        return {"seconds": seconds, "rows": rows, "sum": total, **done}

    def _native(self, out: Path, checkpoint: Path) -> dict[str, Any]:
        frame = native(self._session, cast(Case, self._case), self._folder)
        writer = (
            frame.writeStream.format("parquet").option("path", str(out)).option("checkpointLocation", str(checkpoint))
        )
        query = writer.outputMode("append").trigger(availableNow=True).start()
        ended = query.awaitTermination(GIVE_UP_SECONDS)
        if not ended:
            query.stop()
        return {"ended": bool(ended)}

    def _ours(self, word: str, out: Path, checkpoint: Path) -> dict[str, Any]:
        if self._case == "state":
            text = STATE_NETWORK.format(folder=self._folder / word, out=out)
        else:
            text = network(cast(Case, self._case), self._folder, out, on_spark=True)
        plan, stop = make_plan(read_network(text, {})), threading.Event()
        batches = run_query(
            self._session, plan, str(checkpoint), shards=self._shards, once=True, every_s=0, stop=stop
        )  # fmt: skip
        reports = batches.reports
        later = [report.seconds for report in reports[2:-1]]  # not the first, the first on a state, and the end
        return {
            "ended": True,
            "batch_seconds": median(later) if later else 0.0,
            "state_bytes": max(r.state_bytes for r in reports),
        }


def main() -> None:
    master, folder, case = sys.argv[1:4]
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what Spark prints must not get between the answers
    from router.spark.driver.launch import launch

    with tempfile.TemporaryDirectory() as work, ThreadPoolExecutor(1) as pool:
        config = {**NEEDED, "spark.driver.memory": "2g", "spark.log.level": "ERROR"}
        launched = pool.submit(launch, master, config, Path(work)).result()
        try:
            runs = Runs(launched.session, Path(folder), Path(work), case)
            for word in sys.stdin:
                answers.write(json.dumps(runs.run(word.strip())) + "\n")
                answers.flush()
        finally:
            end_spark(launched.session, launched.jvm)


if __name__ == "__main__":
    main()
