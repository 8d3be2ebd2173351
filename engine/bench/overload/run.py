"""The experiments: the knee, the strategies beside each other, a step, a soak. See the package's head."""

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
from engine.bench.harness import BenchError, child, wait_listening
from engine.bench.overload.arrivals import Shape
from engine.bench.overload.client import BINS_PER_S
from engine.bench.overload.expect import Sums, due, is_row_wise, sums
from engine.bench.overload.ideal import Ideal
from engine.bench.overload.measure import (
    Delivered,
    Due,
    Floats,
    Outcome,
    StepAnswer,
    delivered,
    due_at_rates,
    step_answer,
    utility_series,
)
from engine.bench.overload.scenario import Scenario
from engine.load import load_network
from engine.processes import command, end, spawn
from engine.simulate.experiment import ROUGHLY, knee_per_s
from scheduler.superbox import static_superboxes

STRATEGIES = ("shed", "block", "oldest", "newest", "random")
CLIENT = "engine.bench.overload.client"
BUFFER_S = 0.25
RATES = (0.85, 0.9, 0.95, 1.0)  # of the knee that `random` lets in: the best of them is its outcome
WARM_S = 2.0
GRACE_S = 2.0
KNEE_SECONDS = 6.0
LOOKS = (0.3, 0.95)
LOOKS_AT_MOST, SETTLED = 4, 0.05
TUPLE_BYTES = 64  # about, in a queue
Progress = Callable[[str], None]


class Overload:
    """One network file under too much. Owns the folder with its samples."""

    def __init__(self, file: Path, folder: Path, seconds: float, progress: Progress = lambda text: None) -> None:
        self.scenario = Scenario(file, folder)
        self.network = self.scenario.network
        self.seconds = seconds
        self._folder = folder
        self._progress = progress
        streams = [s.name for s in self.network.streams]
        self.mix = {name: 1.0 / len(streams) for name in streams}
        self.knee_per_s = 0.0
        self.learned: Mapping[str, Any] = {}  # what the daemon knew of its boxes below the knee
        self._rates: dict[str, float] = {}  # by shape: what turned out best for `random`
        self._ideal: Ideal | None = None
        self.sums: dict[str, Sums] = {}  # what comes out, to the tuple, where boxes work row by row
        self._half: tuple[Sequence[Mapping[str, Any]], Floats] = ((), np.zeros(0))  # else: a run at half the knee

    def find_knee(self) -> float:
        """Tuples a second of all streams together, and what comes out for each when nothing is lost.

        First roughly, from what the boxes cost while there is more to do than can be done; then from how busy the
        workers are at about seven tenths of that: what they would take if they were busy all the time. Again from
        there, until it stays, because a worker that is woken for every few tuples takes longer over each. (How fast
        senders are let in under back-pressure says little: memory fills and empties in strides of seconds.)
        """
        self._progress("the knee: what the boxes cost under too much")
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
        self._progress(f"about {self.knee_per_s:,.0f} tuples a second; how busy the workers are below it")
        for _ in range(LOOKS_AT_MOST):
            below, self.knee_per_s = self.knee_per_s, self._look_below()
            if abs(self.knee_per_s - below) < SETTLED * below:
                break
        self._progress(f"the knee is at {self.knee_per_s:,.0f} tuples a second")
        if is_row_wise(self.network):
            self._progress("what comes out when nothing is lost: the sample through the network")
            patient = load_network(self.scenario.file("block"))  # the sample's stamps are no times: nothing may expire
            self.sums = {s.name: sums(patient, s, self.scenario.samples[s.name]) for s in patient.streams}
            self._ideal = Ideal(self.network, self.learned, self.mix, self.sums.values())
        else:
            self._progress("what comes out when nothing is lost: half the knee")
            answers, offered, _ = self._drive("shed", Shape("uniform", 0.5, self.seconds), None)
            self._half = answers, offered
        return self.knee_per_s

    def _look_below(self) -> float:
        """The knee again, from how busy the workers are at seven tenths of what it is taken for."""
        looks: list[dict[str, Any]] = []
        self._drive("block", Shape("uniform", ROUGHLY, self.seconds), None, lambda: looks.append(self.stats()))
        self.learned = looks[-1]
        elapsed_ns = self.seconds * (LOOKS[1] - LOOKS[0]) * 1e9
        found = knee_per_s(ROUGHLY * self.knee_per_s, *busy_shares(self.network, looks, elapsed_ns))
        self._progress(f"    at {ROUGHLY * self.knee_per_s:,.0f} a second they look as if {found:,.0f} would fill them")
        return found

    def due(self, shape: Shape, offered: Floats) -> dict[str, Due]:
        """By output: what it would have got."""
        if not self.sums:
            return due_at_rates(*self._half, offered)
        per_s = self.per_s()
        return {
            o.name: Due(*(due(self.sums, per_s, shape, o.name, of_value) for of_value in (False, True)))
            for o in self.network.outputs
        }

    def outcome(self, strategy: str, shape: Shape) -> Outcome:
        """Of ``random`` the best rate, which is looked for once for each shape."""
        if strategy != "random" or shape.name in self._rates:
            return self._outcome(strategy, shape, self._rates.get(shape.name, 1.0))
        tried = [(rate, self._outcome(strategy, shape, rate)) for rate in RATES]
        self._rates[shape.name], best = max(tried, key=lambda t: t[1].utility)
        return best

    def _outcome(self, strategy: str, shape: Shape, rate: float) -> Outcome:
        at = f", {rate:g} of the knee let in" if strategy == "random" else ""
        self._progress(f"{strategy}, {shape.name} arrivals at {shape.load:g} times the knee{at}")
        memory_bytes = None if strategy == "shed" else self._short_memory()
        answers, offered, sent = self._drive(strategy, shape, memory_bytes, rate=rate)
        due = self.due(shape, offered)
        outputs = tuple(delivered(a, self.network.output(a["name"]), due[a["name"]]) for a in answers)
        found = Outcome(
            strategy, shape.name, shape.load, outputs, sent["offered"], sent["behind_s"],
            rate if strategy == "random" else None,
            self.ideal(shape.load) if strategy == "shed" and shape.name == "uniform" else None,
        )  # fmt: skip
        self._progress(f"    {found.utility:.3f}")
        return found

    def ideal(self, load: float) -> float | None:
        """The sum of utilities of the best plan there is at this load, none of it late; None where it is not known."""
        return None if self._ideal is None else self._ideal.utility(load)

    def step(self, load: float) -> tuple[StepAnswer, Floats]:
        """From half the knee to ``load`` times it and back, and how the sum of utilities followed."""
        shape = Shape("step", load, 4 * self.seconds)
        self._progress(f"a step from 0.5 to {load:g} times the knee and back")
        answers, offered, _ = self._drive("shed", shape, None)
        series = utility_series(answers, self.network, self.due(shape, offered))
        spans = len(series)
        up, down = spans // 4, spans // 2
        before = float(np.median(series[up // 2 : up]))
        return step_answer(series, up, down, 0.5, before), series

    # -- one run, and what ``soak`` makes its own of -------------------------------------------------------------------

    def _drive(
        self,
        strategy: str,
        shape: Shape,
        memory_bytes: int | None,
        look: Callable[[], None] | None = None,
        rate: float = 1.0,
    ) -> tuple[Sequence[Mapping[str, Any]], Floats, Mapping[str, Any]]:
        """What the readers saw, what was due by tenths of a second, and what the sender says.

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

    def send_spec(self, strategy: str, shape: Shape, rate: float = 1.0) -> dict[str, Any]:
        return {
            "shape": shape.name, "load": shape.load, "seconds": shape.seconds, "grace_s": GRACE_S, "seed": 7,
            "manner": strategy if strategy in ("oldest", "newest", "random") else "direct",
            "keep": min(1.0, rate / shape.load), "buffer_s": BUFFER_S,
            "streams": self.scenario.stream_specs(self.per_s()),
        }  # fmt: skip

    def per_s(self) -> dict[str, float]:
        """By stream, at the knee."""
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
            process.kill()  # what it still has would take long to drain, and nobody reads it any more
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
        """Of the daemon that runs now."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.scenario.http_port}/api/v1/stats", timeout=10) as answer:
            found: dict[str, Any] = json.loads(answer.read())
            return found


def busy_shares(network: Network, looks: Sequence[Mapping[str, Any]], elapsed_ns: float) -> tuple[float, float]:
    """Of the time between two looks: how much the workers were busy, and the superbox that has most to do."""
    before, after = looks
    spent_ns = [b["cost_ns"] - a["cost_ns"] for a, b in zip(before["boxes"], after["boxes"], strict=True)]
    busiest_ns = max((sum(spent_ns[b] for b in s.boxes) for s in static_superboxes(network)), default=0)
    busy_ns = [sum(w["busy_ns"] for w in look["workers"]) for look in looks]
    return (busy_ns[1] - busy_ns[0]) / (elapsed_ns * network.config.engine.workers), busiest_ns / elapsed_ns


def rough_knee(network: Network, stats: Mapping[str, Any], mix: Mapping[str, float]) -> float:
    """Tuples a second at which the boxes alone, at what they cost now, keep all workers busy."""
    boxes = stats["boxes"]
    cost_ns = np.array([b["effective_cost_ns"] for b in boxes])
    ports = [out / max(1, b["tuples_in"]) for b in boxes for out in b["tuples_out_by_port"]]
    work_ns = LoadModel(network).coefficients(cost_ns, np.array(ports)).streams
    each_ns = sum(mix[s.name] * float(work_ns[s.number]) for s in network.streams)
    workers: int = network.config.engine.workers
    return workers * 1e9 / max(each_ns, 1.0)


@contextmanager
def overloaded(file: Path, seconds: float, progress: Progress) -> Iterator[Overload]:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="aurorad-overload-")))
        yield Overload(file, folder, seconds, progress)


def best_of_others(outcomes: Sequence[Outcome], shape: str, load: float) -> tuple[float, float]:
    """Utility, and counted in proportion: of each the highest."""
    others = [o for o in outcomes if o.strategy != "shed" and (o.shape, o.load) == (shape, load)]
    if not others:
        raise BenchError("no other strategy was run at this load")
    return max(o.utility for o in others), max(o.in_proportion for o in others)


def in_good_zone(output: Delivered, deadline_ns: int | None) -> bool:
    return deadline_ns is None or output.p99_ns <= deadline_ns


__all__ = ["STRATEGIES", "Overload", "best_of_others", "in_good_zone", "overloaded"]
