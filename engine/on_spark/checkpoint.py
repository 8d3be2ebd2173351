"""A checkpoint: whose it is, which batches have happened, and whether it is whole.

``query.json``
    The name of the query, the number of shards, and the boxes. They stay as they are as long as the checkpoint does.
``owner``
    A word that only the driver knows which writes this checkpoint. Another driver that takes the checkpoint over
    writes its own word, and the first one stops before its next manifest. On one machine a lock refuses the second
    driver at its start.
``batches/<number>/manifest.json``
    The batch has happened, and these files are its results and the state behind it.

Spark counts the batches in ``spark/``. The two parts of a checkpoint must belong together: a batch runs only on the
manifest of the batch before it. Without this check, a checkpoint that has lost files would begin anew with an empty
state, and nobody would notice.
"""

from __future__ import annotations

import fcntl
import json
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from engine.on_spark.plan import SparkPlan
from engine.on_spark.stage_spec import stage_texts
from engine.on_spark.store import CheckpointStore, SparkCheckpointError
from storage.checksum import crc32

FORMAT = 2
END = "-end"  # behind the number of the batch after which all windows were closed
ANEW = "begin with another checkpoint"

Manifest = dict[str, Any]


class SparkQuery:
    """The facts of a query that stay as long as its checkpoint. Owner: the driver."""

    def __init__(self, plan: SparkPlan, store: CheckpointStore, shards: int | None, cores: int) -> None:
        self.store = store
        known = _facts(store)
        if known is None:
            self.shards = shards or max(1, cores)
            self.name = f"q{secrets.token_hex(6)}"
            facts = {"format": FORMAT, "query": self.name, "shards": self.shards}
            facts["stages"] = stage_texts(plan, self.shards)
            store.write("query.json", json.dumps(facts).encode())
            store.sync(["query.json"])
            return
        self.shards, self.name = known["shards"], known["query"]
        if known["format"] != FORMAT:
            raise SparkCheckpointError(f"the checkpoint {store.place} is of another version of aurorad; {ANEW}")
        if shards is not None and shards != self.shards:
            raise SparkCheckpointError(
                f"the checkpoint {store.place} has {self.shards} shards, not {shards}: its state is divided by them; "
                f"leave --shards out, or {ANEW}"
            )
        if changed := _changed(known["stages"], stage_texts(plan, self.shards)):
            raise SparkCheckpointError(
                f"the checkpoint {store.place} is that of another network ({changed}): {ANEW}, or go back to the file "
                "that it began with"
            )


def _facts(store: CheckpointStore) -> dict[str, Any] | None:
    if not store.has("query.json"):
        if store.has("spark/metadata") or store.names("batches"):
            raise SparkCheckpointError(f"{store.place} has batches of a query, and no query.json: {ANEW}")
        return None
    try:
        facts: dict[str, Any] = json.loads(store.read("query.json"))
        return facts
    except ValueError as error:
        raise SparkCheckpointError(f"{store.place}/query.json is damaged ({error}): {ANEW}") from error


def _changed(before: list[str], now: list[str]) -> str:
    """Return what differs between the stages of the checkpoint and those of the network; empty when nothing does."""
    if before == now:
        return ""
    boxes = [{box["name"]: box for text in texts for box in json.loads(text)["boxes"]} for texts in (before, now)]
    names = sorted(name for name in {*boxes[0], *boxes[1]} if boxes[0].get(name) != boxes[1].get(name))
    return f"box {', '.join(names)} differs" if names else "its streams, outputs or stages differ"


class BatchLog:
    """The manifests of the batches. Owner: the driver that runs them."""

    def __init__(self, store: CheckpointStore) -> None:
        self._store = store
        self._word = secrets.token_hex(8)

    @contextmanager
    def owned(self) -> Iterator[None]:
        """Take the checkpoint over. Raises SparkCheckpointError when a driver on this machine has it."""
        with _lock(self._store):
            if self._last() is not None and not self._store.has("spark/metadata"):
                raise SparkCheckpointError(
                    f"{self._store.place} has batches, and spark/, which says what they have read, is not there: {ANEW}"
                )
            self.take()
            yield

    def take(self) -> None:
        self._store.write("owner", self._word.encode())

    def check_owner(self) -> None:
        if self._store.read("owner") != self._word.encode():
            raise SparkCheckpointError(f"another driver has taken over the checkpoint {self._store.place}")

    def find(self, name: str) -> Manifest | None:
        """Return the manifest of a batch; None when it has not happened."""
        file = f"batches/{name}/manifest.json"
        if not self._store.has(file):
            return None
        text, _, checksum = self._store.read(file).rpartition(b"\n")
        if checksum != b"%08x" % crc32(text):
            raise SparkCheckpointError(f"{self._store.place}/{file} is damaged: {ANEW}")
        manifest: Manifest = json.loads(text)
        return manifest

    def before(self, name: str) -> Manifest | None:
        """Return the manifest of the batch before this one, which has not happened; None for the first.

        Raises SparkCheckpointError when it is missing.
        """
        last, number = self._last(), _number(name)
        wanted = number if name.endswith(END) else number - 1
        if (-1 if last is None else _number(last)) != wanted:
            found = "none" if last is None else f"the last one is {_number(last)}"
            raise SparkCheckpointError(
                f"the checkpoint {self._store.place} is not whole: Spark comes to batch {number}, and of the batches "
                f"that have happened {found}; {ANEW}"
            )
        return None if last is None else self.find(last)

    def last(self) -> Manifest | None:
        last = self._last()
        return None if last is None else self.find(last)

    def record(self, name: str, manifest: Manifest) -> None:
        """Let a batch have happened."""
        self.check_owner()
        text, file = json.dumps(manifest).encode(), f"batches/{name}/manifest.json"
        self._store.write(file, b"%s\n%08x" % (text, crc32(text)))
        self._store.sync([file])

    def _last(self) -> str | None:
        names = reversed(self._store.names("batches"))
        return next((name for name in names if self._store.has(f"batches/{name}/manifest.json")), None)


def _number(name: str) -> int:
    return int(name.removesuffix(END))


@contextmanager
def _lock(store: CheckpointStore) -> Iterator[None]:
    """Hold a lock on the checkpoint, if it is on this machine. It ends with this process, however that ends."""
    path = store.local("lock")
    if path is None:
        yield
        return
    file = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise SparkCheckpointError(f"another driver runs on the checkpoint {store.place}") from None
        yield
    finally:
        os.close(file)
