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
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from engine.lab.bench.overload.arrivals import ArrivalShape
from engine.lab.bench.overload.rows import read_rows
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


def connected(port: int, *, is_short: bool = True) -> socket.socket:
    """Connect. A short send buffer is for rows that wait: in the kernel they get old, and ``oldest`` cannot drop them.
    With a long receive buffer it would make the sender wait for late acknowledgements."""
    connection = socket.socket()
    if is_short:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BYTES)
    connection.connect(("127.0.0.1", port))
    return connection


# -- sending -----------------------------------------------------------------------------------------------------------


class StreamSender:
    """Send one stream: the rows of a sample over and over, each with the time at which it is due."""

    def __init__(self, spec: dict[str, Any], load: dict[str, Any]) -> None:
        self._rows = read_rows(spec)
        self.per_s: float = spec["per_s"]
        self.manner: str = load["manner"]
        self._keep: float = load["keep"]
        self._room: int = max(CHUNK_TUPLES, int(load["buffer_s"] * self.per_s))
        self._random = np.random.default_rng(load["seed"])
        self._at = 0
        self._owed = 0.0
        self._waiting: deque[tuple[Any, int]] = deque()  # payloads and their tuples
        self._tuples = 0
        self._changed = threading.Condition()
        self._ended = False
        self.offered = self.dropped = 0
        self._connection = connected(spec["port"], is_short=load.get("is_short", True))
        self._thread = threading.Thread(target=self._write, daemon=True)
        self._thread.start()

    def tick(self, due_ns: int, tuples: float) -> None:
        self._owed += tuples
        while self._owed >= 1:
            count = min(int(self._owed), CHUNK_TUPLES, self._rows.count - self._at)
            at, self._at = self._at, (self._at + count) % self._rows.count
            self._owed -= count
            self.offered += count
            payload, kept = self._rows.cut(at, count, self._mask(count), due_ns)
            self.dropped += count - kept
            self._put(payload, kept)

    def _mask(self, count: int) -> npt.NDArray[np.bool_] | None:
        if self.manner != "random" or self._keep >= 1:
            return None
        return self._random.random(count) < self._keep

    def _put(self, payload: Any, tuples: int) -> None:
        with self._changed:
            full = self._tuples >= self._room
            if full and self.manner == "newest":
                self.dropped += tuples
                return
            self._waiting.append((payload, tuples))
            self._tuples += tuples
            while self.manner == "oldest" and self._tuples > self._room and len(self._waiting) > 1:
                _, lost = self._waiting.popleft()
                self._tuples -= lost
                self.dropped += lost
            self._changed.notify()

    def _write(self) -> None:
        try:
            with self._rows.opened(self._connection) as write:
                while (payload := self._next()) is not None:
                    write(payload)
        except (OSError, pa.ArrowException):
            pass  # the daemon has ended, and with it the run

    def _next(self) -> Any:
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._ended)
            if not self._waiting:
                return None
            payload, tuples = self._waiting.popleft()
            self._tuples -= tuples
            return payload

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
    """Send all streams in step, as fast as the daemon reads. Event time is the real time, or with ``event_per_s`` it
    advances with the rows: a join then meets as many partners as at that rate."""
    with suppress(OSError, pa.ArrowException), ExitStack() as stack:  # the daemon may end first
        writers = []
        for stream in spec["streams"]:
            rows = read_rows(stream)
            writers.append(
                (
                    stream,
                    rows,
                    stack.enter_context(rows.opened(connected(stream["port"], is_short=spec.get("is_short", True)))),
                )
            )
        most = max(stream["per_s"] for stream in spec["streams"])
        dense = spec.get("event_per_s")
        chunk = CHUNK_TUPLES if dense is None else max(1, min(CHUNK_TUPLES, int(dense * TICK_S)))
        say(ready=True)
        event_ns = begun_ns = start_time()
        at = 0
        while (now_ns := time.time_ns()) < begun_ns + spec["seconds"] * 1e9:
            sent = 0
            for stream, rows, write in writers:
                count = max(1, round(chunk * stream["per_s"] / most))
                write(rows.cut(at % (rows.count - count), count, None, now_ns if dense is None else event_ns)[0])
                sent += count
            at += chunk
            event_ns += 0 if dense is None else int(sent / dense * 1e9)
        say(ended=True)


# -- reading -----------------------------------------------------------------------------------------------------------


def latest_ns(batch: pa.RecordBatch, times: Sequence[str]) -> npt.NDArray[np.int64]:
    """Return the latest of these fields of each row: the time at which the row was due."""
    columns = [batch.column(batch.schema.get_field_index(t)).cast(pa.timestamp("ns")).cast(pa.int64()) for t in times]
    latest: npt.NDArray[np.int64] = np.max([c.to_numpy(zero_copy_only=False) for c in columns], axis=0)
    return latest


class OutputTally:
    """What one output delivered: counts, utility and value by due time, in tenths of a second."""

    def __init__(self, spec: dict[str, Any], seconds: float) -> None:
        self.spec = spec
        self._bins = int(seconds * BINS_PER_S)
        self._warm = int(spec["warm_s"] * BINS_PER_S)
        self.counts, self.utility, self.value = (np.zeros(self._bins) for _ in range(3))
        self.tuples = 0
        self.latencies: list[np.ndarray[Any, Any]] = []
        self.begun_ns = 0

    def add(self, due_ns: npt.NDArray[np.int64], came_ns: int, columns: Any) -> None:
        """Count results that were due at these times and came now. Their worth follows from ``columns``."""
        self.tuples += len(due_ns)
        delay_ns = came_ns - due_ns
        at = ((due_ns - self.begun_ns) * BINS_PER_S // 1_000_000_000).astype(np.int64)
        inside = (at >= 0) & (at < self._bins)
        at, delay_ns = at[inside], delay_ns[inside]
        xs, ys = self.spec["latency"]
        self.latencies.append(delay_ns[at >= self._warm])
        self.counts += np.bincount(at, minlength=self._bins)
        self.utility += np.bincount(at, np.interp(delay_ns, xs, ys), self._bins)
        self.value += np.bincount(at, worths(self.spec["value"], len(due_ns), columns)[inside], self._bins)

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


class OutputReader(OutputTally):
    """Read one output over its socket."""

    def __init__(self, spec: dict[str, Any], seconds: float) -> None:
        super().__init__(spec, seconds)
        self.connection = socket.create_connection(("127.0.0.1", spec["port"]))
        self._kept: list[tuple[pa.RecordBatch, int]] = []  # whole results and when they came, where they are wanted

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
        if "rows" in self.spec:
            self._kept.append((batch, now_ns))
        self.add(latest_ns(batch, self.spec["times"]), now_ns, batch)

    def write_rows(self) -> None:
        """Write the results that were kept to the file that the spec names, each with the time at which it came."""
        if self._kept:
            schema = self._kept[0][0].schema.append(pa.field("came_ns", pa.int64()))
            with pa.OSFile(self.spec["rows"], "wb") as file, pa.ipc.new_file(file, schema) as writer:
                for batch, now_ns in self._kept:
                    came = pa.array(np.full(batch.num_rows, now_ns, np.int64))
                    writer.write_batch(pa.RecordBatch.from_arrays([*batch.columns, came], schema=schema))


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
    for reader in readers:
        reader.write_rows()
    say(outputs=[reader.answer() for reader in readers])


if __name__ == "__main__":
    {"send": send, "saturate": saturate, "read": read}[sys.argv[1]](json.loads(Path(sys.argv[2]).read_text()))
