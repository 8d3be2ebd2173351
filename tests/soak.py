"""A day of events through a real daemon, as fast as it takes them: memory, descriptors and files must not grow.

    python -m tests.soak                       24 hours at 1,000 events/s: 86.4 million events
    python -m tests.soak --hours 1             a shorter one

The event time of the stream runs through the hours, so windows close, sessions end, dedup and latest forget, and every
user's name is a new string. The network has a log, checkpoints and named readers. Beside the load, metrics are scraped,
and strangers connect, read a little and go. The answers are compared with numpy over the same events.

Memory is flat when the median of the last fifth is at most a tenth, and at most 48 MiB, above that of the second fifth:
the first fifth fills caches and pools. It must stay within clause G of GUARANTEES.md all the time.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from aurorad_client import Reader, Sender

from tests.e2e.daemon import RunningDaemon, connect, free_ports, running

NETWORK = """
engine: {{data_dir: {data}, memory: {budget}MiB, checkpoint: 5s}}
streams:
  events:
    schema: {{ts: timestamp, n: bigint, k: int, id: bigint, user: string}}
    time: ts
    max_skew: 36500d
    overload: block
    source: {{tcp: 127.0.0.1:{source}, format: arrow}}
boxes:
  once: {{dedup: events, by: [id], within: 30s}}
  minutes: {{aggregate: once, window: {{tumbling: 1m}}, by: [k], select: {{n: "count(*)", s: "sum(n)"}}}}
  moving: {{aggregate: once, window: {{sliding: 5m, advance: 1m}}, select: {{users: "count(distinct user)"}}}}
  visits: {{aggregate: once, window: {{session: 5s}}, by: [user], select: {{n: "count(*)"}}}}
  visits_a_minute: {{aggregate: visits, window: {{tumbling: 1m}}, select: {{n: "count(*)"}}}}
  seen: {{latest: once, by: [user], changes: [user], forget: 10s}}
  seen_a_minute: {{aggregate: seen, window: {{tumbling: 1m}}, select: {{n: "count(*)"}}}}
  left: {{filter: once, where: "n % 2 = 0"}}
  right: {{filter: once, where: "n % 2 = 1"}}
  pairs: {{join: [left, right], on: "l.k = r.k", within: 50ms, select: {{ts: l.ts, k: l.k}}}}
  pairs_a_minute: {{aggregate: pairs, window: {{tumbling: 1m}}, select: {{n: "count(*)"}}}}
outputs:
  minutes_out: {{from: minutes, sink: {{tcp: 127.0.0.1:{minutes}}}}}
  moving_out: {{from: moving, sink: {{tcp: 127.0.0.1:{moving}}}}}
  visits_out: {{from: visits_a_minute, sink: {{tcp: 127.0.0.1:{visits}}}}}
  seen_out: {{from: seen_a_minute, sink: {{tcp: 127.0.0.1:{seen}}}}}
  pairs_out: {{from: pairs_a_minute, sink: {{tcp: 127.0.0.1:{pairs}}}}}
"""
OUTPUTS = ("minutes", "moving", "visits", "seen", "pairs")
BUDGET_MIB = 128
BATCH = 20_000
STOP_SECONDS = 300  # on a busy machine the last checkpoint alone may take longer than a test's daemon gets
BEGIN_NS = 1_767_225_600 * 10**9  # 2026-01-01
PER_USER = 50  # events in a row of one user, who then never comes back
REPEATED = 101  # one event in this many repeats the id of the event before it


class Sample(NamedTuple):
    """The daemon at one moment."""

    events: int
    resident_mib: float
    descriptors: int
    threads: int
    state_mib: float
    disk_mib: float


class Counting(threading.Thread):
    """A named reader that sums up what an output says."""

    def __init__(self, name: str, port: int) -> None:
        super().__init__(name=f"reader-{name}", daemon=True)
        self._reader = Reader("127.0.0.1", port, "soak", after=0)
        self._name = name
        self.rows = 0
        self.sums: Counter[str] = Counter()

    def run(self) -> None:
        for batch in self._reader:
            self.rows += len(batch.rows)
            for row in batch.rows:
                for key in ("n", "s", "users"):
                    self.sums[key] += row.get(key, 0)
            batch.ack()

    def close(self) -> None:
        """End the reader: it would look for the daemon on a port that soon belongs to another one."""
        self._reader.close()


class Soak:
    """Owner: the main thread; the readers and the strangers have threads of their own."""

    def __init__(self, folder: Path, events: int, rate: int) -> None:
        self.folder = folder
        self.events = events - events % BATCH
        self.rate = rate
        self.samples: list[Sample] = []
        self.sent = 0
        self._ended = threading.Event()

    def run(self) -> dict[str, Any]:
        http, *ports = free_ports(2 + len(OUTPUTS))
        names = dict(zip(("source", *OUTPUTS), ports, strict=True))
        with running(
            self.folder, NETWORK.format(budget=BUDGET_MIB, data=self.folder / "data", **names), http
        ) as daemon:
            readers = {name: Counting(name, names[name]) for name in OUTPUTS}
            strangers = threading.Thread(target=self._strangers, args=(list(names.values()), daemon), daemon=True)
            for thread in (*readers.values(), strangers):
                thread.start()
            begun = time.monotonic()
            self._feed(daemon, names["source"])
            seconds = time.monotonic() - begun
            wrong = self._compare(readers)
            self._ended.set()
            strangers.join(60)
            residual = [x for x in daemon.get("/metrics").decode().splitlines() if x.startswith("aurorad_conservation")]
            wrong += [line for line in residual if not line.endswith(" 0.0")]
            for reader in readers.values():
                reader.close()
            code = daemon.end(seconds=STOP_SECONDS)
            for reader in readers.values():
                reader.join(60)
            wrong += [f"exit {code}"] if code else []
            wrong += [entry["message"] for entry in daemon.log if "exception" in entry]
        return {"events": self.sent, "seconds": round(seconds), "events_a_second": round(self.sent / seconds),
                **self.growth(), "wrong": wrong}  # fmt: skip

    def _feed(self, daemon: RunningDaemon, port: int) -> None:
        every = max(BATCH, self.events // 100)
        with Sender("127.0.0.1", port, "soak", epoch=1, format="arrow", window=8, timeout_s=300) as sender:
            for first in range(0, self.events, BATCH):
                sender.send(batch(first, BATCH, self.rate))
                self.sent = first + BATCH
                if self.sent // every > first // every:
                    self._look(daemon, self.sent)
            hour_later = batch(self.events, 1, self.rate, later_ns=3_600 * 10**9)
            sender.send(hour_later)  # closes every window
            sender.flush()

    def _look(self, daemon: RunningDaemon, events: int) -> None:
        process = Path(f"/proc/{daemon.process.pid}")
        state = sum(box.get("state_bytes", 0) for box in daemon.stats()["boxes"])
        files = [f for f in (self.folder / "data").rglob("*") if f.is_file()]
        size = 0
        for file in files:
            with suppress(FileNotFoundError):
                size += file.stat().st_size
        sample = Sample(events, daemon.rss_bytes() / 2**20, len(list((process / "fd").iterdir())),
                        len(list((process / "task").iterdir())), state / 2**20, size / 2**20)  # fmt: skip
        self.samples.append(sample)
        if len(self.samples) % 5 == 1:
            hours = events / self.rate / 3_600
            print(f"{hours:6.2f} h {events:12,} events {sample.resident_mib:7.0f} MiB resident {sample.state_mib:6.1f} "
                  f"MiB state {sample.disk_mib:7.0f} MiB on disk {sample.descriptors:4} fds {sample.threads:3} threads",
                  flush=True)  # fmt: skip

    def _strangers(self, ports: list[int], daemon: RunningDaemon) -> None:
        """Come and go, as probes and dashboards do."""
        turn = 0
        while not self._ended.wait(0.2):
            turn += 1
            with suppress(OSError):
                daemon.get("/metrics" if turn % 5 == 0 else "/ready")
                with connect(ports[turn % len(ports)]) as sock:
                    if turn % len(ports):
                        sock.settimeout(0.05)
                        sock.recv(1_000)

    def _compare(self, readers: dict[str, Counting]) -> list[str]:
        """Wait until the readers have everything, and compare with numpy."""
        wanted = expected(self.events, self.rate)
        deadline = time.monotonic() + 600
        while time.monotonic() < deadline and any(readers[o].sums[k] < n for (o, k), n in wanted.items()):
            time.sleep(0.1)
        return [
            f"{output}.{key}: {readers[output].sums[key]:,} and not {number:,}"
            for (output, key), number in wanted.items()
            if readers[output].sums[key] != number
        ]

    def growth(self) -> dict[str, Any]:
        fifth = max(1, len(self.samples) // 5)
        facts: dict[str, Any] = {}
        for fact in ("resident_mib", "descriptors", "threads", "disk_mib"):
            early, late = (
                statistics.median(getattr(sample, fact) for sample in part)
                for part in (self.samples[fifth : 2 * fifth], self.samples[-fifth:])
            )
            facts[fact] = [round(early), round(late), round(max(getattr(s, fact) for s in self.samples))]
        early, late, _ = facts["resident_mib"]
        is_within = facts["resident_mib"][2] * 2**20 <= 1.25 * BUDGET_MIB * 2**20 + 250e6
        return {**facts, "is_within_budget": is_within, "is_flat": late <= early * 1.1 and late - early <= 48}


def batch(first: int, count: int, rate: int, later_ns: int = 0) -> pa.RecordBatch:
    """Return events by their numbers: the same for the daemon and for the oracle."""
    n = np.arange(first, first + count, dtype=np.int64)
    ts = BEGIN_NS + n * (10**9 // rate) + later_ns
    ids = np.where(n % REPEATED == REPEATED - 1, n - 1, n)
    users = pa.array(n // PER_USER).cast(pa.string())
    columns = [pa.array(ts, pa.timestamp("ns", "UTC")), pa.array(n), pa.array(n // 2 % 100, pa.int32()), pa.array(ids)]
    return pa.record_batch([*columns, users], names=["ts", "n", "k", "id", "user"])


def _chunks(events: int) -> Iterator[np.ndarray[Any, np.dtype[np.int64]]]:
    for first in range(0, events, 1_000_000):
        yield np.arange(first, min(events, first + 1_000_000), dtype=np.int64)


def expected(events: int, rate: int) -> dict[tuple[str, str], int]:
    """Return, by output and field, the sum of all results but those of the last event, which closes the windows."""
    count = total = pairs = users = 0
    for n in _chunks(events):  # a multiple of two and of PER_USER
        good = n % REPEATED != REPEATED - 1
        count += int(good.sum())
        total += int(n[good].sum())
        pairs += int((good[0::2] & good[1::2]).sum())
        users += int(good.reshape(-1, PER_USER).any(axis=1).sum())
    return {("minutes", "n"): count, ("minutes", "s"): total, ("pairs", "n"): pairs, ("visits", "n"): users,
            ("seen", "n"): users}  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    parser.add_argument("--hours", type=float, default=24.0, help="of the stream's own time")
    parser.add_argument("--rate", type=int, default=1_000, help="events a second of that time")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        verdict = Soak(Path(folder), round(options.hours * 3_600 * options.rate), options.rate).run()
    print(json.dumps(verdict))
    return 0 if verdict["is_flat"] and verdict["is_within_budget"] and not verdict["wrong"] else 1


if __name__ == "__main__":
    sys.exit(main())
