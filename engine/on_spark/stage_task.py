"""What a Python worker of Spark does with one partition of a stage: read the state of its shard, run the batch, write
the new state and the results, and hand on what the next stage needs.

``run_front`` reads the Arrow messages of Spark's front, ``run_next`` the pieces of an earlier stage of ours. Both yield
pieces: (shard of the next stage, bytes). The last stage yields its report and those of the stages before it.

Every file has a name of its own, with the attempt in it. A file counts once the driver has written its name into the
manifest of the batch. So an attempt that dies leaves garbage and no harm.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.ipc as pa_ipc
import pyarrow.parquet as pq

from engine.on_spark.kept import KEPT
from engine.on_spark.lanes import result_batch, result_schema, trains_of
from engine.on_spark.shard import TIME_MOVES, TUPLES_RUN, ShardRun
from engine.on_spark.shard_state import ShardFiles, TakenLog, load, room_for, save
from engine.on_spark.stage_spec import BuiltStage, LaneKey, build_stage
from engine.on_spark.store import CheckpointStore
from engine.operators.bounded.hashing import KeyHash
from router.codecs.encode.pool_arrays import PoolArrays
from storage.train import Train
from storage.tree import decode_tree, encode_tree

Piece = tuple[int, bytes]
PartTask = Callable[[int, Iterable[Any]], Iterator[Piece]]
SEED = 0x5EED
SHIPPED_BYTES = 8 * 1024**2  # of tuples for one shard of the next stage, before they are handed on


@dataclass(frozen=True)
class BatchJob:
    """One batch, as its tasks see it."""

    checkpoint: str
    folder: str  # of the batch, in the checkpoint
    now_ns: int
    lanes_ns: tuple[tuple[int, ...], ...]  # by stage, as far as the driver knows them: watermarks of the lanes
    states: dict[str, Any]  # "stage-shard": the files of its state (``ShardFiles``); empty at first


def front_task(text: str, job: BatchJob, schema: bytes) -> PartTask:
    """Return the task of the first stage."""

    def run_front(index: int, messages: Iterable[bytes]) -> Iterator[Piece]:
        task = _StageTask(build_stage(text), job, index)
        task.begin(job.lanes_ns[0])
        arrow: Any = pa_ipc.read_schema(pa.py_buffer(schema)) if schema else None
        for message in messages:
            batch = pa_ipc.read_record_batch(pa.py_buffer(message), arrow)
            for lane, train in trains_of(batch, task.stage.lanes, task.stage.slots, job.now_ns):
                task.take(lane, train)
            yield from task.ready()
        yield from task.end()

    return run_front


def next_task(text: str, job: BatchJob, before: int) -> PartTask:
    """Return the task of a later stage. ``before``: how many shards announce watermarks, 0 when the driver knows."""

    def run_next(index: int, pieces: Iterable[Piece]) -> Iterator[Piece]:
        task = _StageTask(build_stage(text), job, index)
        later: list[tuple[int, Train]] = []
        announced: list[list[int]] = []
        for _, data in pieces:
            piece = decode_tree(data)
            if "report" in piece:
                yield index, data
            elif "lanes_ns" in piece:
                announced.append(piece["lanes_ns"])
            elif piece["phase"] == TIME_MOVES:
                task.take(piece["lane"], piece["train"])
            else:
                later.append((piece["lane"], piece["train"]))
        if before:
            assert len(announced) == before, f"{len(announced)} of {before} shards have announced their watermarks"
            task.begin([min(lane) for lane in zip(*announced, strict=True)])
        else:
            task.begin(job.lanes_ns[task.stage.number])
        for lane, train in later:
            task.take(lane, train)
        yield from task.end()

    return run_next


class _StageTask:
    def __init__(self, stage: BuiltStage, job: BatchJob, index: int) -> None:
        self.stage = stage
        self._job = job
        self._index = index
        self._store = CheckpointStore(job.checkpoint)
        self._attempt = secrets.token_hex(4)
        self._results = _Results(stage, self._store, f"{job.folder}/out", f"{stage.number}-{index}-{self._attempt}")
        self._onward = _Onward(stage, index)
        self._lanes_ns: list[int] = []
        # A box whose results follow each train gets the batch as one train, and a lane with an order is sorted. Others
        # take the batch as it comes.
        self._by_train = any(getattr(b.box, "goes_by_train", False) for b in stage.boxes)
        self._whole: dict[int, list[Train]] = {}
        self._has_begun = False
        self._place = (job.checkpoint, f"{stage.number}-{index}")
        found = job.states.get(self._place[1])
        self._saved = None if found is None else ShardFiles.of(found)
        self._taken = TakenLog(room_for(self._saved))
        self._run = self._ready_run()

    def _ready_run(self) -> ShardRun:
        """Return the shard in the state that the batch before has left."""
        kept = KEPT.take(self._place, self._saved, self._job.states)
        if kept is not None:
            kept.attach(self._results.deliver, self._onward.take)
            return kept
        run = ShardRun(self.stage, self._results.deliver, self._onward.take)
        load(self.stage, self._store, self._saved, run)
        return run

    def begin(self, lanes_ns: Iterable[int]) -> None:
        """End the first phase. Tuples that were taken before are of this phase."""
        self._take_whole()
        self._lanes_ns = list(lanes_ns)
        self._run.advance(self._lanes_ns)
        self._has_begun = True

    def take(self, lane: int, train: Train) -> None:
        if self._by_train or (self.stage.has_state and self.stage.orders[lane] is not None):
            self._whole.setdefault(lane, []).append(train)
            return
        self._take(lane, train)
        if self._has_begun:
            self._run.go()

    def _take(self, lane: int, train: Train) -> None:
        self._taken.note(TUPLES_RUN if self._has_begun else TIME_MOVES, lane, train)
        self._run.take(lane, train)

    def ready(self) -> Iterator[Piece]:
        """Yield what is enough for a piece already."""
        yield from self._onward.full()

    def end(self) -> Iterator[Piece]:
        self._take_whole()
        self._run.go(self._job.now_ns)
        yield from self._onward.all()
        if self.stage.has_state and self.stage.next_lanes:
            watermarks = _bytes({"lanes_ns": self._run.watermarks(self._lanes_ns)})
            for shard in range(self.stage.shards):
                yield shard, watermarks
        yield self._index % self.stage.shards, _bytes({"report": self._report()})

    def _take_whole(self) -> None:
        """Take the tuples of one phase, each lane as one train, in the order of its field."""
        for lane, trains in self._whole.items():
            train, order = Train.concat(trains), self.stage.orders[lane]
            if order is not None:
                train = train.take(np.argsort(train.columns[train.schema.index(order)], kind="stable"))
            self._take(lane, train)
        self._whole.clear()

    def _report(self) -> dict[str, Any]:
        report: dict[str, Any] = {
            "stage": self.stage.number,
            "shard": self._index,
            "counts": self._run.counts(),
            "results": self._results.close(),
        }
        if self.stage.has_state:
            name = f"{self._job.folder}/state/{self.stage.number}-{self._index}-{self._attempt}"
            moved = {"lanes_ns": self._lanes_ns, "now_ns": self._job.now_ns}
            saved = save(self._store, name, self._run, self._saved, self._taken, moved)
            report["state"], report["state_bytes"] = saved.as_data(), saved.nbytes
            self._run.attach(lambda *_: None, lambda *_: None)
            KEPT.keep(self._place, saved, self._run)
        return report


class _Results:
    """The results of a shard: one file for each output that has some."""

    def __init__(self, stage: BuiltStage, store: CheckpointStore, folder: str, name: str) -> None:
        self._stage = stage
        self._store = store
        self._folder, self._end = folder, f"-{name}.parquet"
        self._writers: dict[int, tuple[pq.ParquetWriter, Any]] = {}  # with the file that it writes
        self._rows: dict[int, int] = {}
        self._strings = PoolArrays()

    def deliver(self, output: int, train: Train) -> None:
        if output not in self._writers:
            file = self._store.output(self._name(output))
            schema = result_schema(self._stage.outputs[output])
            self._writers[output] = (pq.ParquetWriter(file, schema, compression="zstd"), file)
            self._rows[output] = 0
        self._writers[output][0].write_batch(result_batch(train, self._strings))
        self._rows[output] += train.count

    def _name(self, output: int) -> str:
        return f"{self._folder}/{output}{self._end}"

    def close(self) -> list[list[Any]]:
        for writer, file in self._writers.values():
            writer.close()
            file.close()
        return [[output, self._name(output), rows] for output, rows in self._rows.items()]


@dataclass
class _Heap:
    trains: list[Train] = field(default_factory=list)
    nbytes: int = 0


class _Onward:
    """The tuples for the next stage, by shard, lane and phase."""

    def __init__(self, stage: BuiltStage, index: int) -> None:
        self._lanes = stage.next_lanes
        self._shards = stage.shards
        self._index = index
        self._hash = KeyHash(SEED)
        self._heaps: dict[tuple[int, int, int], _Heap] = {}

    def take(self, lane: int, phase: int, train: Train) -> None:
        shards = self._shards_of(self._lanes[lane], train)
        if isinstance(shards, int):
            self._put((shards, lane, phase), train)
            return
        order = np.argsort(shards, kind="stable")
        bounds = np.searchsorted(shards.take(order), np.arange(self._shards + 1))
        for shard in range(self._shards):
            mine = order[bounds[shard] : bounds[shard + 1]]
            if mine.shape[0]:
                self._put((shard, lane, phase), train.take(mine))

    def _shards_of(self, lane: LaneKey, train: Train) -> Any:
        if lane.by == "one":
            return 0
        if lane.by == "any":
            return self._index % self._shards
        key = lane.box.key_of(lane.port, train)  # type: ignore[union-attr]
        hashes = self._hash.of([key[part] for part in lane.parts], train.count)
        return (hashes % np.uint64(self._shards)).astype(np.int64)

    def _put(self, place: tuple[int, int, int], train: Train) -> None:
        heap = self._heaps.setdefault(place, _Heap())
        heap.trains.append(train)
        heap.nbytes += train.nbytes

    def full(self) -> Iterator[Piece]:
        for place in [place for place, heap in self._heaps.items() if heap.nbytes >= SHIPPED_BYTES]:
            yield self._piece(place)

    def all(self) -> Iterator[Piece]:
        for place in list(self._heaps):
            yield self._piece(place)

    def _piece(self, place: tuple[int, int, int]) -> Piece:
        shard, lane, phase = place
        train = Train.concat(self._heaps.pop(place).trains)
        return shard, _bytes({"lane": lane, "phase": phase, "train": train})


def _bytes(data: Any) -> bytes:
    return b"".join(encode_tree(data))


def reports_of(pieces: Iterable[Piece]) -> list[dict[str, Any]]:
    """Return the reports among the pieces of the last stage."""
    return [piece["report"] for _, data in pieces if "report" in (piece := decode_tree(data))]


__all__ = ["TIME_MOVES", "TUPLES_RUN", "BatchJob", "front_task", "next_task", "reports_of"]
