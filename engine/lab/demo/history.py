"""A made-up day of trades as Parquet files (``aurorad history make``), input for ``configs/batch.yaml``.

Files and rows are in the order of their times. The same day, number of rows and seed make the same rows.
"""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from engine.simulate.market import SYMBOL_SHARES, SYMBOLS, VENUE_SHARES, VENUES, VOLATILITY_PER_ROOT_S

OPEN_S = 14.5 * 3600  # from midnight UTC to the start of trading
TRADING_S = 6.5 * 3600


def make_day(day: datetime, rows: int, seed: int) -> pa.Table:
    random = np.random.default_rng([seed, int(day.timestamp())])
    after_s = np.sort(random.uniform(0, TRADING_S, rows))
    symbol = random.choice(len(SYMBOLS), rows, p=SYMBOL_SHARES)
    # One random walk for the market and one price level for each symbol: enough to look like prices.
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


def write_day(folder: Path, day: datetime, rows: int, files: int, seed: int) -> None:
    """Write the day into ``files`` Parquet files, in the order of time."""
    table = make_day(day, rows, seed)
    folder.mkdir(parents=True, exist_ok=True)
    size = -(-rows // files)
    for number in range(files):
        file = folder / f"{day:%Y-%m-%d}-{number}.parquet"
        pq.write_table(table.slice(number * size, size), file, row_group_size=250_000)
