"""Where the experiments of the figures run: one call, two engines.

``real`` runs the engine in this process; its universal boxes spend their declared cost in processor time
(``real_engine.py``). ``simulated`` runs the same scheduler, network and arrivals under a virtual clock with overheads
that were measured once (``simulate/core.py``): it gives the same answer every time. Both return a ``LabRun``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

import numpy as np

from catalog.load import LoadModel
from catalog.network import Network
from catalog.stats import Statistics
from engine.lab.figures.figure import REAL, Value
from engine.run.declared_costs import declared_costs
from engine.simulate.arrivals import Trains
from engine.simulate.core import Simulation
from engine.simulate.overheads import Overheads
from engine.simulate.quality import summary
from scheduler.policies import Policy, policies
from scheduler.state import SchedulerSettings

T = TypeVar("T")


class LabRun(NamedTuple):
    """The result of one run. Times are in ns."""

    tuples: int  # delivered
    mean_ns: float  # latency, of all outputs together
    p99_ns: float
    max_ns: float
    utility: float  # mean over tuples
    slowdown_mean: float
    slowdown_max: float
    slowdown_l2: float
    sdmr: float  # share of missed deadlines
    elapsed_ns: float  # from the first arrival to the end of the last plan
    box_ns: float  # busy time inside the boxes ...
    scheduler_ns: float  # ... deciding ...
    storage_ns: float  # ... at the queues ...
    worker_ns: float  # ... and in the workers outside their boxes
    calls: int
    plans: int
    mean_bytes: float  # in queues, mean over time; 0 on the real engine

    @property
    def overhead_ns(self) -> float:
        return self.scheduler_ns + self.storage_ns + self.worker_ns


@dataclass(frozen=True)
class Lab:
    """One run of a figure: the engine, the seed, and the values of the settings that the paper does not print.

    ``short``: the form of the experiment for the sweep and the tests, about a second in the simulator.
    """

    engine: str
    short: bool = False
    seed: int = 1
    settings: Mapping[str, Value] = field(default_factory=dict)

    @property
    def is_real(self) -> bool:
        return self.engine == REAL

    def choose(self, full: T, short: T) -> T:
        return short if self.short else full

    def by_engine(self, real: T, simulated: T) -> T:
        return real if self.is_real else simulated

    def number(self, name: str) -> float:
        """Return the value of a setting."""
        return float(self.settings[name])

    def count(self, name: str) -> int:
        return round(self.number(name))

    def word(self, name: str) -> str:
        return str(self.settings[name])

    def run(
        self,
        network: Network,
        trains: Mapping[int, Trains],
        *,
        policy: str | Policy = "round_robin",
        settings: SchedulerSettings | None = None,
        overheads: Overheads | None = None,
        statistics: Statistics | None = None,
        apart: bool = False,
    ) -> LabRun:
        """Run the network with one worker. ``overheads`` are for the simulator: the real engine has its own. ``policy``
        may be a function, such as a baseline of a paper. ``apart``: see ``run_real``."""
        settings = settings or SchedulerSettings()
        statistics = statistics if statistics is not None else declared_costs(network)
        if self.is_real:
            from engine.lab.figures.real_engine import run_real

            return run_real(network, trains, policy, settings, statistics, apart=apart)
        return run_simulated(network, trains, policy, settings, statistics, overheads)


def run_simulated(
    network: Network,
    trains: Mapping[int, Trains],
    policy: str | Policy,
    settings: SchedulerSettings,
    statistics: Statistics,
    overheads: Overheads | None = None,
) -> LabRun:
    decide = policies()[policy] if isinstance(policy, str) else policy
    simulation = Simulation(network, decide, trains, statistics=statistics, settings=settings, overheads=overheads)
    simulation.run()
    simulation.count_expired()
    quality, totals = summary(simulation.recorders), simulation.totals
    return LabRun(
        tuples=quality.tuples,
        mean_ns=quality.mean_ns,
        p99_ns=quality.p99_ns,
        max_ns=quality.max_ns,
        utility=quality.utility,
        slowdown_mean=quality.slowdown_mean,
        slowdown_max=quality.slowdown_max,
        slowdown_l2=quality.slowdown_l2,
        sdmr=quality.sdmr,
        elapsed_ns=float(simulation.now_ns),
        box_ns=totals.box_ns,
        scheduler_ns=totals.scheduler_ns,
        storage_ns=totals.storage_ns,
        worker_ns=totals.worker_ns,
        calls=totals.calls,
        plans=totals.plans,
        mean_bytes=simulation.storage.byte_ns / max(simulation.now_ns, 1),
    )


class Deliveries:
    """Record the deliveries of a real engine by output; evaluate them after the run."""

    def __init__(self, network: Network, statistics: Statistics, clock: Callable[[], int]) -> None:
        ideal = LoadModel(network).ideal_ns(statistics.cost_per_call_ns, statistics.cost_per_tuple_ns)
        self._ideal_ns = np.maximum(ideal, 1.0)
        self._qos = [o.qos for o in network.outputs]
        self._rows: list[list[tuple[int, np.ndarray[tuple[int], np.dtype[np.int64]]]]] = [[] for _ in network.outputs]
        self.outlets = [self._outlet(rows, clock) for rows in self._rows]

    @staticmethod
    def _outlet(
        rows: list[tuple[int, np.ndarray[tuple[int], np.dtype[np.int64]]]], clock: Callable[[], int]
    ) -> Callable[..., None]:
        return lambda train: rows.append((clock(), train.arrival_ns))

    def late_share(self, network: Network, output: int) -> float:
        """Return the share of an output's results that missed its deadline; 0 without results."""
        rows, deadline_ns = self._rows[output], network.outputs[output].qos.deadline_ns
        if not rows or deadline_ns is None:
            return 0.0
        late = [int((at_ns - arrived > deadline_ns).sum()) for at_ns, arrived in rows]
        return sum(late) / sum(len(arrived) for _, arrived in rows)

    def qualities(self) -> dict[str, float]:
        """Compute the fields of ``LabRun`` that are about tuples."""
        latency, utility, slowdown = [np.empty(0)], [np.empty(0)], [np.empty(0)]
        missed = 0
        for rows, qos, ideal_ns in zip(self._rows, self._qos, self._ideal_ns.tolist(), strict=True):
            if not rows:
                continue
            of_output = np.maximum(np.concatenate([at_ns - arrived for at_ns, arrived in rows]), 0).astype(np.float64)
            latency.append(of_output)
            slowdown.append(of_output / ideal_ns)
            utility.append(qos.latency.utilities(of_output) if qos.latency else np.ones(len(of_output)))
            if qos.deadline_ns is not None:
                missed += int((of_output > qos.deadline_ns).sum())
        all_ns, slow = np.concatenate(latency), np.concatenate(slowdown)
        if not len(all_ns):
            all_ns, slow = np.zeros(1), np.zeros(1)
        return {
            "tuples": sum(len(part) for part in latency),
            "mean_ns": float(all_ns.mean()),
            "p99_ns": float(np.quantile(all_ns, 0.99)),
            "max_ns": float(all_ns.max()),
            "utility": float(np.concatenate(utility).mean()) if len(utility) > 1 else 1.0,
            "slowdown_mean": float(slow.mean()),
            "slowdown_max": float(slow.max()),
            "slowdown_l2": float(np.sqrt(np.square(slow).sum())),
            "sdmr": missed / len(all_ns),
        }
