"""``bench spanner``: top-k spanners against static superboxes, which P0 section 4.1.1 names and does not measure.

"We also implemented a dynamic approach, called top-k spanner, which identifies, at run-time, the operator tree that is
rooted at an output box and that spans the k highest priority boxes for a given application. However, we do not study
dynamic approaches in this paper." Here the applications are those of P0's testbed: five trees with one worker, four
with a loose latency graph and one with a tight one, under ``qos``. Mean latency and utility over k, at several loads;
the baseline is the static superbox, that is all boxes of an application.
"""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median

from catalog.qos import QoS, QoSGraph
from engine.lab.bench.harness import Options
from engine.lab.bench.report import Result
from engine.lab.figures.figure import REAL, SIMULATED
from engine.lab.figures.lab import Lab
from engine.lab.figures.p0_testbed import even, trees
from scheduler.state import SchedulerSettings

LOADS = (0.8, 0.95, 1.1)  # of the capacity; above 1 queues grow, and there is a choice of what to run
BURSTS = (1, 8)
SPANS = (1, 2, 4, 8, 16)
APPLICATIONS = 5
TIGHT = QoS(QoSGraph(((0.0, 1.0), (2e7, 1.0), (2e8, 0.0))))
LOOSE = QoS(QoSGraph(((0.0, 1.0), (1e9, 1.0), (2e9, 0.0))))


def run(options: Options) -> Iterator[Result]:
    for load in LOADS[-1:] if options.quick else LOADS:
        for burst in BURSTS:
            yield from compare(Lab(SIMULATED, options.quick), load, burst)
    for load in LOADS[-1:] if options.quick else LOADS[1:]:
        yield from compare(Lab(REAL, options.quick), load, BURSTS[-1])


def compare(lab: Lab, load: float, burst: int) -> Iterator[Result]:
    """Run every k, and the static superboxes, over the same arrivals; contenders take turns, the median counts."""
    qos = [TIGHT] + [LOOSE] * (APPLICATIONS - 1)
    duration_ns = lab.choose(lab.by_engine(1_500_000_000, 4_000_000_000), 500_000_000)
    found: dict[int, list[tuple[float, float]]] = {k: [] for k in (0, *SPANS)}
    for seed in range(lab.choose(lab.by_engine(3, 5), 1)):
        network = trees(APPLICATIONS, depth=4, qos=qos, seed=seed)
        trains = even(network, load, duration_ns, burst=burst, seed=seed)
        for k, results in found.items():
            ran = lab.run(network, trains, policy="qos", settings=SchedulerSettings(spanner=k))
            results.append((ran.mean_ns / 1e6, ran.utility))
    static = [median(values) for values in zip(*found[0], strict=True)]
    for k, results in found.items():
        name = f"engine={lab.engine},load={load:g},burst={burst},k={k or 'all'}"
        for place, metric in enumerate(("mean_ms", "utility")):
            yield Result("spanner", name, metric, median([r[place] for r in results]), static[place])
