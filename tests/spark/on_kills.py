"""The driver of ``run --on spark`` killed with SIGKILL at random moments, again and again on one checkpoint: the rows
are those of the daemon's engine.

    python -m tests.spark.on_spark_long --kills 5
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path

from engine.lab.processes import command
from engine.run.network_file import read_network
from tests.spark.conftest import QUICK
from tests.spark.on_spark_world import read_out, run_engine, write_batches
from tests.spark.test_on_spark import NETWORK, made_up

LONGEST_SECONDS = 30.0  # after the session is up, until the kill


def run(kills: int, seed: int, work: Path) -> None:
    """Kill this many drivers, let the next one end, and compare."""
    rng = random.Random(seed)
    text = NETWORK.replace("FOLDER", str(work))
    network, batches = read_network(text, {}), made_up(seed, 6)
    write_batches(work / "in", network, batches)
    file = work / "network.yaml"
    file.write_text(f"spark: {{master: 'local[2]', config: {json.dumps(QUICK)}}}\n{text}")
    words = command("run", str(file), "--on", "spark", "--once", "--checkpoint", str(work / "checkpoint"))
    killed = 0
    while True:
        at = rng.random() * LONGEST_SECONDS if killed < kills else None
        code, said = one_driver(words, work / "log", at)
        if code != -signal.SIGKILL:
            break
        killed += 1
        print(
            f"killed {at:.1f} s behind its start, in batch {len(list(work.glob('checkpoint/batches/*')))}", flush=True
        )
    assert code == 0, said[-4000:]
    assert read_out(work / "out", network) == run_engine(text, batches)
    print(f"seed {seed}: exact after {killed} kills", flush=True)


def one_driver(words: list[str], log: Path, at_s: float | None) -> tuple[int, str]:
    """Run a driver, and kill it this long after its query has begun; None: let it end."""
    with log.open("w") as out:
        driver = subprocess.Popen([*words, "--shards", "2"], stdout=out, stderr=out, start_new_session=True)
    while driver.poll() is None:
        if at_s is not None and " runs on " in log.read_text():
            with suppress(subprocess.TimeoutExpired):
                driver.wait(at_s)
            with suppress(ProcessLookupError):
                os.killpg(driver.pid, signal.SIGKILL)
        time.sleep(0.1)
    return driver.wait(), log.read_text()
