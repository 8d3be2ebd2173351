"""``bench overhead``: the cost of a scheduling step and of a box call beside the work itself, in microseconds.

In networks of 10, 100 and 1,000 boxes one chain of five filters has tuples, and all other boxes are idle. Trains are
short and come one at a time, so that overhead dominates. The baseline of a case is the same unit with 10 boxes: a step
whose cost grows with the number of idle boxes would show as a ratio above 1.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from engine.lab.bench import workload
from engine.lab.bench.chain import ChainEngine
from engine.lab.bench.harness import Options
from engine.lab.bench.overhead_by_policy import scheduler_share, steps_by_policy
from engine.lab.bench.report import Result
from engine.lab.bench.workload import FILTERS
from engine.run.tuning import tune_process

BOXES = (10, 100, 1_000)
UNITS = ("tuple", "box", "superbox")
TRAIN_TUPLES = {"tuple": 10, "box": 100, "superbox": 100}
STEP_GROWTH = 1.5  # at most: a step must not grow with idle boxes; the rest is noise of microseconds


class StepCosts(NamedTuple):
    step_us: float  # applying events and deciding, per plan
    claim_us: float  # taking trains from their queues, per plan
    call_us: float  # of a worker outside the box, per box call


def measure(chains: ChainEngine, trains: int, unit: str) -> StepCosts:
    engine = chains.engine
    before = engine.readings.scheduler(), sum(b.calls for b in engine.readings.boxes())
    distinct = workload.trains(trains, TRAIN_TUPLES[unit])
    chains.run_one_by_one(distinct, [len(workload.survivors(train.columns)[0]) for train in distinct])
    after, calls = engine.readings.scheduler(), sum(b.calls for b in engine.readings.boxes())
    steps = max(1, after.steps - before[0].steps)
    return StepCosts(
        (after.scheduler_ns - before[0].scheduler_ns) / steps / 1e3,
        (after.storage_ns - before[0].storage_ns) / steps / 1e3,
        (after.worker_ns - before[0].worker_ns) / max(1, calls - before[1]) / 1e3,
    )


def costs(boxes: int, unit: str, options: Options) -> StepCosts:
    """Return the lowest of several rounds, for each figure by itself."""
    chains = ChainEngine(1, unit=unit, idle_boxes=boxes - FILTERS)
    try:
        rounds = [measure(chains, 200 if options.quick else 1_000, unit) for _ in range(options.rounds)]
    finally:
        chains.stop()
    return StepCosts(*(min(figures) for figures in zip(*rounds, strict=True)))


def run(options: Options, boxes: Sequence[int] = BOXES) -> Iterator[Result]:
    tune_process()
    for unit in UNITS:
        first: StepCosts | None = None
        for count in boxes:
            now = costs(count, unit, options)
            first = first or now
            case = f"unit={unit},boxes={count}"
            yield Result("overhead", case, "step_us", now.step_us, first.step_us, at_most=STEP_GROWTH)
            yield Result("overhead", case, "claim_us", now.claim_us, first.claim_us)
            yield Result("overhead", case, "box_call_us", now.call_us, first.call_us)
    yield from steps_by_policy(options)
    yield from scheduler_share(options)
