"""A small network and readings of it, for the tests of what looks at an engine from outside."""

from __future__ import annotations

from catalog.build import build_network
from catalog.network import Network
from catalog.readings import (
    GONE,
    ArcReading,
    BoxReading,
    EngineReading,
    HistogramReading,
    LatencyReading,
    OutputReading,
    Readings,
    SchedulerReading,
    StreamReading,
    SubscriberReading,
    WorkerReading,
)
from engine.operators.boxes import box_kinds

DIAMOND = """
streams:
  trades:
    schema: {ts: timestamp, symbol: string, price: double, size: int}
    source: {tcp: 127.0.0.1:9401, format: ndjson}
boxes:
  big: {filter: trades, where: "price * size > 1000", cost: 2us, selectivity: 0.5}
  split: {case: trades, when: {a: "symbol = 'A'"}, otherwise: rest}
  both: {union: [big, split.a]}
outputs:
  alerts:
    from: both
    qos: {latency: [[0ms, 1.0], [100ms, 1.0], [1s, 0.0]], loss: [[100%, 1.0], [50%, 0.5], [0%, 0.0]]}
  others: {from: split.rest, qos: {deadline: 30ms}}
  raw: {from: trades}
"""
SECOND_NS = 1_000_000_000


def diamond() -> Network:
    return build_network(DIAMOND, box_kinds(), {})


def idle(network: Network, now_ns: int = 0) -> Readings:
    """Nothing has happened yet."""
    return Readings(
        streams=[StreamReading(s.name) for s in network.streams],
        arcs=[ArcReading(a.name) for a in network.arcs],
        boxes=[BoxReading(b.name, b.kind) for b in network.boxes],
        outputs=[OutputReading(o.name) for o in network.outputs],
        workers=[WorkerReading(0), WorkerReading(1)],
        engine=EngineReading(version="1.2.3", now_ns=now_ns, workers=2, memory_budget=2**29),
    )


def busy(network: Network, now_ns: int = SECOND_NS) -> Readings:
    """A second later, with something in every place; every law holds."""
    calls, came = 100, 10_000
    boxes = {
        "big": BoxReading("big", "filter", True, calls, came, 4_000, 6_000, cost_ns=40_000_000),
        "split": BoxReading(
            "split", "case", True, calls, came, came, cost_ns=20_000_000, tuples_out_by_port=(1_000, 9_000)
        ),
        "both": BoxReading("both", "union", True, 2 * calls, 5_000, 5_000, cost_ns=1_000_000),
    }
    latency = LatencyReading(
        HistogramReading((1e8, 1e9), (4_000, 900, 100), 5e11), 5_000, 3 * SECOND_NS, 4_400.0, 1_000, 10**8,
        slowdown_sum=50_000.0, slowdown_max=300.0, slowdown_square_sum=640_000.0,
        window_tuples=5_000, p50_ns=2e7, p99_ns=9e8, p999_ns=2e9, mean_ns=1e8, window_max_ns=3 * SECOND_NS,
        window_utility=0.88, window_missed=1_000,
    )  # fmt: skip
    reader = SubscriberReading("127.0.0.1:5", 3_000, 2_920, 60, 20, 4_096)
    gone = SubscriberReading(GONE, 2_000, 1_980, 0, 20)
    return Readings(
        streams=[StreamReading("trades", 10_050, 10_000, {"malformed": 20, "null": 10}, 20, 600_000, 3)],
        arcs=[
            ArcReading(a.name, 50, 1_600, 10_100, 10_000, {"shed": 50}) if a.box is not None else ArcReading(a.name)
            for a in network.arcs
        ],
        boxes=[boxes[b.name]._replace(train_counts=(0, 0, 0, 0, b.number, 100 - b.number)) for b in network.boxes],
        outputs=[OutputReading(o.name, 5_000, latency, [reader, gone]) for o in network.outputs],
        workers=[WorkerReading(0, 400_000_000, 90), WorkerReading(1, 300_000_000, 80)],
        scheduler=SchedulerReading(
            "round_robin", "superbox", 170, 1_700_000, (100, 60, 10), 2, 3_000_000, 4_000_000, 5_000_000
        ),
        engine=EngineReading(
            "1.2.3",
            1,
            now_ns,
            SECOND_NS,
            2,
            memory_used=10_000,
            memory_budget=2**29,
            memory_peak=20_000,
            dead_letters=30,
        ),
    )
