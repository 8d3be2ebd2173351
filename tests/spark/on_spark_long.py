"""The long form of the tests of networks on Spark.

python -m tests.spark.on_spark_long 200            # every kind of box, 200 seeds, 1 to 7 shards, without Spark
python -m tests.spark.on_spark_long --cluster 10   # the cluster with killed executors and drivers, ten times
python -m tests.spark.on_spark_long --rows 20000000   # Parquet through the command, sums against DuckDB
python -m tests.spark.on_spark_long --kills 5      # the driver killed at random moments on one checkpoint
python -m tests.spark.on_spark_long --nexmark      # NEXMark on Spark and on the daemon
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from engine.on_spark import shard_state
from tests.property.test_on_spark_stages import BOXES, check_disorder
from tests.spark import on_kills
from tests.spark.on_nexmark import main as nexmark
from tests.spark.on_rows import run

HERE = Path(__file__).parent


def disorder(seeds: int) -> None:
    shard_state.LOG_SHARE = 1e9
    for seed in range(seeds):
        begun = time.monotonic()
        shards = 1 + seed % 7
        shard_state.SMALLEST_SNAPSHOT = 0 if seed % 2 else 2**40
        for boxes in BOXES.values():
            with TemporaryDirectory() as folder:
                check_disorder(boxes, shards, seed, Path(folder), rows=20 + seed % 100)
        print(f"seed {seed}, {shards} shards: {len(BOXES)} networks are equal, {time.monotonic() - begun:.1f} s")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("seeds", type=int, nargs="?", default=0)
    parser.add_argument("--cluster", type=int, default=0)
    parser.add_argument("--rows", type=int, default=0)
    parser.add_argument("--kills", type=int, default=0)
    parser.add_argument("--nexmark", action="store_true")
    given = parser.parse_args()
    disorder(given.seeds)
    if given.rows:
        with TemporaryDirectory() as folder:
            print(run(given.rows, Path(folder)))
    if given.kills:
        with TemporaryDirectory() as folder:
            on_kills.run(given.kills, int(time.time()), Path(folder))
    if given.nexmark:
        nexmark()
    for number in range(given.cluster):
        begun = time.monotonic()
        if pytest.main(["-q", "-x", str(HERE / "on_cluster.py")]):
            sys.exit(f"cluster run {number} is not exact")
        print(f"cluster run {number} is exact, {time.monotonic() - begun:.0f} s")


if __name__ == "__main__":
    main()
