"""The verdict: how much is asked of the engine, how much it can do, and who suffers.

    load = sum L r          work that arrives in a second: coefficients times what the streams offer, shed or not
    capacity                work that the workers really get done in a second when they have enough to do
    excess = load + melt * (what waits beyond what may wait) - HEADROOM * capacity

Capacity is learned and not counted in cores: under Python's lock two workers are less than two, the I/O thread takes
its part, and a box's cost is measured with all of that in it. Work done over the share of time that was worked says
what all of the time would bring; on an engine that has more than it can do that is simply the work done.

What may wait follows from the latency graphs: a backlog that is worked off before the first output leaves its good zone
harms nobody, so a burst that fits in it is no overload. The verdict looks a little ahead: at the rate at which the
backlog grows now, where will it be in ``AHEAD_S``?

Streams that block or spill can wait, so only what was done for them counts, as capacity that the others do not have;
their backlog is nobody's excess.

``judge`` is a pure function of the verdict before and the sample: the same samples give the same verdicts.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from catalog.network import Network
from catalog.stats import Floats
from qos_monitor.sampler import Sample

State = Literal["fine", "close", "overloaded"]
Flags = npt.NDArray[np.bool_]

HEADROOM = 0.95  # of capacity that may be planned for: the rest is for what no mean shows
FIRST_GUESS = 0.8  # of a worker's time, before anything was learned
CLOSE_RATIO = 0.9
MELT_S = 0.5  # a backlog beyond what may wait is to be gone in this time
AHEAD_S = 0.2
BEGUN_RATIO = 0.25  # of what may wait: without that much nothing has begun
RISE_TAU_S, FALL_TAU_S = 0.15, 0.5  # of the rates: up fast, down slowly
CAPACITY_TAU_S = 0.5
TREND_TAU_S = 1.0
BUSY_ENOUGH = 0.5  # below this share of time worked, what it would bring at full time is a guess
SLOWEST_RATIO = 0.05  # of the workers' time: capacity is never taken for less
WAIT_AT_LEAST_NS, WAIT_AT_MOST_NS = 20_000_000, 500_000_000
SUFFERS_BELOW = 0.95


class Terms(NamedTuple):
    """What the verdict goes by, of one network."""

    streams: Flags  # whose load counts: those that shed, or all where none does
    arcs: Flags  # whose backlog counts
    others: npt.NDArray[np.intp]  # arcs from the other streams
    wait_ns: int  # how long tuples may wait without harm
    best: Floats  # by output: the highest utility of its latency graph

    @classmethod
    def of(cls, network: Network, shed_arcs: list[bool]) -> Terms:
        sheds = np.array([s.overload == "shed" for s in network.streams], np.bool_)
        arcs = np.array(shed_arcs, np.bool_)
        others = [a for s in network.streams if s.overload != "shed" for a in s.arcs] if sheds.any() else []
        if not sheds.any():
            sheds, arcs = np.ones_like(sheds), np.ones_like(arcs)
        deadlines = [o.qos.deadline_ns for o in network.outputs if o.qos.deadline_ns is not None]
        wait_ns = min(max(min(deadlines, default=WAIT_AT_MOST_NS) // 2, WAIT_AT_LEAST_NS), WAIT_AT_MOST_NS)
        graphs = [o.qos.latency for o in network.outputs]
        best = np.array([1.0 if g is None else g.points[0][1] for g in graphs], np.float64)
        return cls(sheds, arcs, np.array(others, np.intp), wait_ns, best)


class Verdict(NamedTuple):
    at_ns: int = 0
    state: State = "fine"
    load_ns: float = 0.0  # work a second that is asked for, nothing shed
    capacity_ns: float = 0.0  # work a second that can be done for it
    load_ratio: float = 0.0
    trend_per_s: float = 0.0  # of the ratio
    backlog_ns: float = 0.0  # work that waits
    wait_ns: float = 0.0  # how long it will wait, at this capacity
    excess_ns: float = 0.0  # work a second too much; below 0: room
    headroom_ratio: float = FIRST_GUESS  # learned: capacity over the workers' time
    others_ns: float = 0.0  # work a second done for streams that can wait
    suffering: tuple[int, ...] = ()  # outputs below what their graphs could give
    rates: tuple[float, ...] = ()  # by stream, as they are judged: up fast, down slowly


def judge(before: Verdict, sample: Sample, terms: Terms, workers: int) -> Verdict:
    """The next verdict."""
    elapsed_s = sample.elapsed_ns / 1e9
    rates = _rates(before, sample, elapsed_s)
    headroom = _headroom(before, sample, workers, elapsed_s)
    load_ns = float(np.dot(sample.coefficients.streams[terms.streams], rates[terms.streams]))
    done_ns = float(np.dot(sample.coefficients.arcs[terms.others], sample.taken_rates[terms.others]))
    others_ns = before.others_ns + _gain(elapsed_s, CAPACITY_TAU_S) * (done_ns - before.others_ns)
    all_ns = headroom * workers * 1e9
    capacity_ns = max(all_ns - others_ns, SLOWEST_RATIO * all_ns)
    backlog_ns = float(sample.backlog_ns[terms.arcs].sum())
    may_wait_ns = capacity_ns * terms.wait_ns / 1e9
    ratio = load_ns / capacity_ns
    ahead_ns = backlog_ns + AHEAD_S * max(0.0, load_ns - capacity_ns)
    trend = 0.0
    if before.at_ns:
        trend = before.trend_per_s + _gain(elapsed_s, TREND_TAU_S) * (
            (ratio - before.load_ratio) / elapsed_s - before.trend_per_s
        )
    return Verdict(
        at_ns=sample.at_ns,
        state=_state(before, ratio, backlog_ns, ahead_ns, may_wait_ns),
        load_ns=load_ns,
        capacity_ns=capacity_ns,
        load_ratio=ratio,
        trend_per_s=trend,
        backlog_ns=backlog_ns,
        wait_ns=backlog_ns / capacity_ns * 1e9,
        excess_ns=load_ns - HEADROOM * capacity_ns + max(0.0, backlog_ns - may_wait_ns / 2) / MELT_S,
        headroom_ratio=headroom,
        others_ns=others_ns,
        suffering=_suffering(sample, terms),
        rates=tuple(rates.tolist()),
    )


def _state(before: Verdict, ratio: float, backlog_ns: float, ahead_ns: float, may_wait_ns: float) -> State:
    """It begins with a backlog that is there and growing, and lasts for as long as more is asked than can be done.

    A cost that was measured too high for a moment (another process had the core) asks for much and leaves no backlog.
    """
    begins = ahead_ns > may_wait_ns and backlog_ns > BEGUN_RATIO * may_wait_ns
    if begins or (before.state == "overloaded" and ratio > HEADROOM):
        return "overloaded"
    return "close" if ratio > CLOSE_RATIO else "fine"


def _rates(before: Verdict, sample: Sample, elapsed_s: float) -> Floats:
    now = sample.offered_rates
    if len(before.rates) != len(now):
        return now
    known = np.array(before.rates)
    gain = np.where(now > known, _gain(elapsed_s, RISE_TAU_S), _gain(elapsed_s, FALL_TAU_S))
    smoothed: Floats = known + gain * (now - known)
    return smoothed


def _headroom(before: Verdict, sample: Sample, workers: int, elapsed_s: float) -> float:
    """What the workers bring about, as a share of their time; as before while there is too little to learn from."""
    busy = sample.busy_ratio  # above 1 where others helped, or where a plan that lasted for many ticks has ended
    if busy < BUSY_ENOUGH or sample.work_ns <= 0:
        return before.headroom_ratio
    seen = min(max(sample.work_ns / busy / (workers * 1e9), SLOWEST_RATIO), 1.0)
    return before.headroom_ratio + _gain(elapsed_s, CAPACITY_TAU_S) * (seen - before.headroom_ratio)


def _suffering(sample: Sample, terms: Terms) -> tuple[int, ...]:
    late = sample.output_utilities < SUFFERS_BELOW * terms.best
    lossy = sample.output_loss_utilities < SUFFERS_BELOW
    return tuple(np.flatnonzero(late | lossy).tolist())


def _gain(elapsed_s: float, tau_s: float) -> float:
    return float(-np.expm1(-elapsed_s / tau_s))
