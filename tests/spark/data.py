"""What the Spark tests read, and the daemon in this process that reads it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from engine.daemon.daemon import Daemon
from engine.run.network_file import read_network
from router.spark.daemon.host import SparkHost
from storage.train import Train
from tests.e2e.daemon import TRADES, wait_for

SYMBOLS = [f"S{i:03d}" for i in range(50)]


def trades(rows: int, seed: int = 0, start: int = 0) -> pa.Table:
    rng = np.random.default_rng(seed)
    venue = pa.array(rng.choice(["N", "P", "Q"], rows), mask=rng.random(rows) < 0.1)
    return pa.table(
        {
            "ts": pa.array((start + np.arange(rows)) * 1_000, pa.timestamp("us", "UTC")),
            "symbol": pa.array(rng.choice(SYMBOLS, rows)),
            "price": np.round(rng.random(rows) * 100, 2),
            "size": pa.array(rng.integers(1, 1_000, rows), pa.int32()),
            "venue": venue,
        }
    )


def write_parquet(folder: Path, files: int, rows: int, groups: int = 20_000) -> Path:
    folder.mkdir(parents=True)
    for i in range(files):
        pq.write_table(trades(rows, i, i * rows), folder / f"{i}.parquet", row_group_size=groups)
    return folder


class Reader:
    """Everything that an output emits, as columns."""

    def __init__(self) -> None:
        self.trains: list[Train] = []

    def __call__(self, train: Train) -> None:
        self.trains.append(train)

    @property
    def count(self) -> int:
        return sum(t.count for t in self.trains)

    def column(self, name: str) -> list[Any]:
        return [v for t in self.trains for v in t.to_pylist(t.schema.index(name))]

    def table(self) -> pa.Table:
        names = self.trains[0].schema.names
        return pa.table({name: self.column(name) for name in names})


def network(source: str, boxes: str = "", out: str = "trades", rest: str = "", stream: str = "") -> str:
    return f"""
http: {{listen: "off"}}
streams:
  trades: {{schema: {TRADES}, source: {source}{stream}}}
boxes: {{{boxes}}}
outputs:
  out: {{from: {out}}}
{rest}
"""


@contextmanager
def loading(text: str, host: SparkHost, *, batch: bool = False) -> Iterator[tuple[Daemon, Reader]]:
    """A daemon that runs this network, with everything that comes out of ``out``."""
    daemon = Daemon(read_network(text, {}), spark=host, once=batch)
    reader = Reader()
    daemon.subscribe("out", reader)
    daemon.start()
    try:
        yield daemon, reader
        assert not any(daemon.monitor.residuals.values()) or daemon.engine.drain(10)
    finally:
        daemon.stop()


def finish(daemon: Daemon, seconds: float = 120.0) -> None:
    """Until the sources are at their end and nothing waits."""
    wait_for(lambda: not daemon.spark.is_reading, "the bulk source is at its end", seconds)
    assert daemon.engine.drain(30)
