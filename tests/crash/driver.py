"""The real daemon under load, killed again and again. The oracle is the journal of a client and a reader.

    python -m tests.crash.driver --cycles 200

A sender numbers its batches and notes the acknowledged ones. A named reader on each output keeps its own place and all
rows that it got. The driver kills the daemon with SIGKILL at random moments and starts it again on the same data_dir.
In the end everything acknowledged must have come out exactly as plain Python computes it. Only rows that are flagged as
repeats may have come twice.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from aurorad_client import ClientError, Reader, Sender

from engine.lab.processes import command
from tests.crash.dying import ANY, RECOVERY
from tests.crash.dying_daemon import dying_command
from tests.crash.world import BEGIN_NS, SECOND, expected_pairs, expected_totals, row
from tests.e2e.daemon import free_ports

NETWORK = """
engine: {{data_dir: {data}, checkpoint: 300ms}}
http: {{listen: 127.0.0.1:{http}}}
log: {{format: json}}
streams:
  sales:
    schema: {{ts: timestamp, k: string, v: bigint}}
    time: ts
    max_skew: 36500d
    source: {{tcp: 127.0.0.1:{source}}}
boxes:
  good: {{filter: sales, where: "v % 5 <> 0"}}
  sums: {{aggregate: good, window: {{tumbling: 10s}}, by: [k], select: {{n: "count(*)", s: "sum(v)"}}}}
  odd:  {{filter: sales, where: "v % 2 = 1"}}
  even: {{filter: sales, where: "v % 2 = 0"}}
  pairs: {{join: [odd, even], on: "l.k = r.k", within: 1s, select: {{ts: l.ts, k: l.k, a: l.v, b: r.v}}}}
outputs:
  totals: {{from: sums, sink: {{tcp: 127.0.0.1:{totals}, timestamps: ns}}}}
  joined: {{from: pairs, sink: {{tcp: 127.0.0.1:{joined}, timestamps: ns}}}}
"""


def spilling_network(text: str) -> str:
    """Add one more output whose reader blocks its boxes, so that trains wait on disk before them."""
    return (
        text.replace("checkpoint: 300ms", "checkpoint: 150ms, memory: 256KiB")
        .replace("    time: ts\n", "    time: ts\n    overload: spill\n")
        .replace("outputs:\n", '  wide: {{map: odd, select: {{v: v, w: "lpad(k, 4000)"}}}}\noutputs:\n')
        + "  held: {{from: wide, sink: {{tcp: 127.0.0.1:{held}, when_slow: block, buffer: 16KiB}}}}\n"
    )


def divided_network(text: str) -> str:
    """Leave so little memory to windows and pairs that most of them are on disk."""
    return text.replace('s: "sum(v)"}}}}', 's: "sum(v)"}}, state: {{memory: 1KiB}}}}').replace(
        "b: r.v}}}}", "b: r.v}}, state: {{memory: 1KiB}}}}"
    )


PHASES = {ANY: 0, "checkpoint": 30, RECOVERY: 6, "spill": 20, "state": 30}
"""The phases in which daemons kill themselves, with the mean number of moments before they do."""

ROOT = Path(__file__).parents[2]
START_SECONDS = 60.0
PATIENCE_SECONDS = 300.0
"""How long clients try to reconnect: several daemons in a row may die before they listen, on a busy machine."""

FLUSH = {"ts": BEGIN_NS + 10**8 * SECOND, "k": "z", "v": 0}
"""Moves event time past every window. It is in no sum and has no partner in the join."""


def _step(death: dict[str, str]) -> str:
    """Name what a daemon was about to do as it died: ``rename checkpoint``, ``enter`` (a train in a replay)."""
    return f"{death['phase']}: {death['before']} {death['file'].split('/')[0]}".strip()


class Collector(threading.Thread):
    """A named reader that keeps its own place, on a thread."""

    def __init__(self, port: int, plain: Callable[[dict[str, Any]], tuple[Any, ...]]) -> None:
        super().__init__(name="collector", daemon=True)
        self._port = port
        self._plain = plain
        self.rows: list[tuple[Any, ...]] = []
        self.repeats = 0
        self.missing = 0
        self.after = 0
        self.error: BaseException | None = None
        self._reader: Reader | None = None
        self.is_ended = False
        self.is_there = threading.Event()  # from here on no row may be missing

    def run(self) -> None:
        try:
            self._reader = Reader("127.0.0.1", self._port, "collector", after=0, timeout_s=PATIENCE_SECONDS)
            self.is_there.set()
            for batch in self._reader:
                if batch.first != self.after + 1:
                    self.missing += batch.first - self.after - 1
                self.after = batch.last
                if batch.is_repeat:
                    self.repeats += len(batch.rows)
                else:
                    self.rows += [self._plain(r) for r in batch.rows]
                if random.random() < 0.2:
                    batch.ack()
                if self.is_ended:
                    return
        except ClientError as error:
            if not self.is_ended:
                self.error = error


class Holder(threading.Thread):
    """A plain reader that reads nothing until ``may_read`` is set, and reconnects when the daemon restarts."""

    def __init__(self, port: int) -> None:
        super().__init__(name="holder", daemon=True)
        self._port = port
        self.may_read = threading.Event()

    def run(self) -> None:
        while True:
            with suppress(OSError), socket.socket() as s:
                s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
                s.connect(("127.0.0.1", self._port))
                while not self.may_read.wait(0.02):
                    if (
                        s.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO) & 0xFF != _ESTABLISHED
                    ):  # the first byte is the state of the connection
                        break
                while self.may_read.is_set() and s.recv(2**16):
                    pass
            time.sleep(0.02)


_ESTABLISHED = 1


class Driver:
    def __init__(
        self,
        folder: Path,
        *,
        seed: int = 0,
        batch: int = 20,
        environment: dict[str, str] | None = None,
        spilling: bool = False,
        divided: bool = False,
    ) -> None:
        self.folder = folder
        self.rng = random.Random(seed)
        self.batch = batch
        self.environment = environment or {}
        http, source, totals, joined, held = free_ports(5)
        self.source, self.totals, self.joined = source, totals, joined
        self.holder = Holder(held) if spilling else None
        self.spilled_bytes = 0  # the most spilled bytes on disk at a kill
        self.kills_with_state = 0  # kills that found state on disk
        self.deaths = folder / "deaths.ndjson"  # what daemons that killed themselves were about to do
        text = spilling_network(NETWORK) if spilling else NETWORK
        text = divided_network(text) if divided else text
        self.file = folder / "network.yaml"
        self.file.write_text(
            text.format(data=folder / "data", http=http, source=source, totals=totals, joined=joined, held=held)
        )
        self.log = folder / "log.json"
        self.process: subprocess.Popen[bytes] | None = None
        self.sent = 0  # batches
        self.acknowledged = 0
        self.starts = 0
        self._stop = threading.Event()
        self._error: BaseException | None = None

    # -- the daemon ---------------------------------------------------------------------------------------------------

    def start(self, dying_before: int | None = None, phase: str = ANY) -> None:
        """Start the daemon. ``dying_before``: it kills itself before the moment with this number of a phase."""
        arguments = command("run", str(self.file))
        if dying_before is not None:
            arguments = dying_command(dying_before, "run", str(self.file), phase=phase, note=self.deaths)
        with self.log.open("ab") as sink:
            self.process = subprocess.Popen(
                arguments, stdout=sink, stderr=sink, cwd=ROOT, env={**os.environ, **self.environment}
            )
        self.starts += 1

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait()
        self._look()

    def _look(self) -> None:
        """Note what a kill has left on disk."""
        found = sum(f.stat().st_size for f in (self.folder / "data/spill").glob("*.spill"))
        self.spilled_bytes = max(self.spilled_bytes, found)
        state = sum(f.stat().st_size for f in (self.folder / "data/state").glob("*/*.spill"))
        self.kills_with_state += state > 0

    # -- the load -----------------------------------------------------------------------------------------------------

    def rows(self, sequence: int) -> list[dict[str, Any]]:
        numbers = range((sequence - 1) * self.batch, sequence * self.batch)
        return [dict(zip(("ts", "k", "v"), row(n), strict=True)) for n in numbers]

    def publish(self, collectors: list[Collector]) -> None:
        """Send batches until ``_stop`` is set, on a thread.

        Waits for the readers first: the daemon keeps no output from before its first named reader.
        """
        try:
            for collector in collectors:
                assert collector.is_there.wait(2 * START_SECONDS), "a reader was never welcomed"
            sender = Sender("127.0.0.1", self.source, "driver", epoch=1, window=16, timeout_s=PATIENCE_SECONDS)
            assert sender.acknowledged >= self.acknowledged
            while not self._stop.is_set():
                self.sent = sender.send(self.rows(self.sent + 1))
                self.acknowledged = sender.acknowledged
                time.sleep(0.002)
            sender.flush()
            self.acknowledged = sender.acknowledged
            sender.send([FLUSH])
            sender.flush()
            sender.close()
        except BaseException as error:  # noqa: BLE001
            self._error = error

    def run(
        self, cycles: int, *, longest_s: float = 1.0, on_cycle: Callable[[int], None] = lambda n: None
    ) -> dict[str, Any]:
        """Kill and start the daemon ``cycles`` times under load; return the verdict."""
        begun = time.monotonic()
        self.start()
        collectors, publisher = self._load()
        for cycle in range(cycles):
            before = self.acknowledged
            self._wait_until(lambda before=before: self.acknowledged > before + 5)  # type: ignore[misc]
            time.sleep(self.rng.uniform(0, longest_s))
            self.kill()
            self.start()
            on_cycle(cycle)
        return self._finish(collectors, publisher, begun)

    def run_dying(self, operation: int) -> dict[str, Any]:
        """Start a daemon that kills itself before this file operation, then one that survives; return the verdict."""
        begun = time.monotonic()
        self.start(dying_before=operation)
        collectors, publisher = self._load()
        assert self.process is not None
        ended = self.process.wait(START_SECONDS)
        assert ended == -signal.SIGKILL, self.log.read_text()[-2_000:]
        self.start()
        return self._finish(collectors, publisher, begun)

    def run_phases(self, cycles: int) -> dict[str, Any]:
        """Kill the daemon this often under load: in each phase in turn, by its own hand, and at random moments."""
        begun = time.monotonic()
        self.start()
        collectors, publisher = self._load()
        killed: Counter[str] = Counter()
        before = 0
        for cycle in range(cycles):
            phase = list(PHASES)[cycle % len(PHASES)]
            self._wait_until(lambda before=before: self.acknowledged > before + 5)  # type: ignore[misc]
            before = self.acknowledged
            if phase == ANY:
                time.sleep(self.rng.uniform(0, 0.5))
            self.kill()
            killed[ANY] += 1
            if phase != ANY:
                self.start(int(self.rng.expovariate(1 / PHASES[phase])), phase)
                assert self.process is not None
                ended = self.process.wait(PATIENCE_SECONDS)
                assert ended == -signal.SIGKILL, self.log.read_text()[-2_000:]
                self._look()
                killed[phase] += 1
            self.start()
        noted = Counter(json.loads(line)["phase"] for line in self.deaths.read_text().splitlines())
        steps = Counter(_step(json.loads(line)) for line in self.deaths.read_text().splitlines())
        verdict = self._finish(collectors, publisher, begun)
        return {
            **verdict,
            "kills": killed.total(),
            "at_random": killed[ANY],
            "noted": dict(noted),
            "before": dict(steps),
        }

    def _load(self) -> tuple[list[Collector], threading.Thread]:
        collectors = [
            Collector(self.totals, lambda r: (r["window_start"], r["k"], r["n"], r["s"])),
            Collector(self.joined, lambda r: (r["ts"], r["k"], r["a"], r["b"])),
        ]
        publisher = threading.Thread(target=self.publish, args=(collectors,), name="publisher", daemon=True)
        for thread in (*collectors, publisher, *([self.holder] if self.holder is not None else [])):
            thread.start()
        return collectors, publisher

    def _finish(self, collectors: list[Collector], publisher: threading.Thread, begun: float) -> dict[str, Any]:
        before = self.acknowledged
        self._wait_until(lambda: self.acknowledged > before)
        self._stop.set()
        if self.holder is not None:
            self.holder.may_read.set()
        publisher.join(PATIENCE_SECONDS)
        assert self._error is None, self._error
        return self._verdict(collectors, time.monotonic() - begun)

    def _verdict(self, collectors: list[Collector], seconds: float) -> dict[str, Any]:
        numbers = list(range(self.acknowledged * self.batch))
        expected = [expected_totals(numbers), expected_pairs(numbers)]
        deadline = time.monotonic() + PATIENCE_SECONDS
        while time.monotonic() < deadline and any(
            len(c.rows) < e.total() for c, e in zip(collectors, expected, strict=True)
        ):
            time.sleep(0.05)
        for collector in collectors:
            collector.is_ended = True
            assert collector.error is None, collector.error
        lost = sum((e - Counter(c.rows)).total() for c, e in zip(collectors, expected, strict=True))
        extra = sum((Counter(c.rows) - e).total() for c, e in zip(collectors, expected, strict=True))
        assert self.process is not None
        self.process.terminate()
        code = self.process.wait(START_SECONDS)
        return {
            "starts": self.starts, "acknowledged_tuples": len(numbers), "results": sum(e.total() for e in expected),
            "lost": lost, "repeats_unflagged": extra, "repeats_flagged": sum(c.repeats for c in collectors),
            "numbers_missing": sum(c.missing for c in collectors), "exit": code, "seconds": round(seconds, 1),
            "spilled_bytes": self.spilled_bytes, "kills_with_state": self.kills_with_state,
        }  # fmt: skip

    def _wait_until(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not condition():
            assert self._error is None, self._error
            assert time.monotonic() < deadline, self.log.read_text()[-2_000:]
            time.sleep(0.01)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--cycles", type=int, default=200)
    arguments.add_argument("--seed", type=int, default=1)
    chosen = arguments.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        driver = Driver(Path(folder), seed=chosen.seed)
        verdict = driver.run(
            chosen.cycles, on_cycle=lambda n: print(f"\r{n + 1}/{chosen.cycles}", end="", file=sys.stderr)
        )
    print(json.dumps(verdict))
    sys.exit(0 if verdict["lost"] == verdict["repeats_unflagged"] == verdict["numbers_missing"] == 0 else 1)


if __name__ == "__main__":
    main()
