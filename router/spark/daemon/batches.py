"""Which batches of which query were decided, and which were finished: one file on disk, always replaced whole.

``exchange.py`` explains the steps. The ledger makes the first step durable (the decision) and the last one (done).
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from threading import Lock
from typing import Any

from router.spark.wire.errors import SparkRefusedError

QUERIES = 10_000
NAME_CHARACTERS = 64


class BatchLedger:
    """Decided batches, and the last finished batch of each query. Any thread."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._path = folder / "book.json"
        self._lock = Lock()
        text = self._path.read_text() if self._path.is_file() else "{}"
        data = {"epoch": 0, "queries": {}, "pending": [], **json.loads(text)}
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
            self._epoch = max(now_ns, self._epoch + 1)
            entry = {"query": query, "batch": batch, "stream": stream, "staged": staged, "epoch": self._epoch}
            self._pending.append(entry)
            self._write()
            return entry

    def done(self, entry: Mapping[str, Any]) -> None:
        """Record that a batch is finished. Beyond QUERIES the query that is quiet for longest is forgotten."""
        with self._lock:
            self._pending = [e for e in self._pending if e["epoch"] != entry["epoch"]]
            self._queries.pop(entry["query"], None)
            self._queries[entry["query"]] = entry["batch"]
            while len(self._queries) > QUERIES:
                self._queries.pop(next(iter(self._queries)))
            self._write()

    def _write(self) -> None:
        new = self._path.with_name("book.new")
        with new.open("w") as out:
            json.dump({"epoch": self._epoch, "queries": self._queries, "pending": self._pending}, out)
            out.flush()
            os.fsync(out.fileno())
        os.replace(new, self._path)
