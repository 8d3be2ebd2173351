"""The long form of queries that start in the past: ``python -m tests.live.long_starts [--cases 50] [--seed N]``."""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.live.start_world import StartCase


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=50)
    parser.add_argument("--seed", type=int, default=time.time_ns() % 1_000_000)
    parser.add_argument("--folder", help="where the data_dirs are made; default: a temporary folder")
    given = parser.parse_args()
    begun, wrong, rows = time.monotonic(), 0, 0
    for seed in range(given.seed, given.seed + given.cases):
        with TemporaryDirectory(dir=given.folder) as folder:
            case = StartCase(seed, Path(folder))
            why = case.wrong()
        rows += len(case.rows.times)
        wrong += bool(why)
        print(f"seed {seed}: {case.kind_name}, {len(case.rows.times):,} rows, {why or 'row for row'}", flush=True)
    print(f"{given.cases} cases, {rows:,} rows in {time.monotonic() - begun:.0f} s, {wrong} wrong")
    raise SystemExit(1 if wrong else 0)


if __name__ == "__main__":
    main()
