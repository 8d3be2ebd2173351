"""One network on both engines: batches of rows as files for Spark, and the same batches as trains for the daemon's
engine. The rows that come out must be the same, whatever the order and the number of shards."""

from __future__ import annotations

import os
import threading
import venv
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest import mock

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from catalog.network import Network
from catalog.schema import Schema, Type
from engine.on_spark.batches import BatchRunner
from engine.on_spark.plan import make_plan
from engine.on_spark.run import NEEDED, run_query
from engine.run.core import Engine
from engine.run.network_file import read_network
from router.event_time import EventTime
from storage.train import Train
from tests.spark.conftest import QUICK

NOW_NS = 1_800_000_000 * 10**9
Rows = list[dict[str, Any]]  # a timestamp is a number of microseconds
Batch = Mapping[str, Rows]  # by stream

_ARROW = {
    Type.BOOLEAN: pa.bool_(), Type.INT: pa.int32(), Type.BIGINT: pa.int64(), Type.FLOAT: pa.float32(),
    Type.DOUBLE: pa.float64(), Type.STRING: pa.string(), Type.TIMESTAMP: pa.timestamp("us", "UTC"),
}  # fmt: skip


@contextmanager
def spark_session(master: str = "local[2]", config: Mapping[str, str] | None = None) -> Iterator[Any]:
    """A session in this process. It is opened beside the main thread, which keeps its handler of SIGINT."""
    from router.spark.driver.launch import launch

    with TemporaryDirectory() as scratch, ThreadPoolExecutor(1) as pool:
        settings = {**QUICK, **NEEDED, **(config or {})}
        launched = pool.submit(launch, master, settings, Path(scratch)).result()
        try:
            yield launched.session
        finally:
            launched.session.stop()
            launched.jvm.kill()
            launched.jvm.wait()


def bare_python(folder: Path, *, with_packages: bool) -> Path:
    """Make a Python without aurorad, as executors have it; with what aurorad stands on, or without."""
    venv.create(folder, with_pip=False, symlinks=True)
    if with_packages:
        [site] = folder.glob("lib/python*/site-packages")
        # A folder on the path, and not a folder of packages: what is installed in it to be edited is not found.
        (site / "packages.pth").write_text(str(Path(np.__file__).parents[1]))
    return folder / "bin" / "python"


def write_batches(folder: Path, network: Network, batches: Sequence[Batch]) -> None:
    """Write each batch as one file a stream, with no rows where it has none, so that batches stay together."""
    for stream in network.streams:
        (folder / stream.name).mkdir(parents=True, exist_ok=True)
        for number, batch in enumerate(batches):
            rows = batch.get(stream.name, [])
            table = pa.table(
                {f.name: pa.array([row[f.name] for row in rows], _ARROW[f.type]) for f in stream.schema},
            )
            path = folder / stream.name / f"{number:06d}.parquet"
            pq.write_table(table, path)
            os.utime(path, (1_700_000_000 + number, 1_700_000_000 + number))  # Spark takes the oldest files first


def run_spark(session: Any, text: str, folder: Path, shards: int, ends: bool = True) -> BatchRunner:
    """Run the network to the end of its files. ``ends``: close all windows."""
    plan = make_plan(read_network(text, {}))
    assert not plan.refusals, plan.refusals
    with mock.patch.object(BatchRunner, "end", BatchRunner.end if ends else lambda _: None):
        return run_query(
            session, plan, str(folder / "checkpoint"), shards=shards, once=True, every_s=0, stop=threading.Event(),
            now_ns=lambda: NOW_NS,
        )  # fmt: skip


def run_engine(text: str, batches: Sequence[Batch]) -> dict[str, Counter[str]]:
    """Feed each batch as one train to the engine, one stream after another, and close all windows."""
    network = read_network(text, {})
    found: dict[str, Counter[str]] = {output.name: Counter() for output in network.outputs}

    def collect(name: str) -> Callable[[Train], None]:
        return lambda train: found[name].update(_shown(train.schema, row) for row in train.to_rows())

    event_time = EventTime(network, lambda: NOW_NS)
    outlets = [collect(output.name) for output in network.outputs]
    engine = Engine(network, outlets, workers=1, event_time=event_time, now_ns=lambda: NOW_NS)
    engine.expire(False)
    engine.start()
    try:
        for batch in batches:
            for stream in network.streams:
                if rows := batch.get(stream.name):
                    engine.ingress.admit(stream.number, _train(stream.schema, rows), timeout_s=20)
            assert engine.drain(20)
        for stream in network.streams:
            engine.ingress.end(stream.number)
        assert engine.drain(20)
    finally:
        engine.stop()
    return found


def _train(schema: Schema, rows: Rows) -> Train:
    def value(row: dict[str, Any], name: str) -> Any:
        found = row[name]
        return found * 1_000 if schema[name].type is Type.TIMESTAMP and found is not None else found

    return Train.from_pylists(schema, {f.name: [value(row, f.name) for row in rows] for f in schema}, NOW_NS)


def read_out(folder: Path, network: Network) -> dict[str, Counter[str]]:
    """Read what the sinks have, with DuckDB."""
    found = {}
    for output in network.outputs:
        path = folder / output.name
        counter: Counter[str] = Counter()
        if list(path.glob("*.parquet")):
            columns = ", ".join(
                f'epoch_us("{f.name}") * 1000' if f.type is Type.TIMESTAMP else f'"{f.name}"' for f in output.schema
            )
            rows = duckdb.sql(f"select {columns} from '{path}/*.parquet'").fetchall()
            counter.update(_shown(output.schema, row) for row in rows)
        found[output.name] = counter
    return found


def _shown(schema: Schema, row: Sequence[Any]) -> str:
    """A row as text: times in microseconds, and doubles without their last digits, because sums have no order."""
    out = []
    for field, value in zip(schema, row, strict=True):
        if value is not None and field.type is Type.TIMESTAMP:
            value = value // 1_000
        elif isinstance(value, float):
            value = f"{value:.9g}"
        out.append(value)
    return repr(out)
