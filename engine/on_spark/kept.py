"""States that a Python worker keeps between batches, so that the next one need not read them.

To read a state back costs about 1.4 s of CPU for 2 million keys, twenty times as much as a batch of 200,000 tuples.
Spark uses a Python worker again for later tasks. So a worker keeps the shards that it has run, each under the files in
which the same state was written. The next task takes a kept state only if the driver names exactly these files, and
their names are never used twice; so a state that was left behind by a batch that failed, or by a task that ran again,
is never taken.

A worker keeps only states that the current batch begins with, and ``MOST_BYTES`` of them. Which worker gets which shard
is Spark's choice: with one worker it always finds its state, with several it may have to read it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from engine.on_spark.shard import ShardRun
from engine.on_spark.shard_state import ShardFiles

MOST_BYTES = 2 * 1024**3  # of the files; in memory a state has about as many

Place = tuple[str, str]  # the checkpoint, and the stage and the shard


class KeptStates:
    """Owner: the worker, which runs one task at a time."""

    def __init__(self) -> None:
        self._kept: dict[Place, tuple[ShardFiles, ShardRun]] = {}
        self.taken = 0

    def clear(self) -> None:
        self._kept.clear()

    def take(self, place: Place, saved: ShardFiles | None, states: Mapping[str, Any]) -> ShardRun | None:
        """Return the state in these files, if it is kept. ``states``: the files of all shards; others are dropped."""
        for other, (files, _) in list(self._kept.items()):
            found = states.get(other[1]) if other[0] == place[0] else None
            if found is None or ShardFiles.of(found) != files:
                del self._kept[other]
        kept = self._kept.pop(place, None)
        if kept is None or saved is None:
            return None
        self.taken += 1
        return kept[1]

    def keep(self, place: Place, saved: ShardFiles, run: ShardRun) -> None:
        if saved.nbytes + sum(files.nbytes for files, _ in self._kept.values()) <= MOST_BYTES:
            self._kept[place] = (saved, run)


KEPT = KeptStates()
"""Of this worker."""
