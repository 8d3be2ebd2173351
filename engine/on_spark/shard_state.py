"""The state of one shard over batches: a snapshot, and behind it a log of what the shard has taken since.

A batch that adds little to a large state must not write all of it. So a task writes what it took, as long as that is
small beside the snapshot, and the next task runs it again on the snapshot; the boxes give the same state for the same
trains. When the logs have grown to ``LOG_SHARE`` of the snapshot, or there are ``MOST_LOGS``, the task writes a
snapshot. Then reading a state takes at most half as long again as reading its snapshot.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from engine.on_spark.shard import Phase, ShardRun
from engine.on_spark.stage_spec import BuiltStage
from engine.on_spark.store import CheckpointStore
from storage.train import Train
from storage.tree import decode_tree, encode_tree

LOG_SHARE = 0.5
MOST_LOGS = 16
SMALLEST_SNAPSHOT = 1024**2  # below this a snapshot is as cheap as a log

SavedFile = tuple[str, int, int]  # its name, its checksum, its bytes


@dataclass(frozen=True)
class ShardFiles:
    """The files of a state: a snapshot and the logs behind it, in order."""

    snapshot: SavedFile
    logs: tuple[SavedFile, ...] = ()

    @classmethod
    def of(cls, data: Sequence[Any]) -> ShardFiles:
        return cls((data[0][0], data[0][1], data[0][2]), tuple((f[0], f[1], f[2]) for f in data[1]))

    def as_data(self) -> list[Any]:
        return [list(self.snapshot), [list(log) for log in self.logs]]

    @property
    def files(self) -> list[str]:
        return [self.snapshot[0], *(log[0] for log in self.logs)]

    @property
    def nbytes(self) -> int:
        return self.snapshot[2] + sum(log[2] for log in self.logs)


@dataclass
class TakenLog:
    """What a shard takes in one batch: by phase, lane and train."""

    room: int  # bytes; beyond them nothing is kept, and the batch ends with a snapshot
    trains: list[tuple[int, int, Train]] = field(default_factory=list)
    nbytes: int = 0
    is_full: bool = False

    def note(self, phase: Phase, lane: int, train: Train) -> None:
        self.nbytes += train.nbytes + sum(pool.nbytes for pool in {id(p): p for p in train.pools if p}.values())
        if self.nbytes > self.room:
            self.is_full = True
            self.trains.clear()
        elif not self.is_full:
            self.trains.append((phase, lane, train))


def load(stage: BuiltStage, store: CheckpointStore, saved: ShardFiles | None, run: ShardRun) -> None:
    """Bring a shard to the state that was saved. What its boxes emit on the way has been emitted before."""
    if saved is None:
        return
    run.restore(decode_tree(store.read(*saved.snapshot[:2])))
    for name, checksum, _ in saved.logs:
        log = decode_tree(store.read(name, checksum))
        with run.muted():
            for phase in (0, 1):
                for lane, train in log["trains"][phase]:
                    run.take(lane, train)
                if phase == 0:
                    run.advance(log["lanes_ns"])
            run.go(log["now_ns"])


def room_for(saved: ShardFiles | None) -> int:
    """Return how many bytes the log of the next batch may have; 0 when a snapshot is due."""
    if saved is None or len(saved.logs) >= MOST_LOGS or saved.snapshot[2] < SMALLEST_SNAPSHOT:
        return 0
    return max(0, int(saved.snapshot[2] * LOG_SHARE) - sum(log[2] for log in saved.logs))


def save(
    store: CheckpointStore, name: str, run: ShardRun, saved: ShardFiles | None, taken: TakenLog, moved: dict[str, Any]
) -> ShardFiles:
    """Write the log of the batch, or a snapshot where that is due. ``moved`` has the time of the batch."""
    if saved is not None and taken.room and not taken.is_full:
        by_phase: list[list[Any]] = [[], []]
        for phase, lane, train in taken.trains:
            by_phase[phase].append([lane, train])
        written = _write(store, f"{name}.log", {**moved, "trains": by_phase})
        return ShardFiles(saved.snapshot, (*saved.logs, written))
    return ShardFiles(_write(store, name, run.snapshot()))


def _write(store: CheckpointStore, name: str, data: Any) -> SavedFile:
    content = b"".join(encode_tree(data))
    return name, store.write(name, content), len(content)
