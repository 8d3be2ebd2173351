"""``policy: auto`` chooses the policy from the network, and again while the engine runs.

The papers leave self-tuning as future work; this is ours. Before anything is measured, the network alone decides
(``first_choice``). Later, candidates are judged by *forecasts*: the utility and latency that each would give the tuples
that wait and those that will come, by the statistics of this moment. The engine asks its simulator for them, which runs
the same scheduler. ``next_choice`` changes the policy only when another is better by a margin: forecasts depend on
chance, and a change of policy discards the order that the old one had built.

A policy that drops tuples (``bts1``, ``ats1``) is never a candidate: a request for a good order is not a request for
loss. The load shedder decides on loss, by the loss graphs.
"""
# The functions here are pure. ``engine/simulate/chooser`` decides when to ask them.

from __future__ import annotations

from collections.abc import Sequence
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
"""One policy of each kind. The others (hnr, bsd, chain, vpipe, ats) did as well as one of these, or worse."""


class Choice(NamedTuple):
    policy: str
    reason: str


class Forecast(NamedTuple):
    """The result that a policy would have from now on."""

    policy: str
    utility: float  # mean over the tuples that come out, 0 to 1
    latency_ns: float  # mean


def candidates(network: Network) -> tuple[str, ...]:
    """Return the policies worth a forecast in this network, in the order in which ties are broken."""
    out: tuple[str, ...] = ALWAYS
    if any(o.qos.deadline_ns is not None for o in network.outputs):
        out = (*out, *BY_DEADLINES)
    if any(o.qos.latency is not None for o in network.outputs):
        out = (_by_slope(network), *out, *BY_GRAPHS)
    return out


def _by_slope(network: Network) -> str:
    return "qos_buckets" if len(network.boxes) >= MANY_BOXES else "qos"


def finalists(current: str, forecasts: Sequence[Forecast]) -> tuple[str, ...]:
    """Return the policies of a short round that are worth a long one: the best, the current one to compare with, and
    fcfs.

    fcfs works on the tuples that wait for longer than a short round lasts. Its strength, that no query starves, shows
    only after that.
    """
    best = sorted(forecasts, key=lambda f: -f.utility)[:FINALISTS]  # stable: ties stay in the order of preference
    kept = {f.policy for f in best if f.utility >= best[0].utility - CLOSE} | {current, "fcfs"}
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


def next_choice(current: str, forecasts: Sequence[Forecast]) -> Choice | None:
    """Return the policy to follow from now on; None to stay with the current one.

    Forecasts within a margin of the best utility count as equal. Among them the least mean latency decides, because
    latency that grows now is utility that falls a little later. The current policy stays while it is among them and not
    clearly slower.
    """
    if not forecasts:
        return None
    most = max(f.utility for f in forecasts)
    equals = [f for f in forecasts if f.utility >= most - MARGIN]
    chosen = min(equals, key=lambda f: f.latency_ns)  # the first of equals
    now = next((f for f in forecasts if f.policy == current), None)
    if now is not None and now in equals and now.latency_ns <= SLOWER * chosen.latency_ns:
        return None
    instead = "not forecast, it takes too many steps" if now is None else _in_words(now)
    return Choice(chosen.policy, f"forecast: {_in_words(chosen)}; {current}: {instead}")


def _in_words(forecast: Forecast) -> str:
    return f"utility {forecast.utility:.3f} at {forecast.latency_ns / 1e6:.3g} ms"
