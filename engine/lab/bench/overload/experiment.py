"""The experiment: find the knee, run the strategies, drive a step. The package's docstring tells the whole."""

from __future__ import annotations

import json
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from catalog.load import LoadModel
from catalog.network import Network
from engine.lab.bench.harness import BenchError, child, wait_listening
from engine.lab.bench.overload.arrivals import ArrivalShape
from engine.lab.bench.overload.best_plan import BestPlan
from engine.lab.bench.overload.clients import BINS_PER_S
from engine.lab.bench.overload.due_results import ResultSums, due, is_row_wise, result_sums
from engine.lab.bench.overload.scenario import Scenario
from engine.lab.bench.overload.utility import (
    Delivered,
    Due,
    Floats,
    LoadRun,
    StepAnswer,
    delivered,
    due_at_rates,
    step_answer,
    utility_series,
)
from engine.lab.processes import command, end, spawn
from engine.run.network_file import read_network
from engine.simulate.experiment import ROUGHLY, knee_per_s
from scheduler.superbox import static_superboxes

STRATEGIES = ("shed", "block", "oldest", "newest", "random")
CLIENT = "engine.lab.bench.overload.clients"
BUFFER_S = 0.25
RATES = (0.85, 0.9, 0.95, 1.0)  # shares of the knee that `random` lets in; the best of them counts
WARM_S = 2.0
GRACE_S = 2.0
KNEE_SECONDS = 6.0
LOOKS = (0.3, 0.95)
LOOKS_AT_MOST, SETTLED = 4, 0.05
TUPLE_BYTES = 64  # in a queue, about
Progress = Callable[[str], None]


class OverloadBench:
    """One network file under overload. Owns the folder with its samples."""

    def __init__(self, file: Path, folder: Path, seconds: float, progress: Progress = lambda text: None) -> None:
        self.scenario = Scenario(file, folder)
        self.network = self.scenario.network
        self.seconds = seconds
        self._folder = folder
        self._progress = progress
        streams = [s.name for s in self.network.streams]
        self.mix = {name: 1.0 / len(streams) for name in streams}
        self.knee_per_s = 0.0
        self.learned: Mapping[str, Any] = {}  # the daemon's statistics below the knee
        self._rates: dict[str, float] = {}  # by shape: the best rate of `random`
        self._ideal: BestPlan | None = None
        self.sums: dict[str, ResultSums] = {}  # results by input tuple, where all boxes work row by row
        self._half: tuple[Sequence[Mapping[str, Any]], Floats] = (
            (),
            np.zeros(0),
        )  # else: the results of a run at half the knee

    def find_knee(self) -> float:
        """Find the knee in tuples a second of all streams together, and the results that are due without loss.

        The first estimate comes from the costs of the boxes in overload. Then the daemon runs at seven tenths of the
        estimate; from how busy its workers are follows the rate that would keep them busy all the time. This repeats
        until it converges, because a worker that wakes for every few tuples spends more on each. (The rate under
        back-pressure was refused as a measure: memory fills and empties in strides of seconds.)
        """
        self._progress("the knee: costs of the boxes in overload")
        per_s = dict.fromkeys(self.mix, 1.0)
        with self.daemon("block", None), self.readers(KNEE_SECONDS, 0.0) as readers:
            spec = {"seconds": KNEE_SECONDS, "streams": self.scenario.stream_specs(per_s)}
            with child(CLIENT, "saturate", self.write("saturate", spec)) as sender:
                sender.answer()
                now_ns = time.time_ns()
                readers.say(str(now_ns))
                sender.say(str(now_ns))
                time.sleep(KNEE_SECONDS - 1)
                self.knee_per_s = rough_knee(self.network, self.stats(), self.mix)
        self._progress(f"about {self.knee_per_s:,.0f} tuples a second; measure how busy the workers are below that")
        for _ in range(LOOKS_AT_MOST):
            below, self.knee_per_s = self.knee_per_s, self._look_below()
            if abs(self.knee_per_s - below) < SETTLED * below:
                break
        self._progress(f"the knee is at {self.knee_per_s:,.0f} tuples a second")
        if is_row_wise(self.network):
            self._progress("results without loss: run the sample through the network")
            patient = read_network(
                self.scenario.file("block")
            )  # the sample has row numbers for arrival times, so nothing may expire
            self.sums = {s.name: result_sums(patient, s, self.scenario.samples[s.name]) for s in patient.streams}
            self._ideal = BestPlan(self.network, self.learned, self.mix, self.sums.values())
        else:
            self._progress("results without loss: run at half the knee")
            answers, offered, _ = self._drive("shed", ArrivalShape("uniform", 0.5, self.seconds), None)
            self._half = answers, offered
        return self.knee_per_s

    def _look_below(self) -> float:
        """Estimate the knee from how busy the workers are at seven tenths of the last estimate."""
        looks: list[dict[str, Any]] = []
        self._drive("block", ArrivalShape("uniform", ROUGHLY, self.seconds), None, lambda: looks.append(self.stats()))
        self.learned = looks[-1]
        elapsed_ns = self.seconds * (LOOKS[1] - LOOKS[0]) * 1e9
        found = knee_per_s(ROUGHLY * self.knee_per_s, *busy_shares(self.network, looks, elapsed_ns))
        self._progress(f"    at {ROUGHLY * self.knee_per_s:,.0f} a second the estimate is {found:,.0f}")
        return found

    def due(self, shape: ArrivalShape, offered: Floats) -> dict[str, Due]:
        """Compute by output the results that are due without loss."""
        if not self.sums:
            return due_at_rates(*self._half, offered)
        per_s = self.per_s()
        return {
            o.name: Due(*(due(self.sums, per_s, shape, o.name, of_value) for of_value in (False, True)))
            for o in self.network.outputs
        }

    def outcome(self, strategy: str, shape: ArrivalShape) -> LoadRun:
        """Run a strategy; for ``random`` search its best rate once for each shape."""
        if strategy != "random" or shape.name in self._rates:
            return self._outcome(strategy, shape, self._rates.get(shape.name, 1.0))
        tried = [(rate, self._outcome(strategy, shape, rate)) for rate in RATES]
        self._rates[shape.name], best = max(tried, key=lambda t: t[1].utility)
        return best

    def _outcome(self, strategy: str, shape: ArrivalShape, rate: float) -> LoadRun:
        at = f", {rate:g} of the knee let in" if strategy == "random" else ""
        self._progress(f"{strategy}, {shape.name} arrivals at {shape.load:g} times the knee{at}")
        memory_bytes = None if strategy == "shed" else self._short_memory()
        answers, offered, sent = self._drive(strategy, shape, memory_bytes, rate=rate)
        due = self.due(shape, offered)
        outputs = tuple(delivered(a, self.network.output(a["name"]), due[a["name"]]) for a in answers)
        found = LoadRun(
            strategy, shape.name, shape.load, outputs, sent["offered"], sent["behind_s"],
            rate if strategy == "random" else None,
            self.ideal(shape.load) if strategy == "shed" and shape.name == "uniform" else None,
        )  # fmt: skip
        self._progress(f"    {found.utility:.3f}")
        return found

    def ideal(self, load: float) -> float | None:
        """Return the sum of utilities of the best possible plan at this load; None if it is unknown."""
        return None if self._ideal is None else self._ideal.utility(load)

    def step(self, load: float) -> tuple[StepAnswer, Floats]:
        """Step from half the knee to ``load`` times it and back; return how the sum of utilities followed."""
        shape = ArrivalShape("step", load, 4 * self.seconds)
        self._progress(f"a step from 0.5 to {load:g} times the knee and back")
        answers, offered, _ = self._drive("shed", shape, None)
        series = utility_series(answers, self.network, self.due(shape, offered))
        spans = len(series)
        up, down = spans // 4, spans // 2
        before = float(np.median(series[up // 2 : up]))
        return step_answer(series, up, down, 0.5, before), series

    # -- one run, and the parts that ``soak`` uses -------------------------------------------------------------------

    def _drive(
        self,
        strategy: str,
        shape: ArrivalShape,
        memory_bytes: int | None,
        look: Callable[[], None] | None = None,
        rate: float = 1.0,
    ) -> tuple[Sequence[Mapping[str, Any]], Floats, Mapping[str, Any]]:
        """Run once; return the readers' answers, the tuples offered by tenths of a second, and the sender's answer.

        ``look`` is called at the shares ``LOOKS`` of the run.
        """
        spec = self.send_spec(strategy, shape, rate)
        overload = "shed" if strategy == "shed" else "block"
        with self.daemon(overload, memory_bytes), self.readers(shape.seconds, WARM_S) as readers:
            with child(CLIENT, "send", self.write("send", spec)) as sender:
                sender.answer()
                begun_ns = time.time_ns() + 50_000_000
                readers.say(str(begun_ns))
                sender.say(str(begun_ns))
                for share in LOOKS if look is not None else ():
                    time.sleep(max(0.0, begun_ns / 1e9 + share * shape.seconds - time.time()))
                    assert look is not None
                    look()
                sent = sender.answer()
                time.sleep(max(0.0, begun_ns / 1e9 + shape.seconds + GRACE_S - time.time()))
            readers.say("0")
            answers = readers.answer()["outputs"]
        bins = np.arange(int(shape.seconds * BINS_PER_S)) / BINS_PER_S
        offered = np.array([shape.factor(at) for at in bins.tolist()]) * self.knee_per_s / BINS_PER_S
        return answers, offered, sent

    def send_spec(self, strategy: str, shape: ArrivalShape, rate: float = 1.0) -> dict[str, Any]:
        return {
            "shape": shape.name, "load": shape.load, "seconds": shape.seconds, "grace_s": GRACE_S, "seed": 7,
            "manner": strategy if strategy in ("oldest", "newest", "random") else "direct",
            "keep": min(1.0, rate / shape.load), "buffer_s": BUFFER_S,
            "streams": self.scenario.stream_specs(self.per_s()),
        }  # fmt: skip

    def per_s(self) -> dict[str, float]:
        """Return the tuples a second of each stream at the knee."""
        return {name: share * self.knee_per_s for name, share in self.mix.items()}

    def _short_memory(self) -> int:
        return max(64 << 10, int(BUFFER_S * self.knee_per_s * TUPLE_BYTES))

    @contextmanager
    def daemon(self, overload: str, memory_bytes: int | None) -> Iterator[subprocess.Popen[bytes]]:
        file = self.scenario.file(overload, memory_bytes)
        process = spawn(command("run", str(file)), stdout=subprocess.DEVNULL)
        try:
            wait_listening(self.scenario.http_port, process)
            yield process
        finally:
            process.kill()  # its backlog would take long to drain, and has no reader any more
            end(process)

    @contextmanager
    def readers(self, seconds: float, warm_s: float) -> Iterator[Any]:
        spec = {"seconds": seconds, "outputs": self.scenario.output_specs(warm_s)}
        with child(CLIENT, "read", self.write("read", spec)) as readers:
            readers.answer()
            yield readers

    def write(self, name: str, spec: Mapping[str, Any]) -> Path:
        file = self._folder / f"{name}.json"
        file.write_text(json.dumps(spec))
        return file

    def stats(self) -> dict[str, Any]:
        """Ask the running daemon for its statistics."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.scenario.http_port}/api/v1/stats", timeout=10) as answer:
            found: dict[str, Any] = json.loads(answer.read())
            return found


def busy_shares(network: Network, looks: Sequence[Mapping[str, Any]], elapsed_ns: float) -> tuple[float, float]:
    """Compute the busy share of the workers between two samples, and that of the busiest superbox."""
    before, after = looks
    spent_ns = [b["cost_ns"] - a["cost_ns"] for a, b in zip(before["boxes"], after["boxes"], strict=True)]
    busiest_ns = max((sum(spent_ns[b] for b in s.boxes) for s in static_superboxes(network)), default=0)
    busy_ns = [sum(w["busy_ns"] for w in look["workers"]) for look in looks]
    return (busy_ns[1] - busy_ns[0]) / (elapsed_ns * looks[1]["engine"]["workers"]), busiest_ns / elapsed_ns


def rough_knee(network: Network, stats: Mapping[str, Any], mix: Mapping[str, float]) -> float:
    """Compute the tuples a second at which the boxes alone, at their present costs, keep all workers busy."""
    boxes = stats["boxes"]
    cost_ns = np.array([b["effective_cost_ns"] for b in boxes])
    ports = [out / max(1, b["tuples_in"]) for b in boxes for out in b["tuples_out_by_port"]]
    work_ns = LoadModel(network).coefficients(cost_ns, np.array(ports)).streams
    each_ns = sum(mix[s.name] * float(work_ns[s.number]) for s in network.streams)
    workers: int = network.config.engine.sure_workers
    return workers * 1e9 / max(each_ns, 1.0)


@contextmanager
def overloaded(file: Path, seconds: float, progress: Progress) -> Iterator[OverloadBench]:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="aurorad-overload-")))
        yield OverloadBench(file, folder, seconds, progress)


def best_of_others(outcomes: Sequence[LoadRun], shape: str, load: float) -> tuple[float, float]:
    """Return the highest utility of the other strategies, and the highest counted in proportion."""
    others = [o for o in outcomes if o.strategy != "shed" and (o.shape, o.load) == (shape, load)]
    if not others:
        raise BenchError("no other strategy was run at this load")
    return max(o.utility for o in others), max(o.in_proportion for o in others)


def in_good_zone(output: Delivered, deadline_ns: int | None) -> bool:
    return deadline_ns is None or output.p99_ns <= deadline_ns


__all__ = ["STRATEGIES", "OverloadBench", "best_of_others", "in_good_zone", "overloaded"]
