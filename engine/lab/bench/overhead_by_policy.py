"""``bench overhead`` by policy: the cost of a scheduling step as the number of boxes grows, busy or idle, and the
scheduler's share of the engine's time.

The baseline of a policy's step is ``round_robin`` on the same network. For 10,000 boxes of which 100 are busy it is the
same policy on 100 boxes, because idle boxes must not cost. The share is measured on a real engine with superboxes.
"""

from __future__ import annotations

from collections.abc import Iterator

from engine.lab.bench.chain import ChainEngine, prepare
from engine.lab.bench.harness import Options
from engine.lab.bench.report import Result
from engine.simulate.steps import Stepper, network_of, step_ns
from scheduler.policies import policies

BUSY = 100
IDLE_GROWTH = 2.0  # at most, of qos_buckets
OVER_ROUND_ROBIN = 10.0  # at most, of qos
SCHEDULER_SHARE = 0.05
SHARE_TUPLES = 1_000


def steps_by_policy(options: Options) -> Iterator[Result]:
    tiny, few, many, vast = (network_of(boxes) for boxes in (10, BUSY, 1_000, 10_000))
    rounds = 10 if options.quick else 40
    plain: dict[str, float] = {}
    for name in ("round_robin", *(p for p in policies() if p != "round_robin")):
        cases = {
            "tiny": Stepper(tiny, name, 10),
            "few": Stepper(few, name, BUSY),
            "many": Stepper(many, name, 1_000),
            "vast": Stepper(vast, name, BUSY),
        }
        best = {case: ns / 1e3 for case, ns in step_ns(cases, rounds).items()}
        plain = plain or best
        at_most = OVER_ROUND_ROBIN if name == "qos" else None
        yield Result("overhead", f"policy={name},boxes=10,busy=10", "step_us", best["tiny"], plain["tiny"])
        yield Result("overhead", f"policy={name},boxes=100,busy=100", "step_us", best["few"], plain["few"])
        yield Result(
            "overhead", f"policy={name},boxes=1000,busy=1000", "step_us", best["many"], plain["many"], at_most=at_most
        )
        grown = IDLE_GROWTH if name == "qos_buckets" else None
        case = f"policy={name},boxes=10000,busy=100,baseline=100 boxes"
        yield Result("overhead", case, "step_us", best["vast"], best["few"], at_most=grown)


def scheduler_share(options: Options) -> Iterator[Result]:
    """Measure the scheduler's share of the time of scheduler, storage, workers and boxes, at trains of 1,000 tuples."""
    queries = 40
    chains = ChainEngine(queries)
    try:
        trains, expected = prepare(queries, SHARE_TUPLES, 50_000 if options.quick else 400_000)
        chains.run(trains, expected)
    finally:
        chains.stop()
    reading = chains.engine.readings.scheduler()
    boxes_ns = sum(box.cost_ns for box in chains.engine.readings.boxes())
    busy_ns = reading.scheduler_ns + reading.storage_ns + reading.worker_ns + boxes_ns
    case = f"queries={queries},train={SHARE_TUPLES},unit=superbox,baseline=all busy time"
    yield Result("overhead", case, "scheduler_ns", reading.scheduler_ns, busy_ns, at_most=SCHEDULER_SHARE)
