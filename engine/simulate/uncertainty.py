"""How far a simulated median may be off near the knee.

A simulation is as good as its costs, and costs are known to about a tenth: machines have faster and slower minutes. Far
below the knee this moves a median by a tenth. Near the knee the wait in a queue grows without bound, and the same tenth
moves a median by a factor. ``simulate --check`` saw the median of the demo's output ``dark`` off by two thirds at load
1. So every run near the knee is repeated with costs that are lower and higher by a tenth, which is the same as a lower
and a higher load, and the report shows the medians of all three.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

from engine.simulate.experiment import Experiment, ExperimentRun, Progress, run_experiment

COST_ERROR = 0.1
NEAR_KNEE = (0.75, 2.0)  # loads; above, all queues grow and the length of the run decides


class MedianRange(NamedTuple):
    """The median latency of an output, and what it would be if all costs were off by ``COST_ERROR``."""

    policy: str
    load: float
    output: str
    low_ns: float
    p50_ns: float
    high_ns: float


def near_knee(experiment: Experiment) -> Experiment | None:
    """Return the experiment that ``median_ranges`` needs; None when no load is near the knee, or for a trace."""
    loads = [load for load in experiment.loads if NEAR_KNEE[0] <= load <= NEAR_KNEE[1]]
    if experiment.trace or not loads:
        return None
    around = sorted({round(load * (1 + error), 9) for load in loads for error in (-COST_ERROR, COST_ERROR)})
    return replace(experiment, loads=tuple(around))


def median_ranges(
    experiment: Experiment, runs: Sequence[ExperimentRun], progress: Progress | None = None
) -> list[MedianRange]:
    """Repeat the runs near the knee with other costs. ``runs`` are those of the experiment itself."""
    around = near_knee(experiment)
    if around is None:
        return []
    found = {(r.policy, r.load): r for r in run_experiment(around, progress)}
    return [r for run in runs if NEAR_KNEE[0] <= run.load <= NEAR_KNEE[1] for r in _of_run(run, found.__getitem__)]


def _of_run(run: ExperimentRun, other: Callable[[tuple[str, float]], ExperimentRun]) -> list[MedianRange]:
    sides = [other((run.policy, round(run.load * (1 + error), 9))) for error in (-COST_ERROR, COST_ERROR)]
    ranges = []
    for i, (name, quality) in enumerate(run.outputs):
        medians = [quality.p50_ns, *(side.outputs[i][1].p50_ns for side in sides)]
        ranges.append(MedianRange(run.policy, run.load, name, min(medians), quality.p50_ns, max(medians)))
    return ranges
