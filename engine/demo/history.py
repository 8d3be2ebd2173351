"""A made-up day of trades as Parquet files, for ``configs/batch.yaml``.

    python -m engine.demo.history FOLDER [--day 2026-01-05] [--rows 1000000] [--files 4] [--seed 1]

The files are in the order of their times and so are their rows. The same arguments make the same rows.
"""

from __future__ import annotations

import argparse
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from engine.demo.market import SYMBOLS, VENUE_SHARES, VENUES, VOLATILITY_PER_ROOT_S

OPEN_S = 14.5 * 3600  # of the day, UTC
HOURS_S = 6.5 * 3600


def make_day(day: datetime, rows: int, seed: int) -> pa.Table:
    random = np.random.default_rng([seed, int(day.timestamp())])
    after_s = np.sort(random.uniform(0, HOURS_S, rows))
    symbol = random.integers(0, len(SYMBOLS), rows)
    # One walk for the market, one level for each symbol: enough to look like prices.
    walk = np.cumsum(random.normal(0, VOLATILITY_PER_ROOT_S, rows) * np.sqrt(np.diff(after_s, prepend=0.0)))
    level = np.exp(random.normal(4.3, 0.7, len(SYMBOLS)))
    venue = random.choice(len(VENUES), rows, p=VENUE_SHARES)
    begin_us = int((day.timestamp() + OPEN_S) * 1e6)
    names: Any = pa.array(SYMBOLS)
    venues: Any = pa.array(VENUES)
    columns: dict[str, Any] = {
        "ts": pa.array(begin_us + (after_s * 1e6).astype(np.int64), pa.timestamp("us", "UTC")),
        "symbol": names.take(pa.array(symbol)),
        "price": np.round(level[symbol] * np.exp(walk), 2),
        "size": pa.array(np.ceil(random.lognormal(4.0, 1.2, rows)), pa.int32(), safe=False),
        "venue": venues.take(pa.array(venue)),
    }
    return pa.table(columns)


def main(words: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m engine.demo.history", description="A made-up day of trades.")
    parser.add_argument("folder", type=Path)
    parser.add_argument(
        "--day", type=lambda text: datetime.fromisoformat(text).replace(tzinfo=UTC), default="2026-01-05"
    )
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--files", type=int, default=4)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args(words)
    table = make_day(given.day, given.rows, given.seed)
    given.folder.mkdir(parents=True, exist_ok=True)
    size = -(-given.rows // given.files)
    for number in range(given.files):
        file = given.folder / f"{given.day:%Y-%m-%d}-{number}.parquet"
        pq.write_table(table.slice(number * size, size), file, row_group_size=250_000)
    sys.stdout.write(f"{given.rows:,} trades in {given.files} files in {given.folder}\n")


if __name__ == "__main__":
    main(sys.argv[1:])
