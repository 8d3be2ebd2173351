"""Random cases of queries that start in the past, over live traffic, against plain arithmetic.

A daemon with a data_dir takes rows, numbered without end, and keeps them. A second daemon on the same folder has one
query more, which starts somewhere in the past, while rows go on. Between the two the first one stops in order, or is
cut off as by a SIGKILL: the folder is copied while it runs. Some cases cut the second one off as well, in the middle of
the replay, and a third one goes on.

The query must deliver what it would have delivered had it run since the row where it starts: the oracle knows all rows
and computes that in plain Python.
"""

from __future__ import annotations

import random
import shutil
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from threading import Thread
from time import monotonic, sleep, time_ns
from typing import Any, NamedTuple
from unittest.mock import patch

import numpy as np

from catalog.network import Network
from engine.daemon.daemon import Daemon
from engine.run.network_file import read_network
from storage.strings import StringPool
from storage.train import Train, constant_ns

MS = 10**6
SECONDS = 60.0
Row = tuple[Any, ...]


class Rows:
    """The rows that are sent: number n at row n - 1. Times are disordered, within the slack."""

    SLACK_MS = 50

    def __init__(self, seed: int, base_ns: int) -> None:
        self._random = np.random.default_rng(seed)
        self.base_ns = base_ns
        self.times: list[int] = []
        self._pool = StringPool([f"k{n}" for n in range(7)])

    def train(self, network: Network, count: int) -> Train:
        """Make the next rows."""
        first = len(self.times) + 1
        numbers = np.arange(first, first + count, dtype=np.int64)
        jitter = self._random.integers(0, self.SLACK_MS, count) * MS
        times = self.base_ns + numbers * MS - jitter
        self.times += times.tolist()
        return self._train(network, numbers, times)

    def last(self, network: Network) -> Train:
        """Make the row that closes every window."""
        number = len(self.times) + 1
        self.times.append(self.base_ns + number * MS + 10**11)
        return self._train(network, np.array([number]), np.array([self.times[-1]]))

    def _train(self, network: Network, numbers: Any, times: Any) -> Train:
        schema = network.stream("s").schema
        keys = (numbers % 7).astype(np.int32)
        columns = (times, keys, numbers, (numbers * 3 % 101).astype(np.float64))
        pools = (None, self._pool, None, None)
        return Train(schema, columns, constant_ns(time_ns(), len(numbers)), pools=pools)

    def behind(self, number: int) -> Iterator[tuple[int, int, int, float]]:
        """Yield (time, key, number, value) of each row from a number on."""
        for n in range(number, len(self.times) + 1):
            yield self.times[n - 1], n % 7, n, float(n * 3 % 101)


class Kind(NamedTuple):
    """A kind of query: its boxes, what its output reads, and what it delivers for rows from a number on."""

    boxes: str
    reads: str
    expected: Callable[[Rows, int], list[Row]]
    is_ordered: bool = True


def _windows(rows: Rows, first: int) -> list[Row]:
    sums: dict[tuple[int, str], list[float]] = defaultdict(lambda: [0.0, 0])
    for ns, key, _, value in list(rows.behind(first))[:-1]:
        at = sums[ns // (200 * MS), f"k{key}"]
        at[0] += value
        at[1] += 1
    return [(key, total, count) for (_, key), (total, count) in sums.items()]


def _counted(rows: Rows, first: int) -> list[Row]:
    values = [v for _, _, _, v in rows.behind(first)]
    return [(sum(values[at : at + 64]), 64) for at in range(0, len(values) - 63, 64)]


SELECT = 'select: {total: "sum(v)", rows: "count(*)"}'
KINDS = {
    "stream": Kind("", "s", lambda rows, first: [(n,) for _, _, n, _ in rows.behind(first)]),
    "filter": Kind(
        '  q1: {filter: s, where: "n % 3 = 0"}\n',
        "q1",
        lambda rows, first: [(n,) for _, _, n, _ in rows.behind(first) if n % 3 == 0],
    ),
    "chain": Kind(
        '  q1: {filter: s, where: "n % 2 = 0"}\n  q2: {map: q1, select: {n: "n * 10"}}\n',
        "q2",
        lambda rows, first: [(n * 10,) for _, _, n, _ in rows.behind(first) if n % 2 == 0],
    ),
    "kept": Kind(
        '  q1: {map: half, select: {n: "n + 1"}}\n',
        "q1",
        lambda rows, first: [(n + 1,) for _, _, n, _ in rows.behind(first) if n % 2 == 1],
    ),
    "count": Kind(f"  q1: {{aggregate: s, window: {{count: 64}}, {SELECT}}}\n", "q1", _counted),
    "window": Kind(
        f"  q1: {{aggregate: s, window: {{tumbling: 200ms}}, by: [key], {SELECT}}}\n", "q1", _windows, is_ordered=False
    ),
}


def network(folder: Path, kind: Kind | None, start: str) -> Network:
    boxes = "" if kind is None else kind.boxes
    output = "" if kind is None else f"  asked: {{from: {kind.reads}, start: {start}}}\n"
    return read_network(
        f"""
http: {{listen: off}}
log: {{level: error}}
engine: {{data_dir: {folder}, checkpoint: 1h}}
streams:
  s:
    schema: {{ts: timestamp, key: string, n: bigint, v: double}}
    time: ts
    slack: {Rows.SLACK_MS}ms
    overload: block
    keep: {{for: 24h}}
boxes:
  half: {{filter: s, where: "n % 2 = 1", keep: {{for: 24h}}}}
{boxes}outputs:
  base: {{from: half}}
{output}"""
    )


class StartCase:
    """One random case. ``wrong`` runs it."""

    def __init__(self, seed: int, folder: Path, kind: str = "") -> None:
        self.random = random.Random(seed)
        self.folder = folder
        self.kind_name = kind or self.random.choice(list(KINDS))
        self.kind = KINDS[self.kind_name]
        self.rows = Rows(seed, time_ns() - 1_800 * 10**9)
        self.got: list[Row] = []

    def wrong(self) -> str:
        """Run the case, and say what is wrong; empty when nothing is."""
        near = self.random.choice((100, 3_000, 65_536))  # how early the hand-over is tried
        with patch("engine.daemon.history.starts.NEAR_TUPLES", near):
            return self._wrong()

    def _wrong(self) -> str:
        folder = self._first_daemon()
        start, first = self._choose()
        if self.random.random() < 0.4:
            folder = self._interrupted(folder, start)
        with self._daemon(folder, start) as daemon:
            self._feed(daemon, self.random.randrange(5, 40), pause_s=0.002)
            self._wait_until_live(daemon)
            daemon.ingress.admit(0, self.rows.last(daemon.network))
            expected = self.kind.expected(self.rows, first)
            self._wait_for(len(expected))
            assert daemon.engine.drain(SECONDS)
        return self._compare(expected, f"{self.kind_name} from {start}, row {first} of {len(self.rows.times)}")

    def _compare(self, expected: list[Row], case: str) -> str:
        got = self.got if self.kind.is_ordered else sorted(self.got)
        expected = expected if self.kind.is_ordered else sorted(expected)
        if got == expected:
            return ""
        at = next(
            (i for i, (a, b) in enumerate(zip(got, expected, strict=False)) if a != b), min(len(got), len(expected))
        )
        return f"{case}: {len(got)} rows for {len(expected)}, at {at} {got[at : at + 3]} for {expected[at : at + 3]}"

    def _first_daemon(self) -> Path:
        """Fill the history, and end in order or as by a kill. Returns the folder for the next daemon."""
        folder = self.folder / "first"
        daemon = Daemon(network(folder, None, ""))
        daemon.start()
        for _ in range(self.random.randrange(1, 4)):
            self._feed(daemon, self.random.randrange(5, 60))
            if self.random.random() < 0.7:
                assert daemon.keeper is not None and daemon.keeper.checkpointer.make()
        return self._end(daemon, folder, is_kill=self.random.random() < 0.5)

    def _end(self, daemon: Daemon, folder: Path, *, is_kill: bool) -> Path:
        if not is_kill:
            assert daemon.stop(SECONDS)
            return folder
        _settle(daemon)
        copy = folder.with_name(folder.name + "_killed")
        shutil.copytree(folder, copy)
        daemon.stop(0.0)
        shutil.rmtree(folder)
        return copy

    def _choose(self) -> tuple[str, int]:
        """Choose a start, and say which row is the first from there on."""
        rule = self.random.choice(("earliest", "-1h", "at", "at"))
        if rule != "at":
            return rule, 1
        ns = self.rows.times[self.random.randrange(len(self.rows.times))] // 1_000 * 1_000
        first = next(n for n, at in enumerate(self.rows.times, 1) if at >= ns)
        if self.kind_name == "kept":  # its history has the odd rows only
            first = next(n for n, at in enumerate(self.rows.times, 1) if at >= ns and n % 2 == 1)
        return datetime.fromtimestamp(ns / 1e9, UTC).isoformat(timespec="microseconds"), first

    def _interrupted(self, folder: Path, start: str) -> Path:
        """Begin the replay, make a checkpoint in its middle, and cut it off. What came out before the checkpoint stays;
        the rest comes again."""
        with self._daemon(folder, start, ends=False) as daemon:
            self._feed(daemon, self.random.randrange(1, 10))
            assert daemon.keeper is not None
            daemon.keeper.starts.stop()  # so that nothing comes out behind the checkpoint
            assert daemon.engine.drain(SECONDS) and daemon.keeper.checkpointer.make()
            return self._end(daemon, folder, is_kill=self.random.random() < 0.5)

    @contextmanager
    def _daemon(self, folder: Path, start: str, *, ends: bool = True) -> Iterator[Daemon]:
        daemon = Daemon(network(folder, self.kind, start))
        daemon.subscribe("asked", self._deliver)
        daemon.start()
        try:
            yield daemon
        finally:
            if ends:
                daemon.stop(SECONDS)

    def _deliver(self, train: Train) -> None:
        names = ["n"] if "n" in train.schema else [n for n in ("key", "total", "rows") if n in train.schema]
        self.got += train.select(names).to_rows()

    def _feed(self, daemon: Daemon, trains: int, pause_s: float = 0.0) -> None:
        def run() -> None:
            for _ in range(trains):
                daemon.ingress.admit(0, self.rows.train(daemon.network, self.random.choice((1, 40, 700, 5_000))))
                sleep(pause_s)

        feeder = Thread(target=run)
        feeder.start()
        feeder.join()
        _settle(daemon)

    def _wait_until_live(self, daemon: Daemon) -> None:
        deadline = monotonic() + SECONDS
        assert daemon.keeper is not None
        while daemon.keeper.starts.reading("asked") != {"state": "live"}:
            assert monotonic() < deadline, daemon.keeper.starts.reading("asked")
            sleep(0.005)

    def _wait_for(self, rows: int) -> None:
        deadline = monotonic() + SECONDS
        while len(self.got) < rows and monotonic() < deadline:
            sleep(0.005)


def _settle(daemon: Daemon) -> None:
    """Wait until everything that was admitted is in the log."""
    deadline = monotonic() + SECONDS
    assert daemon.keeper is not None
    while not daemon.keeper.is_settled:
        assert monotonic() < deadline
        sleep(0.002)
