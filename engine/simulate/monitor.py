"""The monitor and the load shedder of a simulation: the daemon's own, ten times a second of virtual time.

The counts of a simulated engine are put into the readings that the daemon makes of itself. The sampler, the verdict,
the road map and the controller are the daemon's and see no difference. Their shed plan comes back as the share that
each arc keeps. ``values`` says what tuples are worth on the arcs where drops go by value (``sampled_values``).

Of the statistics only the train lengths change during a run, as they do in the daemon; costs and selectivities are
given.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from catalog.catalog import Epoch
from catalog.loss import ValueCells
from catalog.readings import (
    ArcReading,
    BoxReading,
    EngineReading,
    LatencyReading,
    OutputReading,
    Readings,
    SchedulerReading,
    StreamReading,
    WorkerReading,
)
from catalog.stats import Statistics
from engine.simulate.core import Simulation
from load_shedder.control_loop import OverloadControl
from load_shedder.decide.places import shed_arcs
from load_shedder.shed_plan import ShedPlan
from qos_monitor.sampler import Sampler
from qos_monitor.verdict import LoadJudge
from scheduler.loop import MEASURED_EVERY_NS
from scheduler.policies import runs_urgent_first

LEARNED = ("cost_per_call_ns", "cost_per_tuple_ns", "selectivity", "port_selectivity", "train_tuples", "tuple_bytes")


class SimulatedMonitor:
    """Made before the simulation runs. It writes to the simulation's statistics."""

    def __init__(self, simulation: Simulation, workers: int, values: Mapping[int, ValueCells] | None = None) -> None:
        self._simulation = simulation
        self._workers = workers
        self._values = values or {}
        network = simulation.network
        loop = simulation.loop
        epoch = Epoch.of(network)
        copy_costs(simulation.statistics, epoch.stats)
        self._sampler = Sampler(epoch)
        self._learned = epoch.stats
        loop.measured_every_ns = MEASURED_EVERY_NS
        self.overload = OverloadControl(
            epoch,
            LoadJudge(
                network,
                shed_arcs(network),
                workers,
                urgent_first=lambda: runs_urgent_first(getattr(loop.policy, "__name__", "")),
                units=simulation.state.unit_boxes,
            ),
            self._apply,
            semantic_arcs=frozenset(self._values),
            values=lambda: self._values,
            clock_ns=lambda: 0,
            units=simulation.state.unit_boxes,
            is_logging=False,
        )
        for recorder in simulation.recorders:
            recorder.is_felt = True
        self.plans: list[tuple[int, ShedPlan]] = []  # when, and what
        simulation.execution.is_counted = True
        simulation.tickers.append(self.tick)

    def tick(self) -> None:
        sample = self._sampler.fold(self._read())
        self._simulation.statistics.train_tuples[:] = self._learned.train_tuples
        if sample is not None:
            self.overload.on_sample(sample, [True] * len(self._simulation.network.outputs))

    def _apply(self, plan: ShedPlan) -> None:
        self.plans.append((self._simulation.now_ns, plan))
        self._simulation.execution.drops.put(plan, self._values)
        self._simulation.loop.dead_points = self._simulation.expiry.points(plan.outputs)

    def _read(self) -> Readings:
        simulation = self._simulation
        network, storage = simulation.network, simulation.storage
        counts, shed = simulation.execution.counts, simulation.execution.drops.shed
        starts, joins = simulation.statistics.port_start.tolist(), simulation.execution.partners
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
                    by_input=[(came, made) for came, made in joins[b].counts] if b in joins else (),
                )
                for b, node in enumerate(network.boxes)
            ],
            outputs=[
                OutputReading(o.name, n, LatencyReading(tuples=r.felt_tuples, utility_sum=r.felt_utility))
                for o, n, r in zip(network.outputs, counts.emitted, simulation.recorders, strict=True)
            ],
            workers=[WorkerReading(w, simulation.busy_ns // self._workers) for w in range(self._workers)],
            scheduler=SchedulerReading(caller_ns=simulation.caller_ns),
            engine=EngineReading(now_ns=simulation.now_ns, workers=self._workers),
        )


def copy_costs(source: Statistics, target: Statistics) -> None:
    """Copy what is known of the boxes, so that the shedder does not have to learn it first."""
    for name in LEARNED:
        getattr(target, name)[:] = getattr(source, name)
    target.observed_calls[:] = np.maximum(source.observed_calls, 1)
