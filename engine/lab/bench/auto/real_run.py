"""One run of ``bench auto --real``: a daemon in a process of its own, fed in this process without sockets.

The daemon is whole: scheduler, workers, monitor, load shedder and, under ``policy: auto``, the autopilot. A thread
feeds trains at the times at which they are due, whether the daemon keeps up or not, and every tuple carries its due
time. The results are kept as they come and judged after the end as those of ``bench promise`` are: utility by the
graphs, latency from the due time, windows against the truth. Memory is what the queues and the boxes hold, looked at
with every tick of the feeder.
"""

from __future__ import annotations

import json
import logging
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from catalog.network import Network
from engine.daemon.daemon import Daemon
from engine.lab.bench.overload.arrivals import ArrivalShape
from engine.lab.bench.overload.clients import TICK_S, OutputTally
from engine.lab.bench.promise.kinds import PromiseNetwork, generate
from engine.lab.bench.promise.measured import Judgement, judge_run
from engine.lab.bench.promise.scenario import PromiseScenario
from engine.lab.bench.promise.truth import TruthMaker
from engine.run.network_file import read_network
from engine.run.tuning import tune_process
from engine.simulate.check import machine_s
from engine.simulate.sample_tuples import as_train
from router.boundary import SOCKET
from scheduler.choice import AUTO
from storage.train import Train, constant_ns

KNEE_S, KNEE_FROM_S = 2.5, 0.7
KNEE_WAITING_BYTES = 512 * 1024  # on queues while the knee is measured
KNEE_TUPLES = 200  # of a train
GRACE_S = 0.5  # after the last tuple: what is under way still counts


class RealPiece(NamedTuple):
    """One run: small, so that it can be sent to another process. ``knee_per_s`` is the load of 1."""

    kind: str
    seed: int
    load: float
    policy: str
    seconds: float
    warm_s: float
    knee_per_s: float
    round: int = 0


class RealRun(NamedTuple):
    """The result of one run."""

    utility: float  # sum over the outputs
    p99_ns: float  # of the slowest output
    memory_bytes: float  # mean over time, of queues and boxes
    peak_bytes: float
    by_output: dict[str, float]  # utility
    chose: list[str]  # by auto: when, which policy and why
    behind_s: float  # the greatest delay of the feeder behind its schedule
    others_cores: float = 0.0  # that other processes took meanwhile


class KneeRun(NamedTuple):
    """One measurement of the knee."""

    per_s: float
    others_cores: float


class Neighbours:
    """How many cores other processes take, from now on. On a machine that does not tell it is 0."""

    def __init__(self) -> None:
        self._begun_s, self._mine_s, self._all_s = time.monotonic(), time.process_time(), machine_s() or 0.0

    def cores(self) -> float:
        all_s, mine_s = (machine_s() or 0.0) - self._all_s, time.process_time() - self._mine_s
        return max(0.0, all_s - mine_s) / max(time.monotonic() - self._begun_s, 1e-9)


class Feeder:
    """The rows of each stream, over and over. ``mix`` is each stream's share of the rows."""

    def __init__(self, network: Network, samples: Mapping[str, Path], mix: Mapping[str, float]) -> None:
        self._streams = network.streams
        self._mix = mix
        self._whole: list[Train] = []
        for stream in network.streams:
            with pa.OSFile(str(samples[stream.name]), "rb") as file:
                self._whole.append(as_train(stream, pa.ipc.open_file(file).get_batch(0)))
        self._at = [0] * len(self._whole)
        self._owed = [0.0] * len(self._whole)

    def due(self, rows: float, due_ns: int) -> Iterator[tuple[int, Train]]:
        """Yield the trains of a tick with this many rows, by the arithmetic of the truth."""
        for number, stream in enumerate(self._streams):
            self._owed[number] += rows * self._mix[stream.name]
            while self._owed[number] >= 1:
                whole, at = self._whole[number], self._at[number]
                count = min(int(self._owed[number]), whole.count - at)
                self._at[number], self._owed[number] = (at + count) % whole.count, self._owed[number] - count
                yield number, self._stamped(number, whole.slice(at, at + count), due_ns)

    def _stamped(self, number: int, train: Train, due_ns: int) -> Train:
        place = train.schema.index(self._streams[number].time_field or "")
        columns = (*train.columns[:place], np.full(train.count, due_ns), *train.columns[place + 1 :])
        return Train(train.schema, columns, constant_ns(due_ns, train.count), valid=train.valid, pools=train.pools)


def measure_knee(kind: str, seed: int) -> KneeRun:
    """Return the rows a second that the daemon gets done when rows wait all the time and nothing is shed."""
    spec = generate(kind, seed)
    with tempfile.TemporaryDirectory(prefix="aurorad-auto-") as folder:
        samples = PromiseScenario(spec, Path(folder)).samples
        with _running(spec, "round_robin", overload="block") as daemon:
            feeder = Feeder(daemon.network, samples, spec.mix)
            begun_s, counted, from_s, neighbours = time.monotonic(), 0, 0.0, Neighbours()
            while (at_s := time.monotonic() - begun_s) < KNEE_S:
                if daemon.engine.storage.waiting_bytes > KNEE_WAITING_BYTES:
                    time.sleep(0.0005)
                    continue
                if at_s >= KNEE_FROM_S and not from_s:
                    counted, from_s = 0, at_s
                for stream, train in feeder.due(KNEE_TUPLES, time.time_ns()):
                    daemon.ingress.admit(stream, train, SOCKET)
                    counted += train.count
            return KneeRun(counted / (KNEE_S - from_s), neighbours.cores())


def run_real_piece(piece: RealPiece) -> RealRun:
    """Run the daemon on the schedule of a piece, and judge what came out."""
    tune_process()
    spec = generate(piece.kind, piece.seed)
    shape = ArrivalShape("uniform", piece.load, piece.seconds)
    with tempfile.TemporaryDirectory(prefix="aurorad-auto-") as folder:
        scenario = PromiseScenario(spec, Path(folder))
        came: dict[str, list[tuple[Train, int]]] = {}
        with _running(spec, piece.policy) as daemon:
            for output in daemon.network.outputs:
                daemon.subscribe(output.name, _keeper(came.setdefault(output.name, [])))
            feeder = Feeder(daemon.network, scenario.samples, spec.mix)
            begun_ns, neighbours = time.time_ns() + 50_000_000, Neighbours()
            held, chose, behind_s = _feed(daemon, feeder, shape, piece.knee_per_s, begun_ns)
            time.sleep(GRACE_S)
            network, others_cores = daemon.network, neighbours.cores()
        for got in came.values():
            got[:] = [(train, at_ns) for train, at_ns in got if train.count]
        per_s = {name: share * piece.knee_per_s for name, share in spec.mix.items()}
        truth = TruthMaker(spec, scenario.samples).make(shape, per_s, begun_ns)
        tallies = [_tally(s, came[s["name"]], piece.seconds, begun_ns) for s in scenario.output_specs(piece.warm_s)]
        files = {name: scenario.rows_file(name) for name in spec.windows}
        for name, file in files.items():
            _write_windows(came[name], file)
        judged = judge_run(spec, network, [t.answer() for t in tallies], truth, begun_ns, files)
    warm = int(piece.warm_s / TICK_S)
    return _result(judged, held[warm:], chose if piece.policy == AUTO else [], behind_s, others_cores)


def _result(judged: Judgement, held: list[int], chose: list[str], behind_s: float, others_cores: float) -> RealRun:
    outputs = judged.outputs
    return RealRun(
        utility=sum(o.utility for o in outputs),
        p99_ns=max(o.p99_ns for o in outputs),
        memory_bytes=float(np.mean(held)),
        peak_bytes=float(np.max(held)),
        by_output={o.name: round(o.utility, 4) for o in outputs},
        chose=chose,
        behind_s=behind_s,
        others_cores=round(others_cores, 3),
    )


def _feed(
    daemon: Daemon, feeder: Feeder, shape: ArrivalShape, knee_per_s: float, begun_ns: int
) -> tuple[list[int], list[str], float]:
    """Feed the schedule. Return the bytes held at each tick, the policies with their reasons, and the greatest delay
    behind the schedule."""
    engine, held, behind_s = daemon.engine, [], 0.0
    chose, last = [], None
    for i in range(round(shape.seconds / TICK_S)):
        due_ns = begun_ns + int(i * TICK_S * 1e9)
        ahead_s = (due_ns - time.time_ns()) / 1e9
        if ahead_s > 0:
            time.sleep(ahead_s)
        behind_s = max(behind_s, -ahead_s)
        for stream, train in feeder.due(knee_per_s * shape.factor(i * TICK_S) * TICK_S, due_ns):
            daemon.ingress.admit(stream, train, SOCKET)
        held.append(engine.storage.held_bytes)
        if engine.choice is not last:
            last = engine.choice
            chose.append(f"{i * TICK_S:.1f}s {last.policy}: {last.reason}")
    return held, chose, behind_s


@contextmanager
def _running(spec: PromiseNetwork, policy: str, overload: str | None = None) -> Iterator[Daemon]:
    document: dict[str, Any] = json.loads(json.dumps(spec.document))
    document |= {"http": {"listen": "off"}, "log": {"level": "error"}, "scheduler": {"policy": policy}}
    for stream in document["streams"].values():
        stream["overload"] = overload or stream["overload"]
    daemon = Daemon(read_network(json.dumps(document), {}))
    log = logging.getLogger("aurorad")
    level = log.level
    log.setLevel(logging.CRITICAL)  # the overload is meant
    try:
        daemon.start()
        try:
            yield daemon
        finally:
            daemon.stop(0.0)
    finally:
        log.setLevel(level)


def _keeper(came: list[tuple[Train, int]]) -> Callable[[Train], None]:
    return lambda train: came.append((train, time.time_ns()))


def _tally(spec: dict[str, Any], came: list[tuple[Train, int]], seconds: float, begun_ns: int) -> OutputTally:
    tally = OutputTally(spec, seconds)
    tally.begun_ns = begun_ns
    for train, at_ns in came:
        due_ns = np.max([train.columns[train.schema.index(name)] for name in spec["times"]], axis=0)
        tally.add(due_ns, at_ns, None if spec["value"] is None else train.to_pydict())
    return tally


def _write_windows(came: list[tuple[Train, int]], file: Path) -> None:
    """Write the windows that came, as a reader of ``bench promise`` does."""
    columns: dict[str, list[Any]] = {}
    for train, at_ns in came:
        for name, values in train.to_pydict().items():
            columns.setdefault(name, []).extend(values)
        columns.setdefault("came_ns", []).extend([at_ns] * train.count)
    if columns:
        arrays = {n: pa.array(v, pa.timestamp("ns")) if n == "window_end" else pa.array(v) for n, v in columns.items()}
        table = pa.table(arrays)
        with pa.OSFile(str(file), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
            writer.write_table(table)
