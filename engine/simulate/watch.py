"""The monitor and the load shedder of a simulation: the daemon's own, ten times a second of virtual time.

What the scheduler goes by moves as it does in the daemon: how many tuples a box gets at once (costs and selectivities
are given).

What a simulated engine has counted is put into the same readings that the daemon makes of itself; the sampler, the
verdict, the road map and the controller are the daemon's and do not know the difference. Their plan comes back as the
share that each arc keeps. ``values`` says what tuples are worth on the arcs where drops go by value (``worth``).
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from catalog.catalog import Epoch
from catalog.readings import (
    ArcReading,
    BoxReading,
    EngineReading,
    OutputReading,
    Readings,
    SchedulerReading,
    StreamReading,
    WorkerReading,
)
from catalog.shed import ShedPlan, Values
from catalog.stats import Statistics
from engine.overload import Overload
from engine.simulate.core import Simulation
from qos_monitor.sampler import Sampler
from scheduler.loop import MEASURED_EVERY_NS

LEARNED = ("cost_per_call_ns", "cost_per_tuple_ns", "selectivity", "port_selectivity", "train_tuples", "tuple_bytes")


class Watch:
    """Put on a simulation before it runs. Its statistics are written to."""

    def __init__(self, simulation: Simulation, workers: int, values: Mapping[int, Values] | None = None) -> None:
        self._simulation = simulation
        self._workers = workers
        self._values = values or {}
        epoch = Epoch.of(simulation.network)
        copy_costs(simulation.statistics, epoch.stats)
        self._sampler = Sampler(epoch)
        self._learned = epoch.stats
        simulation.loop.measured_every_ns = MEASURED_EVERY_NS
        self.overload = Overload(
            epoch,
            self._apply,
            workers,
            semantic_arcs=frozenset(self._values),
            values=lambda: self._values,
            clock_ns=lambda: 0,
            tells=False,
        )
        self.plans: list[tuple[int, ShedPlan]] = []  # when, and what
        simulation.execution.is_counted = True
        self._before = simulation.on_tick  # whoever ticks already
        simulation.on_tick = self.tick

    def tick(self) -> None:
        self._before()
        sample = self._sampler.fold(self._read())
        self._simulation.statistics.train_tuples[:] = self._learned.train_tuples
        if sample is not None:
            self.overload.on_sample(sample, [True] * len(self._simulation.network.outputs))

    def _apply(self, plan: ShedPlan) -> None:
        self.plans.append((self._simulation.now_ns, plan))
        self._simulation.execution.drops.put(plan, self._values)

    def _read(self) -> Readings:
        simulation = self._simulation
        network, storage = simulation.network, simulation.storage
        counts, shed = simulation.execution.counts, simulation.execution.drops.shed
        starts = simulation.statistics.port_start.tolist()
        return Readings(
            streams=[StreamReading(s.name, n, n) for s, n in zip(network.streams, simulation.came_tuples, strict=True)],
            arcs=[
                ArcReading(
                    arc.name,
                    tuples=storage.waiting[a],
                    enqueued=storage.taken[a] + storage.waiting[a] + shed[a],
                    dequeued=storage.taken[a] - storage.expired[a],
                    shed={r: n for r, n in (("shed", shed[a]), ("expired", storage.expired[a])) if n},
                )
                for a, arc in enumerate(network.arcs)
            ],
            boxes=[
                BoxReading(
                    node.name,
                    node.kind,
                    calls=counts.calls[b],
                    tuples_in=counts.tuples_in[b],
                    tuples_out=sum(out := counts.out[starts[b] : starts[b + 1]]),
                    cost_ns=int(counts.cost_ns[b]),
                    tuples_out_by_port=out,
                )
                for b, node in enumerate(network.boxes)
            ],
            outputs=[OutputReading(o.name, n) for o, n in zip(network.outputs, counts.emitted, strict=True)],
            workers=[WorkerReading(w, simulation.busy_ns // self._workers) for w in range(self._workers)],
            scheduler=SchedulerReading(lent_ns=simulation.lent_ns),
            engine=EngineReading(now_ns=simulation.now_ns, workers=self._workers),
        )


def copy_costs(source: Statistics, target: Statistics) -> None:
    """What is known of the boxes, so that the shedder need not learn it first."""
    for name in LEARNED:
        getattr(target, name)[:] = getattr(source, name)
    target.observed_calls[:] = np.maximum(source.observed_calls, 1)
