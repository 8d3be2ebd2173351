"""What a change of the network does to the outputs that are there: each is simulated as it is and as it would be.

Both networks run on the virtual clock with the same arrivals, at the rates of this moment, with the daemon's own
scheduler, monitor and load shedder (``contract``). The costs are those that the daemon has measured. Boxes that are
new, which it cannot know, are run on the last train of each stream, together with the boxes before them: not on the
daemon's boxes but on copies with an empty state. A box that calls code of users is not tried: it has the cost of its
kind.

A large network at a high rate would take minutes to simulate. The simulated time is shorter there (``CALLS``), and
below ``LEAST_NS`` only the load is forecast.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from time import perf_counter_ns
from typing import Any, NamedTuple

import numpy as np

from catalog.load import LoadModel
from catalog.network import BoxNode, Network
from catalog.stats import Statistics
from engine.operators.boxes.base import Tally
from engine.run.declared_costs import declared_costs
from engine.run.settings import scheduler_settings
from engine.simulate.arrivals import READS_PER_S, arrivals
from engine.simulate.contract import Contract, contract
from engine.simulate.experiment import Experiment
from engine.simulate.overheads import Overheads
from engine.simulate.sampled_values import sampled_values
from storage.train import Train

TRUSTED_CALLS = 4.0  # times the usual cost of a call: a measured one above it is charged to the tuples
MOST_NS, LEAST_NS = 5_000_000_000, 300_000_000
CALLS = 15_000  # box calls of one simulation, roughly
TRIES = 3
SAMPLE = 1_000  # tuples


class Outlook(NamedTuple):
    """One output as it is and as it would be. Without a simulation only the load is known."""

    name: str
    utility: tuple[float, float]
    p99_ns: tuple[float, float]
    share: tuple[float, float]  # delivered


class ChangeForecast(NamedTuple):
    load: tuple[float, float]  # of the workers
    outputs: tuple[Outlook, ...]

    def to_json(self) -> dict[str, Any]:
        return {"load": list(self.load), "outputs": [{**o._asdict()} for o in self.outputs]}

    def broken(self, min_utility: float) -> list[Outlook]:
        """Return the outputs that the change takes below this utility, or further below it."""
        return [o for o in self.outputs if o.utility[1] < min(min_utility, o.utility[0] - WORSE)]


WORSE = 0.01  # a smaller fall of utility is noise


def foresee(
    before: Network,
    after: Network,
    measured: Statistics,
    latest: Mapping[str, Train],
    workers: int,
    overheads: Overheads,
    policy: str,
) -> ChangeForecast:
    """Forecast a change. ``measured`` belongs to the network before, ``latest`` has the last train of each stream."""
    now = trusted(before, measured)
    then = trusted(after, measured, before)
    new = [node for node in after.boxes if all(before.find_box(name) is None for name in node.names)]
    try_out(after, then, {node.number for node in new}, latest)
    loads = tuple(_load(n, s, workers) for n, s in ((before, now), (after, then)))
    duration_ns = min(_affordable_ns(n, s) for n, s in ((before, now), (after, then)))
    if duration_ns < LEAST_NS:
        return ChangeForecast((loads[0], loads[1]), ())
    found = [_simulate(n, s, workers, overheads, policy, duration_ns) for n, s in ((before, now), (after, then))]
    by_name = [{o.name: o for o in each.outputs} for each in found]
    outlooks = [
        Outlook(o.name, (o.utility, later.utility), (o.p99_ns, later.p99_ns), (o.share, later.share))
        for o in by_name[0].values()
        if (later := by_name[1].get(o.name)) is not None
    ]
    return ChangeForecast((loads[0], loads[1]), tuple(outlooks))


def trusted(network: Network, measured: Statistics, of: Network | None = None) -> Statistics:
    """Return the measured costs of the boxes that have run, and the usual ones of the others."""
    statistics = declared_costs(network)
    usual_ns = statistics.cost_per_call_ns.copy()
    known = deepcopy(measured)
    if of is not None:
        known = Statistics(network)
        known.carry_over(measured, network, of)
    ran = np.flatnonzero(known.observed_calls > 0)
    train = np.maximum(known.train_tuples[ran], 1.0)
    call_ns = np.minimum(known.cost_per_call_ns[ran], TRUSTED_CALLS * usual_ns[ran])
    statistics.cost_per_call_ns[ran] = call_ns
    whole_ns = known.cost_per_tuple_ns[ran] + known.cost_per_call_ns[ran] / train
    statistics.cost_per_tuple_ns[ran] = np.maximum(whole_ns - call_ns / train, 0.0)
    statistics.train_tuples[ran] = train
    ports = np.isin(statistics.port_box, ran)
    statistics.port_selectivity[ports] = known.port_selectivity[ports]
    statistics.selectivity[ran] = known.selectivity[ran]
    statistics.rate_per_s[:] = known.rate_per_s
    statistics.output_cost_ns[:] = known.output_cost_ns
    return statistics


# -- new boxes ---------------------------------------------------------------------------------------------------------


def try_out(network: Network, statistics: Statistics, new: set[int], latest: Mapping[str, Train]) -> None:
    """Measure the cost and the selectivity of new boxes on the last tuples of the streams."""
    wanted = _with_feeders(network, new)
    made: dict[tuple[bool, int, int], Train] = {}
    for stream in network.streams:
        if (train := latest.get(stream.name)) is not None and train.schema == stream.schema and train.count:
            made[True, stream.number, 0] = train.slice(0, min(train.count, SAMPLE))
    for node in network.boxes:
        if node.number in wanted and not node.box.calls_users:
            sources = [network.arcs[a].source for a in node.in_arcs]
            inputs = [
                made.get((True, s.stream, 0) if s.stream is not None else (False, s.box or 0, s.port)) for s in sources
            ]
            if all(train is not None for train in inputs):
                came = [train for train in inputs if train is not None]
                outs = _try_one(node, came, statistics, is_new=node.number in new)
                made |= {(False, node.number, port): out for port, out in outs.items() if out.count}


def _with_feeders(network: Network, boxes: set[int]) -> set[int]:
    found = set(boxes)
    for box in sorted(boxes, reverse=True):
        found |= _with_feeders(network, set(network.feeders[box]))
    return found


def _try_one(node: BoxNode, inputs: Sequence[Train], statistics: Statistics, *, is_new: bool) -> dict[int, Train]:
    """Run a box with an empty state some times, and take note of the best time."""
    taken = sum(train.count for train in inputs)
    best_ns = float("inf")
    emitted: list[tuple[int, Train]] = []
    for _ in range(TRIES):
        emitted = []
        state, tally = node.box.new_state(), Tally()
        begun_ns = perf_counter_ns()
        for port, train in enumerate(inputs):
            node.box.run(state, port, train, _collector(emitted), tally)
        best_ns = min(best_ns, perf_counter_ns() - begun_ns)
    outs: dict[int, Train] = {}
    for port in range(len(node.ports)):
        if trains := [train for at, train in emitted if at == port]:
            outs[port] = Train.concat(trains)
    if is_new:
        statistics.train_tuples[node.number] = max(train.count for train in inputs)
    if is_new and node.cost_ns is None:
        call_ns = min(float(statistics.cost_per_call_ns[node.number]), best_ns)
        statistics.cost_per_tuple_ns[node.number] = (best_ns - call_ns) / taken
        statistics.cost_per_call_ns[node.number] = call_ns
    if is_new and node.selectivity is None and node.box.row_wise:  # a window says nothing after one train
        start = int(statistics.port_start[node.number])
        for port in range(len(node.ports)):
            statistics.port_selectivity[start + port] = (outs[port].count if port in outs else 0) / taken
        stop = int(statistics.port_start[node.number + 1])
        statistics.selectivity[node.number] = statistics.port_selectivity[start:stop].sum()
    return outs


def _collector(emitted: list[tuple[int, Train]]) -> Callable[[int, Train], None]:
    return lambda port, train: emitted.append((port, train))


# -- the simulation ----------------------------------------------------------------------------------------------------


def _load(network: Network, statistics: Statistics, workers: int) -> float:
    cost_ns = statistics.effective_cost_ns()
    work = LoadModel(network).coefficients(cost_ns, statistics.port_selectivity, statistics.output_cost_ns)
    return float(np.dot(work.streams, statistics.rate_per_s)) / (1e9 * workers)


def _affordable_ns(network: Network, statistics: Statistics) -> float:
    """Return how much time may be simulated with about ``CALLS`` box calls."""
    reads_per_s = float(np.minimum(statistics.rate_per_s, READS_PER_S).sum())
    return min(MOST_NS, CALLS / max(reads_per_s * max(1, len(network.boxes)), 1e-9) * 1e9)


def _simulate(
    network: Network, statistics: Statistics, workers: int, overheads: Overheads, policy: str, duration_ns: float
) -> Contract:
    experiment = Experiment(
        network,
        statistics,
        (policy,),
        (1.0,),
        duration_ns=int(duration_ns),
        workers=workers,
        settings=scheduler_settings(network.config.scheduler),
        overheads=overheads,
    )
    rates = enumerate(statistics.rate_per_s.tolist())
    trains = {s: arrivals("poisson", 0, s, rate, int(duration_ns)) for s, rate in rates if rate > 0}
    return contract(experiment, policy, 1.0, trains, sampled_values(network), drain_ns=int(duration_ns))
