"""P0, figure 13: QoS over the number of partitions of slope and slack, against slope-slack without buckets.

200 non-overlapping applications of five boxes each run box at a time. Both ranges are divided into the same number of
partitions: 10 partitions are 100 buckets. One bucket is round robin. Every application has a graph of its own: full
utility for some time, then a fall to zero, both lengths uniform at random. All get four tuples at the same moment,
again and again, so that the worker is busy about half of the time.

Slope-slack runs as the paper describes it: it computes the p-tuple of every box that has tuples, at every step
(``straightforward``). The engine's own ``qos`` makes the same decisions from a heap and touches only entries that have
changed; it is shown for comparison. Simulated steps have the measured costs of figure 14: 16 us and 1.5 ns a bucket,
and 0.7 us a box for the straightforward policy with half of the boxes busy.
"""

from __future__ import annotations

from functools import partial
from random import Random

import numpy as np

from catalog.network import Network
from catalog.qos import QoS, QoSGraph
from engine.lab.figures.figure import Check, Figure, FigureData, FigureVerdict, Panel
from engine.lab.figures.lab import Lab
from engine.lab.figures.p0_testbed import trees
from engine.simulate.arrivals import Trains
from engine.simulate.overheads import Overheads
from scheduler.plan import Plan
from scheduler.policies import Policy
from scheduler.policies.qos import key
from scheduler.state import SchedulerSettings, SchedulerState
from scheduler.trains import TrainRule
from scheduler.traversal import expand

APPLICATIONS, BURST = 200, 4
COST_NS = (10_000.0, 100_000.0)
WORK_NS = APPLICATIONS * BURST * 5 * 55_000.0  # of one burst
FLAT, FALL = (0.02, 1.4), (0.1, 1.0)  # of a burst's work: how long a graph is flat, and how long it falls
PERIOD_NS = 2 * WORK_NS
PARTITIONS = (1, 2, 5, 10, 20, 30, 50, 100, 200, 300)
BUCKETS, SLOPE_SLACK = "buckets", "slope-slack (all boxes, every step)"
FIGURE = Figure(
    title="Bucketing effects on QoS",
    claim=(
        "With one bucket QoS is poor (0.427: round robin); it rises sharply with more, has its maximum near 20 "
        "partitions (0.85, above slope-slack's 0.796, because scheduling costs less), and declines with very many."
    ),
    parameters={
        "network": "200 chains of 5 boxes",
        "cost of a box": "even in [0.1, 1] ms / 10",
        "QoS": "flat for 0.02 to 1.4, falling for 0.1 to 1 times the work of a burst (0.22 s)",
        "arrivals": "4 tuples for each application at once, every 0.44 s",
        "unit": "box; trains of 2 tuples at most",
    },
)


def network(applications: int = APPLICATIONS) -> Network:
    random = Random(1)
    work_ns = WORK_NS * applications / APPLICATIONS
    graphs = []
    for _ in range(applications):
        flat_ns, fall_ns = random.uniform(*FLAT) * work_ns, random.uniform(*FALL) * work_ns
        graphs.append(QoS(QoSGraph(((0.0, 1.0), (flat_ns, 1.0), (flat_ns + fall_ns, 0.0)))))
    return trees(applications, fan_out=1, cost_ns=COST_NS, qos=graphs, seed=1)


def straightforward(state: SchedulerState, now_ns: int) -> Plan | None:
    """Decide as in P0 6.1: compute the pair of every box, and take the best."""
    pairs = [(key(state, box, now_ns)[0], box) for unit in state.ready for box in state.unit_live[unit]]
    return expand(state, state.unit_of[min(pairs)[1]]) if pairs else None


def measure(lab: Lab) -> FigureData:
    chains = network(lab.choose(APPLICATIONS, 80))
    times = np.arange(lab.choose(3, 1)) * int(PERIOD_NS)
    trains = {s.number: (times, np.full(len(times), BURST, np.int64)) for s in chains.streams}
    partitions = lab.choose(PARTITIONS, (1, 5, 20, 300))
    contenders = {
        str(n): partial(utility, lab, chains, trains, "qos_buckets", 16_000 + 1.5 * n * n, n) for n in partitions
    }
    contenders["straightforward"] = partial(utility, lab, chains, trains, straightforward, 350_000)
    contenders["heap"] = partial(utility, lab, chains, trains, "qos", 13_000)
    found: dict[str, float] = {}
    if lab.is_real:
        found = lab.repeat(contenders, best=max)
    else:
        for number, (name, contender) in enumerate(contenders.items()):
            lab.progress(number / len(contenders))
            found[name] = contender()
    curves = {
        BUCKETS: [(float(n), found[str(n)]) for n in partitions],
        SLOPE_SLACK: [(float(n), found["straightforward"]) for n in partitions],
        "slope-slack (our heap)": [(float(n), found["heap"]) for n in partitions],
    }
    panel = Panel("partitions of each range", "average QoS", curves, log_x=True, dashed=tuple(curves)[1:])
    return FigureData((panel,))


def utility(
    lab: Lab, chains: Network, trains: dict[int, Trains], policy: str | Policy, step_ns: float, grid: int = 1
) -> float:
    settings = SchedulerSettings(unit="box", train=TrainRule("tuples", 2), grid=grid)
    return lab.run(chains, trains, policy=policy, settings=settings, overheads=Overheads(step_ns=step_ns)).utility


def verdict(measured: FigureData) -> FigureVerdict:
    qos = measured.curve(BUCKETS)
    exact = next(iter(measured.curve(SLOPE_SLACK).values()))
    heap = next(iter(measured.curve("slope-slack (our heap)").values()))
    best = max(qos, key=qos.__getitem__)
    most = max(qos)
    return FigureVerdict(
        (
            Check(qos[1] < 0.7 * qos[best], f"one bucket gives {qos[1]:.2f}, {best:g} partitions {qos[best]:.2f}"),
            Check(qos[5] - qos[1] > (qos[best] - qos[1]) / 2, f"five already {qos[5]:.2f}"),
            Check(10 <= best <= 50, f"the best is at {best:g} partitions"),
            Check(qos[best] > exact, f"slope-slack over all boxes gives {exact:.2f} (from a heap {heap:.2f})"),
            Check(qos[most] < 0.95 * qos[best], f"{most:g} partitions give {qos[most]:.2f}"),
        ),
        "best_qos",
        qos[best],
        exact,
    )
