"""Measure what boxes cost: run the network's own boxes on a sample of tuples in trains of several lengths.

A measurement depends on the machine and the moment. It is used only where it is asked for (``--measure``), because a
simulation with stored numbers gives the same answer twice. (``measure_overheads`` measures the engine's overhead.)
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from os import sched_getaffinity
from threading import Event, Thread
from time import monotonic, sleep

import numpy as np
import numpy.typing as npt

from catalog.network import Network
from catalog.stats import Statistics
from engine.operators.boxes.universal import spend
from engine.run.core import Engine
from engine.run.declared_costs import declared_costs
from engine.run.network_file import read_network
from engine.simulate.samples import Samples
from router.boundary import SOCKET
from scheduler.state import SchedulerSettings
from storage.train import Train

DRAIN_S = 30.0
SEED = 7
PACE_S = 0.001
NAP_S = 0.0002
BURN_NS = 500_000
TYPICAL = 0.9  # the share of the measured values that counts, the lowest first
LONG_S = 0.1
READ_TUPLES = 1.5  # tuples of a read, where nothing is known of the reads
SHORT = 12  # trains of that length
LONG = (256, 4_096)  # and one train of each of these: costs are fitted on all of them
APART = 4.0  # only trains this many times as long as the shortest separate the cost of a tuple from that of a call

Floats = npt.NDArray[np.float64]


@contextmanager
def half_busy() -> Iterator[None]:
    """Keep as many threads as there are cores busy for half of the time, as workers are below the knee.

    A thread that is woken then has to find a core, and finds the caches of another thread.
    """
    ended = Event()

    def burn(number: int) -> None:
        random = np.random.default_rng([SEED, number])
        while not ended.wait(random.exponential(BURN_NS) / 1e9):
            spend(int(random.exponential(BURN_NS)))

    threads = [Thread(target=burn, args=(i,), name=f"calibrate-{i}", daemon=True) for i in range(cores())]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        ended.set()
        for thread in threads:
            thread.join()


def cores() -> int:
    """Count the cores that this process may use."""
    return len(sched_getaffinity(0))


def wait_until_quiet(engine: Engine) -> None:
    """Wait until nothing waits and nothing runs.

    ``drain`` was refused: its naps of 2 ms make the caches colder than they are. The end of the last plan is read at
    once, not when the scheduler's own thread looks again, up to 20 ms later.
    """
    until_s = monotonic() + DRAIN_S
    engine.loop.drain_mailbox()
    while not engine.is_quiet():
        assert monotonic() < until_s, "the tuples that were fed take too long"
        sleep(NAP_S)
        engine.loop.drain_mailbox()


def measure_costs(
    network: Network,
    rounds: int = 6,
    settings: SchedulerSettings | None = None,
    workers: int = 1,
    read_tuples: Sequence[float] = (),
) -> Statistics:
    """Measure costs and selectivities of the network's own boxes on a sample of tuples, under these units and trains.

    Each box runs on the thread that would run it: it costs more on a worker that has just been woken than behind
    another box. ``read_tuples``: by stream, the tuples of a read at which the costs have to hold. A filter that lets
    one tuple in ten through does hardly anything for a read of one tuple, and gathers for each read of ten.

    The selectivities are those of the sample, so a declared selectivity wins.
    """
    statistics = declared_costs(network)
    stated = declared_costs(network)
    samples = Samples(network)
    outlets = [_ignore] * len(network.outputs)
    engine = Engine(network, outlets, workers=workers, settings=settings, event_time=samples.event_time())
    engine.expire(False)
    first = counts(engine)
    lots: list[tuple[Floats, Floats]] = []  # tuples a call and ns a call, by box
    engine.start()
    try:
        with half_busy():
            for _ in range(rounds):
                lots += _costs_by_length(engine, samples, read_tuples or [READ_TUPLES] * len(network.streams))
    finally:
        engine.stop()
    calls, taken, out, _ = (a - b for a, b in zip(counts(engine), first, strict=True))
    statistics.observed_calls[:] = calls
    for node in network.boxes:
        number = node.number
        start, stop = int(statistics.port_start[number]), int(statistics.port_start[number + 1])
        if node.selectivity is None and taken[number]:
            statistics.port_selectivity[start:stop] = out[start:stop] / taken[number]
            statistics.selectivity[number] = out[start:stop].sum() / taken[number]
        if calls[number]:
            lengths, costs_ns = (np.array([lot[i][number] for lot in lots]) for i in (0, 1))
            a, b = fit(lengths, costs_ns, float(stated.cost_per_tuple_ns[number]))
            statistics.cost_per_call_ns[number] = a
            statistics.cost_per_tuple_ns[number] = b if node.cost_ns is None else stated.cost_per_tuple_ns[number]
    statistics.train_tuples[:] = 1.0
    return statistics


def _costs_by_length(engine: Engine, samples: Samples, read_tuples: Sequence[float]) -> list[tuple[Floats, Floats]]:
    """Return tuples a call and ns a call, by box, for one length of train after the other."""
    lots: list[tuple[Floats, Floats]] = []
    before = counts(engine)
    for number in range(SHORT + len(LONG)):
        begun_s = monotonic()
        for stream, tuples in zip(engine.network.streams, read_tuples, strict=True):
            sleep(PACE_S)
            if number < SHORT:  # of 2.25 tuples, three of 2 and one of 3
                count = int((number + 1) * tuples) - int(number * tuples)
            else:
                count = LONG[number - SHORT]
            if count:
                engine.ingress.admit(stream.number, samples.train(stream.number, count), SOCKET)
        wait_until_quiet(engine)
        after = counts(engine)
        calls, taken, _, cost_ns = (a - b for a, b in zip(after, before, strict=True))
        made = np.where(calls > 0, calls, np.nan)
        lots.append((taken / made, cost_ns / made))
        before = after
        if monotonic() - begun_s > LONG_S:
            break  # expensive boxes: longer trains would take minutes and add nothing
    return lots


def costs_between(one: Statistics, other: Statistics) -> Statistics:
    """Return the middle between two measurements of one network."""
    found = copy(one)
    found.cost_per_call_ns = (one.cost_per_call_ns + other.cost_per_call_ns) / 2
    found.cost_per_tuple_ns = (one.cost_per_tuple_ns + other.cost_per_tuple_ns) / 2
    return found


def typical(values: Floats) -> Floats:
    """Return the mean along the first axis without the highest tenth.

    The time of a path is the sum of the means of its parts; the sum of their medians would be too low where some waits
    are long. The time that other processes took is in the tenth that is left out.
    """
    ordered = np.sort(values, axis=0)
    found: Floats = ordered[: max(1, int(len(ordered) * TYPICAL))].mean(axis=0)
    return found


def fit(tuples: Floats, cost_ns: Floats, guess_ns: float) -> tuple[float, float]:
    """Fit ns a call and ns a tuple: the line between the shortest trains and the longest.

    ``guess_ns`` is the cost of a tuple where all trains had one length. Medians, because the time of a call includes
    its wait for the GIL, which the simulator adds itself.
    """
    there = ~np.isnan(tuples)
    tuples, cost_ns = tuples[there], cost_ns[there]
    short, long = tuples <= 2 * tuples.min(), tuples >= tuples.max() / 2
    low, low_ns = float(np.median(tuples[short])), float(np.median(cost_ns[short]))
    high, high_ns = float(np.median(tuples[long])), float(np.median(cost_ns[long]))
    each_ns = max(0.0, (high_ns - low_ns) / (high - low)) if high >= APART * low else min(guess_ns, low_ns / low)
    if low_ns >= each_ns * low:
        return low_ns - each_ns * low, each_ns
    return 0.0, low_ns / low


def counts(engine: Engine) -> tuple[npt.NDArray[np.int64], ...]:
    """Return calls, tuples in, tuples out by port and time spent, of all boxes since the start."""
    runtimes = engine.runtimes
    columns: Sequence[list[int]] = (
        [r.calls for r in runtimes],
        [r.tuples_in for r in runtimes],
        [n for r in runtimes for n in (r.tuples_out or [0])],
        [r.cost_ns for r in runtimes],
    )
    return tuple(np.array(column, np.int64) for column in columns)


def _ignore(train: Train) -> None:
    """An outlet that drops its trains."""


def kind_costs() -> dict[str, tuple[float, float]]:
    """ns a call and a tuple of each simple kind, for ``Box.typical_cost_ns``."""
    kinds = {
        "filter": '{filter: s, where: "x > 50"}',
        "map": '{map: s, select: {ts: ts, y: "x * n"}}',
        "case": '{case: s, when: {a: "x > 50"}, otherwise: b}',
        "union": "{union: [s, s2]}",
        "universal": "{universal: s}",
        "aggregate": '{aggregate: s, window: {tumbling: 1s}, by: [k], select: {m: "avg(x)"}}',
        "dedup": "{dedup: s, by: [k], within: 1s}",
        "bsort": "{bsort: s, by: x, slack: 100}",
        "latest": "{latest: s, by: [k]}",
    }
    schema = "{ts: timestamp, x: double, n: int, k: string}"
    out: dict[str, tuple[float, float]] = {}
    for kind, box in kinds.items():
        port = "b.a" if kind == "case" else "b"
        streams = f"streams:\n  s: {{schema: {schema}, time: ts}}\n  s2: {{schema: {schema}, time: ts}}\n"
        text = f'http: {{listen: "off"}}\n{streams}boxes:\n  b: {box}\noutputs:\n  o: {{from: {port}}}\n'
        statistics = measure_costs(read_network(text))
        out[kind] = float(statistics.cost_per_call_ns[0]), float(statistics.cost_per_tuple_ns[0])
    return out
