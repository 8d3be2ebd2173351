"""A plant for the shedder: one box of known capacity, ticks of 100 ms, noise in everything that is measured."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from time import thread_time_ns
from typing import NamedTuple

import numpy as np

from catalog.catalog import Epoch
from catalog.qos import QoS, QoSGraph
from engine.simulate.sketch import NetworkSketch
from load_shedder.control_loop import OverloadControl
from load_shedder.decide.places import shed_arcs
from load_shedder.shed_plan import ShedPlan
from qos_monitor.sampler import Sample
from qos_monitor.verdict import LoadJudge
from tests.property.shed_networks import shedding

TICK_S = 0.1
COST_NS = 10_000.0
QUEUED_S = 0.01  # a queue this long halves the calls
CAPACITY = 0.7  # of the one worker's time: what the shedder has to find out


class Moment(NamedTuple):
    at_s: float
    offered: float  # in capacities
    dropped: float  # share
    wait_s: float  # how long a tuple that comes now waits
    served: float  # in capacities


class Plant:
    """``load`` gives what is offered at a time, in capacities; ``noise`` is relative, on costs and rates. ``calls`` is
    the work of the calls, relative to that of the tuples, while nothing waits: a queue makes trains longer."""

    def __init__(
        self, load: Callable[[float], float], noise: float = 0.0, deadline_ms: int = 200, calls: float = 0.0
    ) -> None:
        sketch = NetworkSketch()
        latency = QoSGraph(((0.0, 1.0), (deadline_ms * 1e6, 1.0), (deadline_ms * 5e6, 0.0)))
        graph = QoSGraph(((0.0, 0.0), (1.0, 1.0)))
        qos = QoS(latency=latency, loss=graph, deadline_ns=deadline_ms * 10**6)
        sketch.output(sketch.box(sketch.stream(), cost_ns=COST_NS), qos)
        self.epoch = Epoch.of(shedding(sketch.network()))
        network = self.epoch.network
        self.overload = OverloadControl(
            self.epoch,
            LoadJudge(network, shed_arcs(network), 1, urgent_first=lambda: False),
            self._apply,
            semantic_arcs=None,
            values=dict,
            clock_ns=thread_time_ns,
        )
        self.plans: list[ShedPlan] = []
        self._load, self._noise, self._random = load, noise, Random(4)
        self._calls = calls
        self._dropped = 0.0
        self._backlog_s = 0.0  # work that waits, in seconds of the worker's capacity
        self._at_s = 0.0
        self._dearer = 1.0  # the cost of a tuple with its share of the calls, over that of a tuple in a long train

    def _apply(self, plan: ShedPlan) -> None:
        self.plans.append(plan)
        self._dropped = plan.drops[0].share if plan.drops else 0.0

    def run(self, until_s: float) -> list[Moment]:
        found = []
        while self._at_s < until_s - 1e-9:
            self._at_s += TICK_S
            offered, dropped = self._load(self._at_s), self._dropped
            arrived = offered * (1 - dropped) * TICK_S
            dearer = self._dearer = 1.0 + self._calls / (1.0 + self._backlog_s / QUEUED_S)
            served = min(TICK_S / dearer, self._backlog_s + arrived)
            self._backlog_s += arrived - served
            found.append(Moment(self._at_s, offered, dropped, self._backlog_s, served / TICK_S))
            self.overload.on_sample(self._sample(offered, served / TICK_S * dearer))
        return found

    def _sample(self, offered: float, served: float) -> Sample:
        def blurred() -> float:
            return 1 + self._noise * self._random.uniform(-1, 1)

        stats = self.epoch.stats
        cost_ns = COST_NS * self._dearer * blurred()
        stats.cost_per_call_ns[:], stats.cost_per_tuple_ns[:] = 0.0, cost_ns
        rate = np.array([offered * CAPACITY * 1e9 / COST_NS * blurred()])
        stats.rate_per_s[:] = rate
        coefficients = self.epoch.load.coefficients(np.array([cost_ns]), stats.port_selectivity)
        work = served * CAPACITY
        return Sample(
            at_ns=round(self._at_s * 1e9),
            elapsed_ns=round(TICK_S * 1e9),
            load_ratio=0.0,
            coefficients=coefficients,
            stream_rates=rate,
            box_rates=rate,
            box_busy=np.array([work]),
            output_rates=rate,
            output_utilities=np.ones(1),
            output_shares=np.ones(1),
            output_loss_utilities=np.ones(1),
            output_values=np.ones(1),
            output_ideal_ns=np.ones(1),
            offered_rates=rate,
            taken_rates=np.zeros(2),
            backlog_ns=np.array([self._backlog_s * self._dearer * CAPACITY * 1e9, 0.0]),
            work_ns=work * 1e9,
            busy_ratio=served * blurred(),
        )
