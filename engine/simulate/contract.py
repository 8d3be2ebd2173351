"""The overload contract: what each output will deliver at a load that the machine cannot carry.

The network runs under the virtual clock with the daemon's own scheduler, monitor and load shedder (``monitor``). After
``SETTLE_NS`` each output is measured: the share of its tuples that comes out, their latency, and their utility by its
graphs. The same seed gives the same contract.

A load is a multiple of the knee, as everywhere (``experiment.knee_rates``). The utility of an output is the mean of its
latency graph over the delivered tuples, times its loss graph at the share of its value that was delivered (without a
loss graph, that share itself). ``bench overload`` measures the same of the daemon. Values are those of a sample
(``sampled_values``). A window that is dropped whole counts as its share.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from catalog.config.units import format_duration
from catalog.load import LoadModel
from catalog.loss import ValueCells
from catalog.qos import IN_PROPORTION
from catalog.readings import plain
from engine.simulate.arrivals import Trains
from engine.simulate.core import Simulation
from engine.simulate.edge_limits import decoded_shares, thinned
from engine.simulate.experiment import Experiment, Progress, build, over_loads
from engine.simulate.monitor import SimulatedMonitor
from engine.simulate.sampled_values import sampled_values

SETTLE_NS = 2_000_000_000
"""Not counted: the shedder may need this long to find its plan."""


class Promise(NamedTuple):
    """What one output delivers."""

    name: str
    share: float  # of its tuples that are delivered
    value: float  # share of their value that is delivered
    p50_ns: float
    p99_ns: float
    deadline_ns: int | None
    latency_utility: float
    utility: float


class StreamRate(NamedTuple):
    """The rows of one stream: how many are offered, and which share of them is decoded."""

    name: str
    per_s: float
    decoded: float


class Dropped(NamedTuple):
    """The share of an arc's tuples that was dropped."""

    arc: str
    share: float
    reason: str  # shed: by a plan; expired: too late for every output behind it


class Contract(NamedTuple):
    """What the outputs deliver at one load under one policy."""

    policy: str
    load: float
    rate_per_s: float  # of all streams
    streams: tuple[StreamRate, ...]
    outputs: tuple[Promise, ...]
    drops: tuple[Dropped, ...]  # over the whole run after settling
    load_ratio: float  # as the verdict saw it at the end
    plans: int
    peak_bytes: float = 0.0  # in queues

    @property
    def utility(self) -> float:
        """The sum over all outputs."""
        return sum(o.utility for o in self.outputs)


def run_contracts(experiment: Experiment, progress: Progress | None = None) -> list[Contract]:
    """Make the contract of every load under every policy."""
    values = sampled_values(experiment.network)
    return over_loads(
        experiment, lambda policy, load, trains: contract(experiment, policy, load, trains, values, progress)
    )


def contract(
    experiment: Experiment,
    policy: str,
    load: float,
    trains: Mapping[int, Trains],
    values: Mapping[int, ValueCells],
    progress: Progress | None = None,
    drain_ns: int | None = None,
) -> Contract:
    """Make the contract of one load. After the last arrival it runs until everything is out, or for ``drain_ns``: what
    is not out then counts as lost."""
    network, end_ns = experiment.network, experiment.duration_ns
    settle_ns = min(SETTLE_NS, end_ns // 2)
    experiment = replace(experiment, statistics=deepcopy(experiment.statistics))  # the run changes them
    rates = np.array([_rate(trains.get(s.number), end_ns) for s in network.streams])
    decoded = decoded_shares(network, rates, experiment.decode_ns)
    trains = {s: each if decoded[s] >= 1 else thinned(each, float(decoded[s])) for s, each in trains.items()}
    simulation, _ = build(experiment, policy, trains, settle_ns)
    watch = SimulatedMonitor(simulation, experiment.workers, values)
    report = None if progress is None else lambda now_ns: progress(policy, load, now_ns / max(end_ns, 1))
    simulation.run(settle_ns, report)
    drops = simulation.execution.drops
    shed_before, came_before = list(drops.shed), list(simulation.came_tuples)
    expired_before, taken_before = list(simulation.storage.expired), list(simulation.storage.taken)
    simulation.run(end_ns, report)
    verdict = watch.overload.verdict
    simulation.run(None if drain_ns is None else end_ns + drain_ns, report)
    came = np.subtract(simulation.came_tuples, came_before).astype(np.float64) / np.maximum(decoded, 1e-6)
    flow = LoadModel(network).flow(came, experiment.statistics.port_selectivity)
    dropped = {
        "shed": np.subtract(drops.shed, shed_before),
        "expired": np.subtract(simulation.storage.expired, expired_before),
    }
    taken = np.subtract(simulation.storage.taken, taken_before)
    # Tuples that waited when the measurement began may expire too, so more may be taken than has flowed.
    reached = np.maximum(np.maximum(flow.arcs, taken), 1.0)
    return Contract(
        policy=policy,
        load=load,
        rate_per_s=float(rates.sum()),
        streams=tuple(StreamRate(s.name, *pair) for s, *pair in zip(network.streams, rates.tolist(), decoded.tolist())),
        outputs=tuple(_promise(simulation, o, float(flow.outputs[o])) for o in range(len(network.outputs))),
        drops=tuple(
            Dropped(network.arcs[a].name, min(1.0, float(tuples[a] / reached[a])), reason)
            for reason, tuples in dropped.items()
            for a in np.flatnonzero(tuples > 0).tolist()
        ),
        load_ratio=verdict.load_ratio,
        plans=len(watch.plans),
        peak_bytes=float(simulation.storage.peak_bytes),
    )


def _promise(simulation: Simulation, number: int, due: float) -> Promise:
    output, recorder = simulation.network.outputs[number], simulation.recorders[number]
    quality = recorder.quality()
    share = min(1.0, recorder.tuples / due) if due >= 1 else 1.0
    qos = output.qos
    value = min(1.0, recorder.value / due) if due >= 1 and (qos.prefer or qos.value is not None) else share
    late = recorder.utility / recorder.tuples if recorder.tuples else float(due < 1)
    loss = (qos.shed_by or IN_PROPORTION).utility(value)
    return Promise(output.name, share, value, quality.p50_ns, quality.p99_ns, qos.deadline_ns, late, late * loss)


def contract_json(experiment: Experiment, contracts: Sequence[Contract]) -> dict[str, Any]:
    """Return plain data; the same experiment gives the same bytes."""
    return {
        "seed": experiment.seed,
        "arrivals": "trace" if experiment.trace else experiment.process,
        "duration_s": experiment.duration_ns / 1e9,
        "workers": experiment.workers,
        "contracts": [{**plain(c), "utility": c.utility} for c in contracts],
    }


def contract_text(contracts: Sequence[Contract]) -> str:
    from engine.simulate.report import table

    lines: list[str] = []
    for c in contracts:
        lines.append(
            f"at {_rates_text(c)}, {c.load:.3g} times the knee of {c.rate_per_s / max(c.load, 1e-9):,.0f} rows/s, "
            f"under {c.policy} the outputs deliver"
        )
        head = ("output", "share", "value", "p50", "p99", "good until", "on time", "utility")
        rows = [
            (
                o.name,
                f"{o.share:.1%}",
                f"{o.value:.1%}",
                format_duration(o.p50_ns),
                format_duration(o.p99_ns),
                "-" if o.deadline_ns is None else format_duration(o.deadline_ns),
                f"{o.latency_utility:.3f}",
                f"{o.utility:.3f}",
            )
            for o in c.outputs
        ]
        lines += table(head, [*rows, ("all", "", "", "", "", "", "", f"{c.utility:.3f}")])
        lines += [f"dropped: {_dropped_text(c)}", ""]
    return "\n".join(lines).rstrip()


def _rate(trains: Trains | None, end_ns: int) -> float:
    return 0.0 if trains is None else float(trains[1].sum()) / max(end_ns / 1e9, 1e-9)


def _rates_text(c: Contract) -> str:
    return ", ".join(
        f"{s.per_s:,.0f} rows/s of {s.name}" + (f" ({s.decoded:.0%} decoded)" if s.decoded < 1 else "")
        for s in c.streams
    )


def _dropped_text(c: Contract) -> str:
    if shown := [d for d in c.drops if d.share >= 0.005]:
        return ", ".join(f"{d.share:.0%} of {d.arc}{' (expired)' * (d.reason == 'expired')}" for d in shown)
    if c.load_ratio <= 1:
        return "nothing"
    return f"nothing, at {c.load_ratio:.0%} of capacity: the backlog grows for as long as this lasts, or senders wait"
