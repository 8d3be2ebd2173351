"""``policy: auto`` chooses the policy from the network, and again while the engine runs.

The papers leave self-tuning as future work; this is ours. Before anything is measured, the network alone decides
(``first_choice``). Later, candidates are judged by *forecasts*: the utility and latency that each would give the tuples
that wait and those that will come, by the statistics of this moment. The engine asks its simulator for them, which runs
the same scheduler, with the drops of the shed plan in force. ``next_choice`` changes the policy only when another is
better by a margin: forecasts depend on chance, and a change of policy discards the order that the old one had built.

Utility comes first. Every output counts the same. Among policies of equal utility the criterion of the papers decides
that the engine is short of: memory while its budget fills up (``chain`` is a candidate then), mean slowdown where
outputs have no latency graph and wait (``hnr``), and otherwise mean latency. ``ats`` is a candidate while deadlines are
missed.

A forecast is not believed for ever. A new policy is on probation: if the outputs get less from it than they got before,
at about the same load, the engine goes back to the old policy and bars the new one for a while (``Probation``).

A policy that drops tuples (``bts1``, ``ats1``) is never a candidate: a request for a good order is not a request for
loss. The load shedder decides on loss, by the loss graphs.
"""
# The functions here are pure. ``engine/simulate/chooser`` decides when to ask them.

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from catalog.network import Network

AUTO = "auto"
MARGIN = 0.005
"""Another policy must promise this much more utility (on a scale from 0 to 1) ..."""

SLOWER = 1.5
"""... or the same at a mean latency lower by this factor."""

FINALISTS = 3
CLOSE = 0.15
"""A candidate that is further behind in the short round is not asked again."""

MANY_BOXES = 2_000
"""From this many boxes on ``qos_buckets`` replaces ``qos``: its decisions cost only the boxes that moved."""

ALWAYS = ("fcfs", "round_robin", "hr", "lsf")
BY_GRAPHS = ("qos_feedback",)
BY_DEADLINES = ("bts", "edf")
"""One policy of each kind. The others (bsd, vpipe, muf) did as well as one of these, or worse."""

MEMORY, SLOWDOWN, DEADLINES = "chain", "hnr", "ats"
"""The candidates for an engine that is short of memory, of speed for cheap queries, or of time to its deadlines."""

MEMORY_SHORT, SLOWDOWN_SHORT, MISSED_SHORT = 0.5, 5.0, 0.05
"""From here on the engine is short of it: the share of the memory budget in use, the mean slowdown of outputs without a
latency graph, and the share of the tuples that missed a deadline."""


class Choice(NamedTuple):
    policy: str
    reason: str


class Forecast(NamedTuple):
    """The result that a policy would have from now on."""

    policy: str
    utility: float  # mean over the outputs, 0 to 1
    latency_ns: float  # mean
    slowdown: float = 1.0  # mean
    memory_bytes: float = 0.0  # mean over time, on queues


class Pressure(NamedTuple):
    """How short the engine is of what utility does not show."""

    memory: float = 0.0  # share of the budget in use
    slowdown: float = 1.0  # mean, of outputs without a latency graph
    missed: float = 0.0  # share of the tuples that missed a deadline

    @property
    def short_of(self) -> str:
        """The criterion among policies of equal utility: memory, slowdown, or the mean latency ("")."""
        if self.memory >= MEMORY_SHORT:
            return "memory"
        return "slowdown" if self.slowdown >= SLOWDOWN_SHORT else ""


NO_PRESSURE = Pressure()


def candidates(network: Network, pressure: Pressure = NO_PRESSURE) -> tuple[str, ...]:
    """Return the policies worth a forecast in this network, in the order in which ties are broken."""
    out: tuple[str, ...] = ALWAYS
    if any(o.qos.deadline_ns is not None for o in network.outputs):
        out = (*out, *BY_DEADLINES)
        if pressure.missed >= MISSED_SHORT:
            out = (*out, DEADLINES)
    if any(o.qos.latency is not None for o in network.outputs):
        out = (_by_slope(network), *out, *BY_GRAPHS)
    if pressure.memory >= MEMORY_SHORT:
        out = (*out, MEMORY)
    if pressure.slowdown >= SLOWDOWN_SHORT:
        out = (*out, SLOWDOWN)
    return out


def _by_slope(network: Network) -> str:
    return "qos_buckets" if len(network.boxes) >= MANY_BOXES else "qos"


def finalists(current: str, forecasts: Sequence[Forecast]) -> tuple[str, ...]:
    """Return the policies of a short round that are worth a long one: the best, the current one to compare with, fcfs,
    and those for what the engine is short of.

    fcfs works on the tuples that wait for longer than a short round lasts. Its strength, that no query starves, shows
    only after that.
    """
    best = sorted(forecasts, key=lambda f: -f.utility)[:FINALISTS]  # stable: ties stay in the order of preference
    kept = {f.policy for f in best if f.utility >= best[0].utility - CLOSE} | {current, "fcfs", MEMORY, SLOWDOWN}
    return tuple(f.policy for f in forecasts if f.policy in kept)


def first_choice(network: Network) -> Choice:
    """Choose from the network and its QoS graphs alone."""
    graphs = {o.qos.latency for o in network.outputs}
    if graphs <= {None}:
        return Choice("round_robin", "no output has a latency graph: every unit in turn")
    if len(graphs) == 1:
        return Choice("fcfs", "all outputs have the same latency graph: the oldest tuple first")
    return Choice(
        _by_slope(network), "outputs have different latency graphs: the box where waiting costs most comes first"
    )


def next_choice(current: str, forecasts: Sequence[Forecast], short_of: str = "") -> Choice | None:
    """Return the policy to follow from now on; None to stay with the current one.

    Forecasts within a margin of the best utility count as equal. Among them the criterion decides that the engine is
    short of (``Pressure``). Without one that is the least mean latency, because latency that grows now is utility that
    falls a little later. The current policy stays while it is among them and not clearly worse.
    """
    if not forecasts:
        return None
    most = max(f.utility for f in forecasts)
    equals = [f for f in forecasts if f.utility >= most - MARGIN]
    chosen = min(equals, key=lambda f: _cost(f, short_of))  # the first of equals
    now = next((f for f in forecasts if f.policy == current), None)
    if now is not None and now in equals and _cost(now, short_of) <= SLOWER * _cost(chosen, short_of):
        return None
    instead = "not forecast, it takes too many steps" if now is None else _in_words(now, short_of)
    return Choice(chosen.policy, f"forecast: {_in_words(chosen, short_of)}; {current}: {instead}")


def _cost(forecast: Forecast, short_of: str) -> float:
    by = {"memory": forecast.memory_bytes, "slowdown": forecast.slowdown}
    return by.get(short_of, forecast.latency_ns)


def _in_words(forecast: Forecast, short_of: str) -> str:
    said = f"utility {forecast.utility:.3f} at {forecast.latency_ns / 1e6:.3g} ms"
    by = {"memory": f", {forecast.memory_bytes / 1e6:.3g} MB", "slowdown": f", slowdown {forecast.slowdown:.3g}"}
    return said + by.get(short_of, "")


PROBATION_NS, SETTLING_NS = 3_000_000_000, 1_000_000_000
WORSE = 0.03  # of utility: what chance does in some seconds
OTHER_LOAD = 1.2  # a load that changed by this factor explains any difference
BARRED_NS = 30_000_000_000


class FeltLevel(NamedTuple):
    """What the outputs get at one time."""

    utility: float  # mean over the outputs, losses included
    load: float


@dataclass(frozen=True, slots=True)
class Probation:
    """A change of policy that measurement must confirm."""

    before: Choice
    level: FeltLevel  # under the policy before
    since_ns: int
    utility_sum: float = 0.0
    load_sum: float = 0.0
    looks: int = 0

    def note(self, now_ns: int, felt: FeltLevel) -> Probation:
        """Return the probation after one more look. What comes out at first was served by the policy before."""
        if now_ns - self.since_ns < SETTLING_NS:
            return self
        sums = self.utility_sum + felt.utility, self.load_sum + felt.load
        return Probation(self.before, self.level, self.since_ns, *sums, self.looks + 1)

    def is_over(self, now_ns: int) -> bool:
        return now_ns - self.since_ns >= PROBATION_NS and self.looks > 0

    def failed(self, policy: str) -> Choice | None:
        """Return the choice to go back to; None when the new policy stays."""
        utility, load = self.utility_sum / self.looks, self.load_sum / self.looks
        is_same_load = max(load, self.level.load) <= OTHER_LOAD * max(min(load, self.level.load), 1e-9)
        if not is_same_load or utility >= self.level.utility - WORSE:
            return None
        return Choice(
            self.before.policy, f"measured: utility {self.level.utility:.3f} before, {utility:.3f} under {policy}"
        )
