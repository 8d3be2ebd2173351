"""Run one generated network: find its knee, then drive contenders through it, each with processes of its own.

The knee is the rate that the daemon takes under back-pressure, from client to client: where the first resource is full,
be it the workers, one box, or decoding and I/O. The senders push as fast as the daemon reads, and a small part of a
second of rows fits into its memory. At the same time the daemon's statistics say what each box costs, and the kernel
says what the process used.

A contender gets a new daemon, a sender that keeps to its schedule whatever happens, and readers. Latency counts from
the moment a row was due until a reader has its result.
"""

from __future__ import annotations

import json
import os
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from engine.lab.bench.harness import BenchError, child, wait_listening
from engine.lab.bench.overload.arrivals import STEP_DOWN, STEP_UP, ArrivalShape
from engine.lab.bench.overload.clients import BINS_PER_S
from engine.lab.bench.overload.contract import ContractMaker
from engine.lab.bench.overload.experiment import BUFFER_S, CLIENT, TUPLE_BYTES
from engine.lab.bench.overload.soak import RESIDUAL
from engine.lab.bench.overload.utility import StepAnswer, step_answer, utility_series
from engine.lab.bench.promise.ideal import Ideal, KneeCosts, ideal
from engine.lab.bench.promise.kinds import PromiseNetwork
from engine.lab.bench.promise.measured import (
    LAST_S,
    ClaimedUtility,
    PromiseRun,
    claims,
    dropped_shares,
    dropped_tuples,
    judge_run,
)
from engine.lab.bench.promise.scenario import Contender, PromiseScenario
from engine.lab.bench.promise.truth import Truth, TruthMaker, value_grid
from engine.lab.processes import command, end, spawn
from engine.simulate.contract import Contract

FIRST_S = 1.0  # in which drops are forgiven below the knee
WARM_S = 2.0  # not judged: the shedder may need this long to find its plan
GRACE_S = 1.5
KNEE_S, KNEE_ROUGH_S, KNEE_FROM_S = 5.5, 3.0, 1.5
KNEE_BUFFER_S, KNEE_LEAST_BYTES = 0.15, 256 << 10  # in memory while the knee is measured
EVERY = 5  # tenths of a second: a span of a step's utility
TICKS_PER_S = os.sysconf("SC_CLK_TCK")
DENSE_FIRST_PER_S, DENSE_LOOKS = 5_000.0, 3  # of a network with a join
KNEE = Contender("knee", manner="saturate")
WORKERS_FULL = 0.6  # of their time: below this, another resource is full at the knee
POINTS = 257
Progress = Callable[[str], None]


class _Look(NamedTuple):
    at_s: float
    cpu_s: float
    stats: Mapping[str, Any]
    resident: int = 0  # pages of memory


class PromiseTrial:
    """One generated network. Owner of its folder."""

    def __init__(self, spec: PromiseNetwork, folder: Path, seconds: float, progress: Progress) -> None:
        self.spec = spec
        self.seconds = seconds
        self._folder = folder
        self._progress = progress
        self._scenario = PromiseScenario(spec, folder)
        self.network = self._scenario.network
        self._truths = TruthMaker(spec, self._scenario.samples)
        grids = {
            o.name: value_grid(self._truths.network, self._truths.sums, o.name, POINTS) for o in self.network.outputs
        }
        self._worth = {name: grid for name, grid in grids.items() if grid is not None}
        self.costs = KneeCosts(dict(spec.mix), (), (), 0.0)
        self._contracts: ContractMaker | None = None

    @property
    def knee_per_s(self) -> float:
        """Rows a second of all streams together."""
        return sum(self.costs.per_s.values())

    def find_knee(self) -> float:
        """Measure the knee, and the use of the machine there: first roughly, with little memory, then with enough."""
        dense = DENSE_FIRST_PER_S if self.spec.pairs else None
        self.costs = self._saturate(KNEE_LEAST_BYTES, KNEE_ROUGH_S, dense)
        for _ in range(DENSE_LOOKS if dense is not None else 0):
            # More rows a second of event time make each row dearer: the knee is where both rates agree.
            dense = (dense * max(self.knee_per_s, 1.0)) ** 0.5 if dense is not None else None
            self.costs = self._saturate(KNEE_LEAST_BYTES, KNEE_ROUGH_S, dense)
        memory = max(KNEE_LEAST_BYTES, int(KNEE_BUFFER_S * self.knee_per_s * TUPLE_BYTES))
        self.costs = self._saturate(memory, KNEE_S, dense)
        self._contracts = ContractMaker(self.network, self._knee_stats, self.costs.per_s)
        self._progress(f"{self.spec.name}: the knee is at {self.knee_per_s:,.0f} rows/s")
        return self.knee_per_s

    def _saturate(self, memory_bytes: int, seconds: float, dense: float | None) -> KneeCosts:
        with self._daemon(KNEE, memory_bytes) as daemon, self._readers(seconds) as readers:
            spec = {
                "seconds": seconds + 2, "streams": self._scenario.stream_specs(self.spec.mix), "event_per_s": dense,
                "is_short": self._scenario.has_short_buffers(KNEE),
            }  # fmt: skip
            with child(CLIENT, "saturate", self._write("saturate", spec)) as sender:
                sender.answer()
                now_ns = time.time_ns()
                readers.say(str(now_ns))
                sender.say(str(now_ns))
                time.sleep(KNEE_FROM_S)
                before = self._look(daemon)
                time.sleep(seconds - KNEE_FROM_S)
                after = self._look(daemon)
                self._knee_stats = after.stats
                return knee_costs(before, after, self.spec.mix)

    @property
    def contract_knee_per_s(self) -> float:
        """The knee that the simulator names, from the costs that the daemon measured at its own. Both are the rate at
        which the engine is full."""
        assert self._contracts is not None
        return self._contracts.saturation_per_s

    def contract(self, shape: ArrivalShape) -> Contract:
        """Return what the simulator predicts for a schedule under the policy qos."""
        assert self._contracts is not None
        return self._contracts.contract(shape, self.costs.per_s)

    def ideal(self, shape: ArrivalShape) -> Ideal:
        """Return the upper bound. For a step, the mean over its time; for bursts, as if all of them could wait."""
        loads = {shape.load: 1.0} if shape.name != "step" else {shape.load: 0.25, shape.factor(0.0): 0.75}
        parts = [(weight, ideal(self.network, self.costs, load, self._worth)) for load, weight in loads.items()]
        names = [o.name for o in self.network.outputs]
        return Ideal(
            sum(weight * found.utility for weight, found in parts),
            {name: sum(weight * found.outputs[name] for weight, found in parts) for name in names},
        )

    def run(self, contender: Contender, shape: ArrivalShape) -> PromiseRun:
        """Drive one contender through one schedule."""
        memory = None if contender.is_ours else max(64 << 10, int(BUFFER_S * self.knee_per_s * TUPLE_BYTES))
        looks: list[_Look] = []
        with self._daemon(contender, memory) as daemon, self._readers(shape.seconds) as readers:
            with child(CLIENT, "send", self._write("send", self._send_spec(contender, shape))) as sender:
                sender.answer()
                begun_ns = time.time_ns() + 50_000_000
                readers.say(str(begun_ns))
                sender.say(str(begun_ns))
                for at_s in (FIRST_S, WARM_S, shape.seconds):
                    time.sleep(max(0.0, begun_ns / 1e9 + at_s - time.time()))
                    looks.append(self._look(daemon))
                sent = sender.answer()
                time.sleep(max(0.0, begun_ns / 1e9 + shape.seconds + GRACE_S - time.time()))
            readers.say("0")
            answers = readers.answer()["outputs"]
            residual = self._residual()
        truth = self._truths.make(shape, self.costs.per_s, begun_ns)
        return self._judged(contender, shape, answers, truth, looks, begun_ns, sent, residual)

    def _judged(
        self,
        contender: Contender,
        shape: ArrivalShape,
        answers: Sequence[Mapping[str, Any]],
        truth: Truth,
        looks: Sequence[_Look],
        begun_ns: int,
        sent: Mapping[str, Any],
        residual: int,
    ) -> PromiseRun:
        first, before, after = (look.stats for look in looks)
        said: dict[str, ClaimedUtility] = claims(self.network, before, after) if contender.is_ours else {}
        rows_files = {name: self._scenario.rows_file(name) for name in self.spec.windows}
        judged = judge_run(self.spec, self.network, answers, truth, begun_ns, rows_files)
        return PromiseRun(
            contender.name, self.spec.name, shape.name, shape.load, judged.outputs, said, dropped_shares(before, after),
            judged.wrong_windows, residual, float(sent["behind_s"]), float(after["engine"]["load_ratio"]),
            dropped_tuples(first, after), judged.covered,
            self._step_answer(judged.answers, truth, shape), looks[2].resident / max(looks[1].resident, 1),
        )  # fmt: skip

    def _step_answer(
        self, answers: Sequence[Mapping[str, Any]], truth: Truth, shape: ArrivalShape
    ) -> StepAnswer | None:
        if shape.name != "step":
            return None
        series = utility_series(answers, self.network, truth.due, EVERY)
        spans_per_s = BINS_PER_S / EVERY
        up, down = int(STEP_UP * shape.seconds * spans_per_s), int(STEP_DOWN * shape.seconds * spans_per_s)
        last = len(series) - int(LAST_S * spans_per_s) - 1  # what comes later may still be under way
        before = float(np.median(series[1:up])) if up > 1 else float(len(answers))
        return step_answer(series[:last], up, down, 1 / spans_per_s, before)

    # -- parts of a run -----------------------------------------------------------------------------------------------

    def _send_spec(self, contender: Contender, shape: ArrivalShape) -> dict[str, Any]:
        return {
            "shape": shape.name, "load": shape.load, "seconds": shape.seconds, "grace_s": GRACE_S,
            "seed": self.spec.seed, "manner": contender.manner, "is_short": self._scenario.has_short_buffers(contender),
            "keep": min(1.0, contender.rate / shape.load),
            "buffer_s": BUFFER_S, "streams": self._scenario.stream_specs(self.costs.per_s),
        }  # fmt: skip

    @contextmanager
    def _daemon(self, contender: Contender, memory_bytes: int | None) -> Iterator[subprocess.Popen[bytes]]:
        file = self._scenario.file(contender, memory_bytes)
        process = spawn(command("run", str(file)), stdout=subprocess.DEVNULL)
        try:
            wait_listening(self._scenario.http_port, process)
            yield process
        finally:
            process.kill()  # its backlog would take long to drain, and has no reader any more
            end(process)

    @contextmanager
    def _readers(self, seconds: float) -> Iterator[Any]:
        for name in self.spec.windows:
            self._scenario.rows_file(name).unlink(missing_ok=True)
        spec = {"seconds": seconds, "outputs": self._scenario.output_specs(WARM_S)}
        with child(CLIENT, "read", self._write("read", spec)) as readers:
            readers.answer()
            yield readers

    def _write(self, name: str, spec: Mapping[str, Any]) -> Path:
        file = self._folder / f"{name}.json"
        file.write_text(json.dumps(spec))
        return file

    def _look(self, daemon: subprocess.Popen[bytes]) -> _Look:
        fields = Path(f"/proc/{daemon.pid}/stat").read_text().rpartition(")")[2].split()
        cpu_s = (int(fields[11]) + int(fields[12])) / TICKS_PER_S
        return _Look(time.monotonic(), cpu_s, json.loads(self._get("/api/v1/stats")), int(fields[21]))

    def _residual(self) -> int:
        found = RESIDUAL.findall(self._get("/metrics"))
        return sum(round(float(value)) for _, value in found)

    def _get(self, path: str) -> str:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self._scenario.http_port}{path}", timeout=30) as answer:
                text: str = answer.read().decode()
                return text
        except OSError as error:
            raise BenchError(f"{self.spec.name}: the daemon does not answer {path}: {error}") from error


def knee_costs(before: _Look, after: _Look, mix: Mapping[str, float]) -> KneeCosts:
    """Compute the use of the machine between two looks at a daemon that is full. ``mix`` is each stream's share."""
    elapsed_s = after.at_s - before.at_s

    def changes(section: str, key: str) -> list[float]:
        return [b[key] - a[key] for a, b in zip(before.stats[section], after.stats[section], strict=True)]

    boxes = after.stats["boxes"]
    taken, worked_ns = changes("boxes", "tuples_in"), changes("boxes", "cost_ns")
    ports = [
        [(o - was) / max(n, 1.0) for o, was in zip(b["tuples_out_by_port"], a["tuples_out_by_port"], strict=True)]
        for a, b, n in zip(before.stats["boxes"], boxes, taken, strict=True)
    ]
    per_s = sum(changes("streams", "admitted")) / elapsed_s
    busy_s = sum(changes("workers", "busy_ns")) / 1e9
    edge = min(max((after.cpu_s - before.cpu_s - busy_s) / elapsed_s, 0.01), 1.0)
    shares = [ns / 1e9 / elapsed_s for ns in worked_ns]
    if max(busy_s / elapsed_s / len(after.stats["workers"]), *shares) < WORKERS_FULL:
        edge = 1.0  # the daemon takes no more, and neither the workers nor a box are full
    return KneeCosts({name: share * per_s for name, share in mix.items()}, shares, ports, edge)
