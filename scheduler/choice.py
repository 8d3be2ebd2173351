"""``policy: auto``: which policy to follow, and why. Pure functions; who asks, and how often, is the engine's affair.

The papers leave self-tuning as future work; this is ours. Before anything is known, the network alone decides
(``first_choice``). Later, candidates are judged by *forecasts*: what each would make of the tuples that wait and of
those that will come, by the statistics of this moment (the engine asks its simulator, which runs this very scheduler).
``next_choice`` then changes the policy only when another is better by a margin: forecasts are drawn from chance, and a
change of policy throws away what the old one had arranged.

A policy that drops tuples (``bts1``, ``ats1``) is never a candidate: who asks for a good order has not asked for loss.
What may be lost is for the load shedder, which goes by the loss graphs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from catalog.network import Network

AUTO = "auto"
MARGIN = 0.005
"""Another policy must promise so much more utility (on a scale from 0 to 1) ..."""

SLOWER = 1.5
"""... or the same at a mean latency lower by this factor."""

FINALISTS = 3
CLOSE = 0.15
"""Who is further behind in the short round is not asked again."""

MANY_BOXES = 2_000
"""From here on ``qos_buckets`` stands in for ``qos``: a decision costs what moved."""

ALWAYS = ("fcfs", "round_robin", "hr", "lsf")
BY_GRAPHS = ("qos_feedback",)
BY_DEADLINES = ("bts", "edf")
"""One of each kind: those that are left out (hnr, bsd, chain, vpipe, ats) came out as one of these do, or behind."""


class Choice(NamedTuple):
    policy: str
    reason: str


class Forecast(NamedTuple):
    """What a policy would do from now on."""

    policy: str
    utility: float  # mean over the tuples that come out, 0 to 1
    latency_ns: float  # mean


def candidates(network: Network) -> tuple[str, ...]:
    """The policies worth asking about in this network, in the order in which ties are broken."""
    out: tuple[str, ...] = ALWAYS
    if any(o.qos.deadline_ns is not None for o in network.outputs):
        out = (*out, *BY_DEADLINES)
    if any(o.qos.latency is not None for o in network.outputs):
        out = (_by_slope(network), *out, *BY_GRAPHS)
    return out


def _by_slope(network: Network) -> str:
    return "qos_buckets" if len(network.boxes) >= MANY_BOXES else "qos"


def finalists(current: str, forecasts: Sequence[Forecast]) -> tuple[str, ...]:
    """Of a first, short round those worth a long one: the best, the current one to compare with, and fcfs: what waits
    keeps it busy longer than a short round lasts, and then nobody is starved."""
    best = sorted(forecasts, key=lambda f: -f.utility)[:FINALISTS]  # stable: ties stay in the order of preference
    kept = {f.policy for f in best if f.utility >= best[0].utility - CLOSE} | {current, "fcfs"}
    return tuple(f.policy for f in forecasts if f.policy in kept)


def first_choice(network: Network) -> Choice:
    """From the network and its QoS alone."""
    graphs = {o.qos.latency for o in network.outputs}
    if graphs <= {None}:
        return Choice("round_robin", "no output says what lateness costs: everyone in turn")
    if len(graphs) == 1:
        return Choice("fcfs", "all outputs lose alike by lateness: the oldest tuple first")
    return Choice(_by_slope(network), "outputs lose differently by lateness: where most is lost a second comes first")


def next_choice(current: str, forecasts: Sequence[Forecast]) -> Choice | None:
    """The policy to follow from now on; None to stay with the current one.

    Those within a margin of the best utility count as equal; among them the least mean latency decides, because
    latency that grows is utility that falls a little later. The current one stays while it is among them and not
    clearly slower.
    """
    if not forecasts:
        return None
    most = max(f.utility for f in forecasts)
    equals = [f for f in forecasts if f.utility >= most - MARGIN]
    chosen = min(equals, key=lambda f: f.latency_ns)  # a tie: the first
    now = next((f for f in forecasts if f.policy == current), None)
    if now is not None and now in equals and now.latency_ns <= SLOWER * chosen.latency_ns:
        return None
    instead = "which takes too many steps to tell" if now is None else _in_words(now)
    return Choice(chosen.policy, f"{_in_words(chosen)} ahead; {current}: {instead}")


def _in_words(forecast: Forecast) -> str:
    return f"utility {forecast.utility:.3f} at {forecast.latency_ns / 1e6:.3g} ms"
