"""The contract beside the result: the simulator predicts what each output will deliver, before the daemon is driven.

Both sides count load in multiples of the knee and find the knee in the same way: from how busy their workers are below
it. The simulator uses the costs and selectivities that the daemon measured meanwhile. So a load means the same on both
sides, even if the simulator's knee is at another rate; the benchmark prints both rates.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from catalog.network import Network
from engine.lab.bench.overload.arrivals import ArrivalShape
from engine.lab.bench.overload.utility import LoadRun
from engine.lab.bench.report import Result
from engine.run.settings import scheduler_settings
from engine.simulate.arrivals import Trains
from engine.simulate.contract import Contract, contract
from engine.simulate.edge_limits import decode_costs
from engine.simulate.experiment import Experiment, knee_rates
from engine.simulate.learned_costs import learned_costs
from engine.simulate.measure_overheads import measure_overheads
from engine.simulate.sampled_values import sampled_values
from engine.simulate.saturation import saturation_rates

TICK_NS = 10_000_000  # that of the sender
WITHIN = 0.1  # goal for the sum of utilities at twice the knee
TWICE = 2.0


class ContractOutcome(NamedTuple):
    """A prediction, and the run that it predicted."""

    promised: Contract
    outcome: LoadRun


class ContractMaker:
    """Make contracts for one network from the statistics of a daemon that ran it (``/api/v1/stats``)."""

    def __init__(self, network: Network, stats: Mapping[str, Any], mix: Mapping[str, float]) -> None:
        statistics = learned_costs(network, stats, "the knee")
        statistics.rate_per_s[:] = [mix[s.name] for s in network.streams]
        config = network.config
        policy = config.scheduler.policy
        self._experiment = Experiment(
            network=network,
            statistics=statistics,
            policies=(policy,),
            loads=(1.0,),
            workers=config.engine.sure_workers,
            settings=scheduler_settings(config.scheduler),
            overheads=measure_overheads(),
            decode_ns=decode_costs(network, stats),
        )
        self._values = sampled_values(network)
        self._rates = knee_rates(self._experiment)

    @property
    def knee_per_s(self) -> float:
        """Tuples a second of all streams together at the simulator's knee."""
        return float(self._rates.sum())

    @cached_property
    def saturation_per_s(self) -> float:
        """Tuples a second of all streams together at which the simulated engine is full."""
        return float(saturation_rates(self._experiment).sum())

    def contract(self, shape: ArrivalShape, per_s: Mapping[str, float] | None = None) -> Contract:
        """Predict what each output delivers under these arrivals. ``per_s`` holds the rows a second at load 1, by
        stream; without it they are those of the simulator's knee."""
        experiment = replace(self._experiment, duration_ns=int(shape.seconds * 1e9))
        rates = self._rates.tolist() if per_s is None else [per_s[s.name] for s in experiment.network.streams]
        trains = {stream: arriving(shape, rate) for stream, rate in enumerate(rates)}
        return contract(experiment, experiment.policies[0], shape.load, trains, self._values)


def arriving(shape: ArrivalShape, per_s: float) -> Trains:
    """Make the arrivals of a stream as the sender makes them: whole tuples, tick by tick."""
    ticks = np.arange(round(shape.seconds * 1e9) // TICK_NS)
    due = np.array([shape.factor(i * TICK_NS / 1e9) for i in ticks.tolist()]) * (per_s * TICK_NS / 1e9)
    counts = np.diff(np.floor(np.cumsum(due) + 1e-9), prepend=0.0).astype(np.int64)
    return (ticks * TICK_NS)[counts > 0].astype(np.int64), counts[counts > 0]


def contract_results(outcomes: Sequence[ContractOutcome]) -> Iterable[Result]:
    """Compare the daemon with its contract: the sum of utilities, and share, p99 and utility of each output."""
    for promised, outcome in outcomes:
        case = f"{outcome.shape},load={outcome.load:g},contract"
        target = 1 - WITHIN if outcome.load == TWICE and outcome.shape == "uniform" else None
        limit = 1 + WITHIN if target is not None else None
        yield Result("overload", case, "utility", outcome.utility, promised.utility, at_least=target, at_most=limit)
        delivered = {o.name: o for o in outcome.outputs}
        for promise in promised.outputs:
            got = delivered[promise.name]
            place = f"{case},{promise.name}"
            yield Result("overload", place, "share", got.share, promise.share)
            yield Result("overload", place, "p99_s", got.p99_ns / 1e9, promise.p99_ns / 1e9)
            yield Result("overload", place, "utility", got.utility, promise.utility)


def contract_comparison(outcomes: Sequence[ContractOutcome]) -> str:
    """Write a table of promised and delivered values, side by side."""
    from engine.simulate.report import table

    lines: list[str] = []
    for promised, outcome in outcomes:
        lines.append(f"{outcome.shape} arrivals at {outcome.load:g} times the knee: promised, and delivered")
        delivered = {o.name: o for o in outcome.outputs}
        rows = [
            (
                p.name,
                f"{p.share:.1%}",
                f"{(got := delivered[p.name]).share:.1%}",
                f"{p.p99_ns / 1e6:,.0f} ms",
                f"{got.p99_ns / 1e6:,.0f} ms",
                f"{p.utility:.3f}",
                f"{got.utility:.3f}",
            )
            for p in promised.outputs
        ]
        off = outcome.utility / max(promised.utility, 1e-9) - 1
        rows.append(("all", "", "", "", "", f"{promised.utility:.3f}", f"{outcome.utility:.3f} ({off:+.1%})"))
        lines += table(("output", "share", "share", "p99", "p99", "utility", "utility"), rows)
        lines.append("")
    return "\n".join(lines).rstrip()
