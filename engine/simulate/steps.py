"""The cost of a scheduling step under a policy: the daemon's scheduler alone, without workers or tuples.

A step is a train that arrives, the decision, the claim and the end of the plan. Of the network's boxes some are busy:
there is always something in their queues. ``bench overhead`` uses this, and so do the tests that hold policies to a
step that costs only the boxes that moved.
"""

from __future__ import annotations

import gc
from collections.abc import Mapping
from random import Random
from time import thread_time_ns
from typing import Any

from catalog.network import Network
from catalog.qos import QoS, QoSGraph
from engine.simulate.core import ExecutionQueue
from engine.simulate.sketch import NetworkSketch
from engine.simulate.storage import SimulatedStorage, SimulatedTrain
from scheduler.events import Enqueued, Finished
from scheduler.loop import SchedulerLoop
from scheduler.policies import policies
from scheduler.state import SchedulerSettings, SchedulerState

START_NS = 10**18
STEP_NS = 20_000  # of the virtual clock
TRAIN = 5


def network_of(boxes: int) -> Network:
    """Make applications of one box each, with graphs, costs and selectivities of several kinds."""
    sketch = NetworkSketch()
    for i in range(boxes):
        graph = QoSGraph(((0.0, 1.0), (1e6 * (1 + i % 7), 1.0), (1e9 + i % 5 * 1e8, 0.0)))
        box = sketch.box(sketch.stream(), cost_ns=1_000.0 * (1 + i % 13), selectivity=0.5 + 0.1 * (i % 5))
        sketch.output(box, QoS(latency=graph, deadline_ns=int(graph.points[1][0])))
    return sketch.network()


class Stepper:
    """A scheduler with ``busy`` boxes that always have tuples waiting."""

    def __init__(self, network: Network, policy: str, busy: int, grid: int = 20) -> None:
        self.network = network
        self.state = SchedulerState(network, SchedulerSettings(unit="box", grid=grid))
        self.storage = SimulatedStorage([8.0] * len(network.arcs))
        self.queue = ExecutionQueue()
        simulated: tuple[Any, Any] = (self.storage, self.queue)
        self.loop = SchedulerLoop(
            self.state, policies()[policy], *simulated, 1, lambda: self.now_ns, lambda: 0, measured_every_ns=2**60
        )
        self.now_ns = START_NS
        for box in Random(1).sample(range(len(network.boxes)), busy):
            self.now_ns += 1_000
            self._arrive(box)

    def _arrive(self, box: int) -> None:
        now_ns, arcs = self.now_ns, self.network.boxes[box].in_arcs
        self.storage.enqueue(arcs, SimulatedTrain(TRAIN, now_ns, now_ns, now_ns))
        self.state.apply(Enqueued(arcs, TRAIN, now_ns, now_ns, 8 * TRAIN))

    def run(self, steps: int) -> float:
        """Take steps. Return the processor time of one, in nanoseconds."""
        begun_ns = thread_time_ns()
        for _ in range(steps):
            self.now_ns += STEP_NS
            plan = self.loop.decide(self.now_ns)
            assert plan is not None
            self.loop.dispatch(plan)
            self.queue.works.clear()
            self.state.apply(Finished(plan))
            self._arrive(plan.boxes[0])
        return (thread_time_ns() - begun_ns) / steps


def step_ns(cases: Mapping[str, Stepper], rounds: int = 40, steps: int = 50) -> dict[str, float]:
    """Return the best round of each case. Cases take turns; other processes can only add to a round."""
    best = dict.fromkeys(cases, float("inf"))
    gc.collect()
    gc.freeze()  # as the daemon does: the collector must not scan a large network again and again
    try:
        for _ in range(rounds):
            for name, stepper in cases.items():
                best[name] = min(best[name], stepper.run(steps))
    finally:
        gc.unfreeze()
    return best
