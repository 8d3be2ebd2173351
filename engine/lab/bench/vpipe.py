"""``bench vpipe``: Chain against VPipe on the engine, at a union that keeps the order of time, over its fan-in.

The system is that of P2's figure 7 with more inputs: each stream has a segment of its own, half of them cheap and half
dear, all meet in a union with ``order: time``, and a dear box follows (the join and its successors, n >> 1). Chain runs
the cheap segments first, so their tuples wait at the union for older ones of the dear segments: input delay
synchronization. VPipe is one line, in the order of time. Time stamps are globally ordered, as P2 assumes: an arrival
tells every stream how far time is. The clock is processor time (``lab/figures/real_engine``).

Printed: the mean response, the mean number of tuples in memory, and the share of tuples that are
still kept at the union when the next one comes (P2's probability of a broken pipeline), with Chain as the baseline.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from statistics import mean, median
from typing import Any, NamedTuple

from catalog.network import Network
from engine.lab.bench.harness import Options
from engine.lab.bench.report import Result
from engine.lab.figures.lab import Deliveries
from engine.lab.figures.real_engine import ProcessorClock, drive
from engine.run.core import Engine
from engine.run.declared_costs import declared_costs
from engine.run.network_file import read_network
from engine.simulate.arrivals import Trains, arrivals
from scheduler.state import SchedulerSettings
from scheduler.trains import TrainRule
from storage.train import Train

FAN_IN = (2, 4, 8, 16)
CHEAP_US, DEAR_US, JOIN_US = 80, 320, 4_000  # far above what the engine adds to a tuple: P2 has no overhead
LOAD = 0.8  # of one processor, by the boxes alone
DURATION_NS = 6_000_000_000
CONTENDERS = {"chain": "superbox", "vpipe": "vpipe"}  # policy and its unit


class LineRun(NamedTuple):
    response_ms: float
    memory_tuples: float
    blocked_share: float


def run(options: Options) -> Iterator[Result]:
    for fan_in in FAN_IN[:2] if options.quick else FAN_IN:
        found: dict[str, list[LineRun]] = {policy: [] for policy in CONTENDERS}
        for seed in range(1 if options.quick else 3):
            for policy in CONTENDERS:
                found[policy].append(run_once(fan_in, policy, seed, DURATION_NS // (4 if options.quick else 1)))
        for policy, runs in found.items():
            for metric in LineRun._fields:
                value, chain = (median([getattr(r, metric) for r in of]) for of in (runs, found["chain"]))
                yield Result("vpipe", f"fan_in={fan_in},load={LOAD:g},policy={policy}", metric, value, chain)


def network_of(fan_in: int) -> Network:
    costs = [CHEAP_US if i % 2 == 0 else DEAR_US for i in range(fan_in)]
    streams = "".join(f"  s{i}: {{schema: {{n: int}}}}\n" for i in range(fan_in))
    segments = "".join(f"  o{i}: {{universal: s{i}, cost: {cost}us}}\n" for i, cost in enumerate(costs))
    inputs = ", ".join(f"o{i}" for i in range(fan_in))
    return read_network(
        f'http: {{listen: "off"}}\nstreams:\n{streams}boxes:\n{segments}  merged: {{union: [{inputs}], order: time}}\n'
        f"  joined: {{universal: merged, cost: {JOIN_US}us}}\noutputs: {{out: {{from: joined}}}}\n"
    )


def run_once(fan_in: int, policy: str, seed: int, duration_ns: int) -> LineRun:
    network = network_of(fan_in)
    rate_per_s = LOAD * 1e6 / fan_in / ((CHEAP_US + DEAR_US) / 2 + JOIN_US)
    trains: dict[int, Trains] = {s: arrivals("poisson", seed, s, rate_per_s, duration_ns) for s in range(fan_in)}
    clock, statistics = ProcessorClock(), declared_costs(network)
    statistics.rate_per_s[:] = rate_per_s
    deliveries = Deliveries(network, statistics, clock)
    # One tuple at a time, as P2 analyses Chain: "tuple based scheduling, i.e. batch size -> 1".
    settings = SchedulerSettings(unit=CONTENDERS[policy], train=TrainRule("tuples", 1), idle_fast_path=False)
    engine = Engine(
        network, deliveries.outlets, workers=1, policy=policy, settings=settings, statistics=statistics, now_ns=clock
    )
    blocked = count_blocked(engine, network)
    held = tell_time(engine)
    drive(engine, trains, clock)
    return LineRun(deliveries.qualities()["mean_ns"] / 1e6, mean(held), mean(blocked))


def tell_time(engine: Engine) -> list[int]:
    """Let every arrival tell all streams how far time is. Return a list that gets the tuples inside the engine at each
    arrival: Poisson arrivals see time averages (P2 section 4.1). (The bytes of queues and state were refused: the state
    of a box is measured every 2,048 tuples, and so few wait here that the union's would count as none.)"""
    admit, last, held = engine.ingress.admit, engine.runtimes[-1], list[int]()

    def admit_and_tell(stream: int, train: Train, *rest: Any) -> bool:
        held.append(len(held) - last.tuples_in)
        now_ns = int(train.arrival_ns[0]) + 1  # nothing up to this arrival comes any more
        with engine.loop.paused():
            for other in engine.network.streams:
                if other.number != stream:
                    admit(other.number, Train.empty(other.schema, now_ns))
            return admit(stream, train.with_watermark(now_ns), *rest)

    engine.ingress.admit = admit_and_tell  # type: ignore[assignment, method-assign]
    return held


def count_blocked(engine: Engine, network: Network) -> list[float]:
    """Return a list that gets, for each tuple that reaches the union, whether the one before it is still kept there."""
    box, blocked = engine.runtimes[network.box("merged").number].box, list[float]()
    run_box: Callable[..., None] = box.run

    def counted(state: Any, port: int, train: Train, emit: Any, tally: Any) -> None:
        blocked.append(float(box.held_tuples(state) > 0))
        run_box(state, port, train, emit, tally)

    box.run = counted  # type: ignore[method-assign]
    return blocked
