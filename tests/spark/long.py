"""The long version of the round trip: Parquet, network, Parquet, held to DuckDB's counts and sums over the same files.

    python -m tests.spark.long [--rows 5000000] [--rounds 3] [--seed 1]

Once as it is, then with tasks that each fail once at a random moment, then the same again. Exit code 1 when anything is
missing, twice or different. ``test_round_trip.py`` is the short version.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import duckdb
import numpy as np

from engine.daemon.daemon import Daemon
from engine.run.network_file import read_network
from engine.run.tuning import tune_process
from router.spark.daemon.host import SparkHost
from tests.e2e.daemon import TRADES
from tests.spark.conftest import QUICK
from tests.spark.data import finish, write_parquet
from tests.spark.flaky import ALL, Flaky

BIG = "price * size > 20000 and venue is not null"
SUMS = """select count(*), sum(size), sum(epoch_us(ts)), sum(hash(symbol)), sum(hash(venue)),
                 sum(cast(price * 100 as bigint)), sum(hash(ts, symbol, price, size, venue))
          from read_parquet('{}/*.parquet') where {}"""
FRAMES = 8


class Trip(NamedTuple):
    seconds: float
    cut: int  # tasks that were made to fail
    files: int
    differences: list[str]


def round_trip(host: SparkHost, folder: Path, out: Path, rng: np.random.Generator | None = None) -> Trip:
    """With ``rng`` every task fails once, at a moment of its choice."""
    text = f"""
http: {{listen: "off"}}
streams:
  trades: {{schema: {TRADES}, source: {{spark: parquet, path: {folder}}}}}
boxes:
  big: {{filter: trades, where: "{BIG}"}}
outputs:
  all: {{from: trades, sink: {{spark: parquet, path: {out}/all, every: 2s}}}}
  large: {{from: big, sink: {{spark: parquet, path: {out}/large, every: 2s}}}}
"""
    daemon = Daemon(read_network(text, {}), spark=host)
    begun, cut = time.monotonic(), 0
    daemon.start()
    try:
        flaky = None if rng is None else Flaky(daemon, lambda part: int(rng.choice([*range(1, FRAMES), ALL])))
        finish(daemon, 600)
        assert not daemon.spark.failures, daemon.spark.failures
        assert daemon.spark.flush(600)
        cut = 0 if flaky is None else flaky.cut
        assert not any(daemon.monitor.residuals.values())
    finally:
        daemon.stop()
    return Trip(time.monotonic() - begun, cut, len(list(out.glob("*/*.parquet"))), compare(folder, out))


def compare(folder: Path, out: Path) -> list[str]:
    """Counts and sums of every column, over what went in and over what came out. Both by DuckDB."""
    wrong = []
    for name, where in (("all", "true"), ("large", BIG)):
        [wanted] = duckdb.sql(SUMS.format(folder, where)).fetchall()
        [got] = duckdb.sql(SUMS.format(out / name, "true")).fetchall()
        if got != wanted:
            wrong.append(f"{name}: {got} and not {wanted}")
    return wrong


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=5_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    tune_process()
    rng = np.random.default_rng(options.seed)
    host = SparkHost("local[2]", QUICK, nice=0)
    good = True
    with tempfile.TemporaryDirectory() as work:
        folder = write_parquet(Path(work, "in"), 5, options.rows // 5, groups=250_000)
        try:
            for turn in range(1 + options.rounds):
                trip = round_trip(host, folder, Path(work, f"out{turn}"), rng if turn else None)
                good &= not trip.differences
                print(f"trip {turn}: {options.rows:,} rows in {trip.seconds:.1f} s, {trip.cut} tasks failed once, "
                      f"{trip.files} files; {'; '.join(trip.differences) or 'exact'}", flush=True)  # fmt: skip
        finally:
            host.stop()
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
