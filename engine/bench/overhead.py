"""``bench overhead``: what a scheduling step and a box call cost beside the work itself, in microseconds.

Networks of 10, 100 and 1,000 boxes in which one chain of five filters has tuples and all others are idle. The trains
are short and come one at a time, so that overhead is what is seen. The baseline of a case is the same unit with 10
boxes: a step that grows with the number of idle boxes would show as a ratio above 1.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from engine.bench import workload
from engine.bench.by_policy import scheduler_share, steps_by_policy
from engine.bench.chain import Chains
from engine.bench.harness import Options
from engine.bench.report import Result
from engine.bench.workload import FILTERS
from engine.tuning import tune_process

BOXES = (10, 100, 1_000)
UNITS = ("tuple", "box", "superbox")
TRAIN_TUPLES = {"tuple": 10, "box": 100, "superbox": 100}
STEP_GROWTH = 1.5  # a step must not grow with idle boxes; the rest is the noise of microseconds


class Costs(NamedTuple):
    step_us: float  # applying events and deciding, per plan
    claim_us: float  # taking trains from their queues, per plan
    call_us: float  # what a worker spends on a box call outside the box


def measure(chains: Chains, trains: int, unit: str) -> Costs:
    engine = chains.engine
    before = engine.scheduler_reading(), sum(b.calls for b in engine.box_readings())
    distinct = workload.trains(trains, TRAIN_TUPLES[unit])
    chains.run_one_by_one(distinct, [len(workload.survivors(train.columns)[0]) for train in distinct])
    after, calls = engine.scheduler_reading(), sum(b.calls for b in engine.box_readings())
    steps = max(1, after.steps - before[0].steps)
    return Costs(
        (after.scheduler_ns - before[0].scheduler_ns) / steps / 1e3,
        (after.storage_ns - before[0].storage_ns) / steps / 1e3,
        (after.worker_ns - before[0].worker_ns) / max(1, calls - before[1]) / 1e3,
    )


def costs(boxes: int, unit: str, options: Options) -> Costs:
    """The lowest of several rounds, each figure by itself."""
    chains = Chains(1, unit=unit, idle_boxes=boxes - FILTERS)
    try:
        rounds = [measure(chains, 200 if options.quick else 1_000, unit) for _ in range(options.rounds)]
    finally:
        chains.stop()
    return Costs(*(min(figures) for figures in zip(*rounds, strict=True)))


def run(options: Options, boxes: Sequence[int] = BOXES) -> Iterator[Result]:
    tune_process()
    for unit in UNITS:
        first: Costs | None = None
        for count in boxes:
            now = costs(count, unit, options)
            first = first or now
            case = f"unit={unit},boxes={count}"
            yield Result("overhead", case, "step_us", now.step_us, first.step_us, at_most=STEP_GROWTH)
            yield Result("overhead", case, "claim_us", now.claim_us, first.claim_us)
            yield Result("overhead", case, "box_call_us", now.call_us, first.call_us)
    yield from steps_by_policy(options)
    yield from scheduler_share(options)
