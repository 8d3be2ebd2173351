"""The sending and reading processes: ``python -m engine.lab.bench.overload.clients send|saturate|read SPEC.json``.

Each one says that it is ready, waits for a line with the start time (ns), and answers with one JSON line at its end.
They use Arrow, because at four times the knee a client that writes JSON would be the bottleneck.
"""

from __future__ import annotations

import json
import socket
import sys
import threading
import time
from collections import deque
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from engine.lab.bench.overload.arrivals import ArrivalShape
from engine.lab.bench.overload.tuple_worth import worths

TICK_S = 0.01
CHUNK_TUPLES = 2_000  # of a batch at most; a tick of more tuples is several batches
BINS_PER_S = 10
SEND_BYTES = 16 << 10


def say(**record: object) -> None:
    sys.stdout.write(json.dumps(record) + "\n")
    sys.stdout.flush()


def start_time() -> int:
    """Read the start time; exit if the parent has ended, which closes standard input."""
    line = sys.stdin.readline()
    if not line:
        sys.exit(1)
    return int(line)


def connected(port: int) -> socket.socket:
    """Connect with a short send buffer: tuples in the kernel get old, and ``oldest`` cannot drop them."""
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BYTES)
    connection.connect(("127.0.0.1", port))
    return connection


# -- sending -----------------------------------------------------------------------------------------------------------


class StreamSender:
    """Send one stream: the rows of a sample over and over, each with the time at which it is due."""

    def __init__(self, spec: dict[str, Any], load: dict[str, Any]) -> None:
        with pa.OSFile(spec["sample"], "rb") as file:
            self._table: pa.RecordBatch = pa.ipc.open_file(file).get_batch(0)
        self._time = self._table.schema.get_field_index(spec["time"])
        self.per_s: float = spec["per_s"]
        self.manner: str = load["manner"]
        self._keep: float = load["keep"]
        self._room: int = max(CHUNK_TUPLES, int(load["buffer_s"] * self.per_s))
        self._random = np.random.default_rng(load["seed"])
        self._at = 0
        self._owed = 0.0
        self._waiting: deque[pa.RecordBatch] = deque()
        self._tuples = 0
        self._changed = threading.Condition()
        self._ended = False
        self.offered = self.dropped = 0
        self._connection = connected(spec["port"])
        self._thread = threading.Thread(target=self._write, daemon=True)
        self._thread.start()

    def tick(self, due_ns: int, tuples: float) -> None:
        self._owed += tuples
        while self._owed >= 1:
            count = min(int(self._owed), CHUNK_TUPLES, self._table.num_rows - self._at)
            batch = self._table.slice(self._at, count)
            self._at = (self._at + count) % self._table.num_rows
            self._owed -= count
            self.offered += count
            self._put(self._kept(batch), due_ns)

    def _kept(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        if self.manner != "random" or self._keep >= 1:
            return batch
        mask = self._random.random(batch.num_rows) < self._keep
        self.dropped += batch.num_rows - int(mask.sum())
        return batch.filter(pa.array(mask))

    def _put(self, batch: pa.RecordBatch, due_ns: int) -> None:
        stamps = pa.array(np.full(batch.num_rows, due_ns, np.int64)).cast(batch.schema.field(self._time).type)
        stamped = batch.set_column(self._time, batch.schema.field(self._time), stamps)
        with self._changed:
            full = self._tuples >= self._room
            if full and self.manner == "newest":
                self.dropped += stamped.num_rows
                return
            self._waiting.append(stamped)
            self._tuples += stamped.num_rows
            while self.manner == "oldest" and self._tuples > self._room and len(self._waiting) > 1:
                lost = self._waiting.popleft().num_rows
                self._tuples -= lost
                self.dropped += lost
            self._changed.notify()

    def _write(self) -> None:
        try:
            with self._connection.makefile("wb", 0) as file, pa.ipc.new_stream(file, self._table.schema) as writer:
                while (batch := self._next()) is not None:
                    writer.write_batch(batch)
        except (OSError, pa.ArrowException):
            pass  # the daemon has ended, and with it the run

    def _next(self) -> pa.RecordBatch | None:
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._ended)
            if not self._waiting:
                return None
            batch = self._waiting.popleft()
            self._tuples -= batch.num_rows
            return batch

    def end(self, linger_s: float) -> int:
        """Stop, and return the number of tuples that could not be sent."""
        with self._changed:
            self._ended = True
            self._changed.notify()
        self._thread.join(linger_s)
        with self._changed:
            return self._tuples


def send(spec: dict[str, Any]) -> None:
    shape = ArrivalShape(spec["shape"], spec["load"], spec["seconds"])
    feeds = [StreamSender(stream, spec) for stream in spec["streams"]]
    say(ready=True)
    begun_ns = start_time()
    ticks = round(shape.seconds / TICK_S)
    worst_s = 0.0
    for i in range(ticks):
        due_ns = begun_ns + int(i * TICK_S * 1e9)
        ahead_s = (due_ns - time.time_ns()) / 1e9
        if ahead_s > 0:
            time.sleep(ahead_s)
        worst_s = max(worst_s, -ahead_s)
        factor = shape.factor(i * TICK_S)
        for feed in feeds:
            feed.tick(due_ns, feed.per_s * factor * TICK_S)
    unsent = sum(feed.end(spec["grace_s"]) for feed in feeds)
    by_stream = {stream["name"]: feed.offered for stream, feed in zip(spec["streams"], feeds, strict=True)}
    dropped = sum(f.dropped for f in feeds)
    say(by_stream=by_stream, offered=sum(by_stream.values()), dropped=dropped, unsent=unsent, behind_s=worst_s)


def saturate(spec: dict[str, Any]) -> None:
    """Send all streams in step, as fast as the daemon reads."""
    writers = []
    for stream in spec["streams"]:
        with pa.OSFile(stream["sample"], "rb") as sample:
            table: pa.RecordBatch = pa.ipc.open_file(sample).get_batch(0)
        file = socket.create_connection(("127.0.0.1", stream["port"])).makefile("wb", 0)
        writers.append((stream, table, pa.ipc.new_stream(file, table.schema)))
    most = max(stream["per_s"] for stream in spec["streams"])
    say(ready=True)
    begun_ns = start_time()
    at = 0
    while (now_ns := time.time_ns()) < begun_ns + spec["seconds"] * 1e9:
        for stream, table, writer in writers:
            count = max(1, round(CHUNK_TUPLES * stream["per_s"] / most))
            rows = table.slice(at % (table.num_rows - count), count)
            index = table.schema.get_field_index(stream["time"])
            stamps = pa.array(np.full(count, now_ns, np.int64)).cast(table.schema.field(index).type)
            writer.write_batch(rows.set_column(index, table.schema.field(index), stamps))
        at += CHUNK_TUPLES
    say(ended=True)


# -- reading -----------------------------------------------------------------------------------------------------------


class OutputReader:
    """Read one output: counts, utility and value by due time, in tenths of a second."""

    def __init__(self, spec: dict[str, Any], seconds: float) -> None:
        self.spec = spec
        self._bins = int(seconds * BINS_PER_S)
        self._warm = int(spec["warm_s"] * BINS_PER_S)
        self.counts, self.utility, self.value = (np.zeros(self._bins) for _ in range(3))
        self.tuples = 0
        self.latencies: list[np.ndarray[Any, Any]] = []
        self.connection = socket.create_connection(("127.0.0.1", spec["port"]))
        self.begun_ns = 0

    def run(self) -> None:
        try:
            with self.connection.makefile("rb", 1 << 20) as file, pa.ipc.open_stream(file) as stream:
                for batch in stream:
                    self._take(batch, time.time_ns())
        except (OSError, pa.ArrowException):
            return

    def _take(self, batch: pa.RecordBatch, now_ns: int) -> None:
        if not batch.num_rows:
            return
        self.tuples += batch.num_rows
        due = batch.column(batch.schema.get_field_index(self.spec["time"])).cast(pa.timestamp("ns"))
        due_ns = due.cast(pa.int64()).to_numpy(zero_copy_only=False)
        delay_ns = now_ns - due_ns
        at = ((due_ns - self.begun_ns) * BINS_PER_S // 1_000_000_000).astype(np.int64)
        inside = (at >= 0) & (at < self._bins)
        at, delay_ns = at[inside], delay_ns[inside]
        xs, ys = self.spec["latency"]
        self.latencies.append(delay_ns[at >= self._warm])
        self.counts += np.bincount(at, minlength=self._bins)
        self.utility += np.bincount(at, np.interp(delay_ns, xs, ys), self._bins)
        self.value += np.bincount(at, worths(self.spec["value"], batch.num_rows, batch)[inside], self._bins)

    def answer(self) -> dict[str, Any]:
        delays = np.concatenate(self.latencies) if self.latencies else np.zeros(0)
        p50, p99 = np.quantile(delays, (0.5, 0.99)).tolist() if len(delays) else (0.0, 0.0)
        return {
            "name": self.spec["name"],
            "tuples": self.tuples,
            "p50_ns": p50,
            "p99_ns": p99,
            "counts": self.counts.tolist(),
            "utility": self.utility.tolist(),
            "value": self.value.tolist(),
            "warm": self._warm,
        }


def read(spec: dict[str, Any]) -> None:
    readers = [OutputReader(output, spec["seconds"]) for output in spec["outputs"]]
    say(ready=True)
    begun_ns = start_time()
    threads = []
    for reader in readers:
        reader.begun_ns = begun_ns
        threads.append(threading.Thread(target=reader.run, daemon=True))
        threads[-1].start()
    start_time()  # any line ends the run
    for reader in readers:
        reader.connection.shutdown(socket.SHUT_RDWR)
    for thread in threads:
        thread.join(5)
    say(outputs=[reader.answer() for reader in readers])


if __name__ == "__main__":
    {"send": send, "saturate": saturate, "read": read}[sys.argv[1]](json.loads(Path(sys.argv[2]).read_text()))
