"""The stages of a network on Spark, without Spark: tasks run in this process, shuffles are lists.

Everything is the product's but three parts: the front (the row-wise boxes run as the engine's, and the shard of a tuple
is Python's hash of its key), the shuffle, and the sinks, which are lists of rows. So a hundred networks can be tried in
the time in which Spark starts.
"""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from catalog.network import Network, PortRef
from catalog.schema import Schema, Type
from engine.on_spark.batches import BatchRunner
from engine.on_spark.kept import KEPT
from engine.on_spark.lanes import lay_out
from engine.on_spark.plan import Lane, make_plan
from engine.on_spark.stage_task import BatchJob, front_task, next_task, reports_of
from engine.on_spark.store import CheckpointStore
from engine.operators.boxes.base import Tally
from storage.train import Train

NOW_NS = 1_800_000_000 * 10**9
_ARROW = {
    "boolean": pa.bool_(), "int": pa.int32(), "bigint": pa.int64(), "float": pa.float32(), "double": pa.float64(),
    "string": pa.string(),
}  # fmt: skip


class LocalBatches(BatchRunner):
    """``frame`` of a batch is its trains by stream. ``rng`` cuts them into Arrow batches. ``tick_ns`` is the unit of
    time between Spark and the stages."""

    def __init__(self, network: Network, folder: Path, shards: int, rng: Random, tick_ns: int = 1_000) -> None:
        self._tick_ns = tick_ns
        super().__init__(None, make_plan(network), CheckpointStore(str(folder)), "q", shards, lambda: NOW_NS)
        self.log.take()
        self._rng = rng
        self.rows: dict[str, Counter[str]] = {output.name: Counter() for output in network.outputs}

    def _run(self, job: BatchJob, frame: Any) -> tuple[list[dict[str, Any]], Any]:
        if self._rng.random() < 0.5:  # as if the tasks came to other workers: they read the state
            KEPT.clear()
        trains: Mapping[int, Train] = {} if frame is None else frame
        ports = self._ports(trains)
        stage, shards = self._plan.stages[0], range(self._shards)
        layout = lay_out([lane.schema for lane in stage.lanes])
        messages: list[list[bytes]] = [[] for _ in shards]
        schema = pa.schema(
            [("lane", pa.int32()), ("shard", pa.int32()), *((f"c{i}", _ARROW[t]) for i, t in enumerate(layout.types))]
        )
        for lane in stage.lanes:
            for train in ports[lane.source]:
                places = self._shards_of(lane, train)
                for shard in shards:
                    mine = train.take(np.flatnonzero(places == shard))
                    for part in self._cut(mine):
                        messages[shard].append(
                            _message(part, lane.number, layout.slots[lane.number], schema, self._tick_ns)
                        )
        text = schema.serialize().to_pybytes()
        pieces = [p for s in shards for p in front_task(self._texts[0], job, text)(s, messages[s])]
        has_state = stage.is_sharded
        for spec in self._texts[1:]:
            task = next_task(spec, job, self._shards if has_state else 0)
            self._rng.shuffle(pieces)
            pieces = [p for s in shards for p in task(s, [q for q in pieces if q[0] % self._shards == s])]
            has_state = True
        return reports_of(pieces), _Noted(self._network, trains)

    def _commit(self, number: int, name: str, files: list[list[Any]]) -> None:
        output = self._network.outputs[number]
        for place, rows in files:
            table = pq.read_table(Path(self._store.place, place))
            assert table.num_rows == rows
            columns = [_values(table.column(f.name), f.type) for f in output.schema]
            self.rows[output.name].update(shown(output.schema, row) for row in zip(*columns, strict=True))

    def _cut(self, train: Train) -> list[Train]:
        cuts = sorted(self._rng.randrange(train.count + 1) for _ in range(2)) if train.count else []
        bounds = [0, *cuts, train.count]
        return [train.slice(a, b) for a, b in pairwise(bounds) if b > a]

    def _ports(self, trains: Mapping[int, Train]) -> dict[PortRef, list[Train]]:
        """The tuples at each place of the front."""
        ports = {
            PortRef(stream=s.number): [trains[s.number]] if s.number in trains else [] for s in self._network.streams
        }
        for placed in self._plan.placed:
            node = placed.node
            for port in range(len(node.ports)):
                ports[PortRef(box=node.number, port=port)] = []
            if placed.stage is None:
                for in_port, arc in enumerate(node.in_arcs):
                    for train in ports[self._network.arcs[arc].source]:
                        with np.errstate(all="ignore"):
                            node.box.run(None, in_port, train, _collector(ports, node.number), Tally())
        return ports

    def _shards_of(self, lane: Lane, train: Train) -> Any:
        key = lane.shard
        if key is None or not lane.stage:
            return np.array([self._rng.randrange(self._shards) for _ in range(train.count)], np.int64)
        if not key.parts:
            return np.zeros(train.count, np.int64)
        columns = [train.to_pylist(train.schema.index(name)) for name in key.fields if name is not None]
        return np.array([zlib.crc32(repr(k).encode()) % self._shards for k in zip(*columns, strict=True)], np.int64)


def _collector(ports: dict[PortRef, list[Train]], box: int) -> Callable[[int, Train], None]:
    return lambda port, train: ports[PortRef(box=box, port=port)].append(train)


class _Noted:
    """What Spark notes of a batch: by stream its rows, the sound ones, and the newest event time."""

    def __init__(self, network: Network, trains: Mapping[int, Train]) -> None:
        self._found: list[Any] = []
        for stream in network.streams:
            train = trains.get(stream.number)
            newest = None
            if train is not None and train.count and stream.time_field is not None:
                newest = int(train.columns[stream.schema.index(stream.time_field)].max()) // 1_000
            count = 0 if train is None else train.count
            self._found += [count, count, newest]

    def get(self, at: int) -> Any:
        return self._found[at]


def _message(train: Train, lane: int, slots: Sequence[int], schema: pa.Schema, tick_ns: int) -> bytes:
    columns: list[Any] = [pa.nulls(train.count, field.type) for field in schema]
    columns[0] = pa.array([lane] * train.count, pa.int32())
    columns[1] = pa.array([0] * train.count, pa.int32())
    for i, (field, slot) in enumerate(zip(train.schema, slots, strict=True)):
        values = train.to_pylist(i)
        if field.type is Type.TIMESTAMP:
            values = [None if v is None else v // tick_ns for v in values]
        columns[2 + slot] = pa.array(values, schema.field(2 + slot).type)
    return pa.RecordBatch.from_arrays(columns, schema=schema).serialize().to_pybytes()


def _values(column: Any, type: Type) -> list[Any]:
    return (column.cast(pa.int64()) if type is Type.TIMESTAMP else column).to_pylist()


def shown(schema: Schema, row: Sequence[Any]) -> str:
    """A row as text: times in microseconds, and doubles without their last digits, because sums have no order."""
    return repr([f"{v:.9g}" if isinstance(v, float) else v for v in row])


def shown_train(train: Train, tick_ns: int = 1_000) -> list[str]:
    """The rows of the engine in the same form."""
    times = [f.type is Type.TIMESTAMP for f in train.schema]
    return [
        shown(train.schema, [v // tick_ns if t and v is not None else v for v, t in zip(row, times, strict=True)])
        for row in train.to_rows()
    ]
