"""Which batches of which query were decided, and which were finished: one file on disk, always replaced whole.

``exchange.py`` explains the steps. The ledger makes the first step durable (the decision) and the last one (done).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from threading import Lock
from typing import Any

from router.spark.daemon.json_file import read_json, replace_json
from router.spark.wire.disk import sync_path
from router.spark.wire.errors import SparkFailedError, SparkRefusedError

QUERIES = 10_000
NAME_CHARACTERS = 64


class BatchLedger:
    """Decided batches, and the last finished batch of each query. Any thread. Raises SparkFailedError.

    What cannot be written is not so: a batch whose decision is not on disk could enter a second time after a crash.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._path = folder / "book.json"
        self._lock = Lock()
        data = {"epoch": 0, "queries": {}, "pending": [], **(read_json(self._path) or {})}
        self._epoch: int = data["epoch"]
        self._queries: dict[str, int] = data["queries"]
        self._pending: list[dict[str, Any]] = data["pending"]
        for file in folder.glob("*.rows"):
            if not self.is_decided(file.stem):
                file.unlink()  # of a write that was never committed

    def staged(self, name: str) -> Path:
        """Return the path of staged rows. Raises SparkRefusedError for a name that could leave the folder."""
        if not (name.isascii() and name.isalnum() and len(name) <= NAME_CHARACTERS):
            raise SparkRefusedError("that is not the name of staged rows")
        return self._folder / f"{name}.rows"

    def is_decided(self, name: str) -> bool:
        """Tell whether staged rows belong to a batch that is decided and not finished."""
        return any(name in entry["staged"] for entry in self._pending)

    def last(self, query: str) -> int:
        """Return the last finished batch of a query; -1 for a query without one."""
        return self._queries.get(query, -1)

    def pending(self) -> list[dict[str, Any]]:
        return list(self._pending)

    def decide(self, query: str, batch: int, stream: str, staged: list[str], now_ns: int) -> dict[str, Any]:
        """Record that a batch consists of these staged rows. A batch that was decided before stays as it was."""
        with self._lock:
            for entry in self._pending:
                if (entry["query"], entry["batch"]) == (query, batch):
                    return entry
            missing = [name for name in staged if not self.staged(name).is_file()]
            if missing:
                raise SparkRefusedError(f"{len(missing)} staged parts are gone: write them again")
            epoch = max(now_ns, self._epoch + 1)
            entry = {"query": query, "batch": batch, "stream": stream, "staged": staged, "epoch": epoch}
            self._sync_names()
            self._write(epoch, self._queries, [*self._pending, entry])
            return entry

    def done(self, entry: Mapping[str, Any]) -> None:
        """Record that a batch is finished. Beyond QUERIES the query that is quiet for longest is forgotten."""
        with self._lock:
            pending = [e for e in self._pending if e["epoch"] != entry["epoch"]]
            queries = {query: last for query, last in self._queries.items() if query != entry["query"]}
            queries[entry["query"]] = entry["batch"]
            while len(queries) > QUERIES:
                queries.pop(next(iter(queries)))
            self._write(self._epoch, queries, pending)

    def _sync_names(self) -> None:
        """Sync the names of staged rows before a decision refers to them."""
        try:
            sync_path(self._folder)
        except OSError as error:
            raise SparkFailedError(f"{self._folder} cannot be synced: {error.strerror}") from error

    def _write(self, epoch: int, queries: dict[str, int], pending: list[dict[str, Any]]) -> None:
        replace_json(self._path, {"epoch": epoch, "queries": queries, "pending": pending})
        self._epoch, self._queries, self._pending = epoch, queries, pending
