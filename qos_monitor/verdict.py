"""The verdict: how much is asked of the engine, how much it can do, and who suffers.

    load = sum L r          work that arrives in a second: coefficients times what the streams offer, shed or not
    capacity                work that the workers really get done in a second when they have enough to do
    excess = load + melt - (HEADROOM + trim) * capacity

Capacity is learned and not counted in cores: under Python's lock two workers are less than two, the I/O thread takes
its part, and a box's cost is measured with all of that in it. Work done over the share of time that was worked says
what all of the time would bring; on an engine that has more than it can do that is simply the work done.

Costs are measured by the wall clock, and a call that lost its core to another process looks dear for a while. Three
things keep that from looking like an overload. What was done is priced by the same coefficients: if that comes to more
than the time that it took, they are too high by just so much. They rise by ``DEARER_A_TICK`` at most. And they are
taken as their mean over ``PRICE_TAU_S``, unlike rates, which jump; a tuple that really costs more shows in the backlog
meanwhile. Refused: the processor time of the thread, which a box that waits (for a lock, a disk, another machine) does
not use.

What may wait follows from the latency graphs: a backlog that is worked off before its outputs leave their good zone
harms nobody, so a burst that fits in it is no overload. Where the policy runs what is urgent first, each deadline has
its own *level*: what waits for outputs that are no less urgent must fit in half of it. Under other policies everything
waits for everything, and there is one level, the tightest. What is beyond a level is to *melt* soon; what is beyond the
tightest, at leisure, because also where order is kept workers that are never idle cost the urgent some milliseconds.

What no mean shows is what the headroom is for, and how much that is nobody knows in advance: during an overload it is
*trimmed*. While less waits than could without harm workers are idle now and then, so more can be taken; when more than
that waits it was too much. So the engine works all the time, on a short queue of what is not urgent.

The verdict looks a little ahead: at the rate at which the backlog grows now, where will it be in ``AHEAD_S``?

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
TRIM_AT_MOST, TRIM_UP_PER_S, TRIM_DOWN_PER_S = 0.15, 0.05, 0.2
STANDING = 0.125  # of what may wait at the last level: as much always does, in an overload
CLOSE_RATIO = 0.9
MELT_S, LEISURE_S = 0.7, 8.0  # a backlog beyond what may wait is to be gone in this time, or at leisure
AHEAD_S = 0.2
BEGUN_RATIO = 0.25  # of what may wait: without that much nothing has begun
RISE_TAU_S, FALL_TAU_S = 0.15, 0.5  # of the rates: up fast, down slowly
CAPACITY_TAU_S = 0.5
PRICED_TAU_S, PRICE_TAU_S = 0.5, 0.7
DEARER_A_TICK = 1.5  # how much a coefficient may rise in a tenth of a second
TICK_S = 0.1
TREND_TAU_S = 1.0
BUSY_ENOUGH = 0.5  # below this share of time worked, what it would bring at full time is a guess
SLOWEST_RATIO = 0.05  # of the workers' time: capacity is never taken for less
WAIT_AT_LEAST_NS, WAIT_AT_MOST_NS = 20_000_000, 1_000_000_000
SUFFERS_BELOW = 0.95
URGENT_FIRST = frozenset({"qos", "qos_buckets", "qos_feedback", "edf", "bts", "bts1", "ats", "ats1"})  # policies


class Level(NamedTuple):
    """What waits on these arcs is worked off before anything less urgent."""

    wait_ns: int  # how long it may
    arcs: Flags


class Terms(NamedTuple):
    """What the verdict goes by, of one network."""

    streams: Flags  # whose load counts: those that shed, or all where none does
    arcs: Flags  # whose backlog counts
    others: npt.NDArray[np.intp]  # arcs from the other streams
    wait_ns: int  # how long tuples may wait without harm to anybody
    levels: tuple[Level, ...]  # from the tightest on, each with those before it
    best: Floats  # by output: the highest utility of its latency graph

    @classmethod
    def of(cls, network: Network, shed_arcs: list[bool]) -> Terms:
        sheds = np.array([s.overload == "shed" for s in network.streams], np.bool_)
        arcs = np.array(shed_arcs, np.bool_)
        others = [a for s in network.streams if s.overload != "shed" for a in s.arcs] if sheds.any() else []
        if not sheds.any():
            sheds, arcs = np.ones_like(sheds), np.ones_like(arcs)
        waits = [_may_wait_ns(o.qos.deadline_ns) for o in network.outputs]
        wait_ns = min(waits, default=WAIT_AT_MOST_NS)
        graphs = [o.qos.latency for o in network.outputs]
        best = np.array([1.0 if g is None else g.points[0][1] for g in graphs], np.float64)
        levels = _levels(network, waits, arcs) or (Level(wait_ns, arcs),)
        return cls(sheds, arcs, np.array(others, np.intp), wait_ns, levels, best)


def _may_wait_ns(deadline_ns: int | None) -> int:
    at_most_ns = WAIT_AT_MOST_NS if deadline_ns is None else deadline_ns // 2
    return min(max(at_most_ns, WAIT_AT_LEAST_NS), WAIT_AT_MOST_NS)


def _levels(network: Network, waits: list[int], counted: Flags) -> tuple[Level, ...]:
    """One for each deadline, where the policy goes by them; else none."""
    policy = getattr(getattr(network.config, "scheduler", None), "policy", "")
    if policy not in URGENT_FIRST:
        return ()
    behind = [network.box_outputs[a.box] if a.box is not None else (a.output or 0,) for a in network.arcs]
    by_arc = np.array([min((waits[o] for o in outputs), default=WAIT_AT_MOST_NS) for outputs in behind])
    return tuple(Level(wait_ns, counted & (by_arc <= wait_ns)) for wait_ns in sorted(set(by_arc[counted].tolist())))


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
    melt_ns: float = 0.0  # the part of it that is for the backlog, and goes with it
    headroom_ratio: float = FIRST_GUESS  # learned: capacity over the workers' time
    others_ns: float = 0.0  # work a second done for streams that can wait
    suffering: tuple[int, ...] = ()  # outputs below what their graphs could give
    trim: float = 0.0  # of capacity that may be planned for, beside the headroom
    rates: tuple[float, ...] = ()  # by stream, as they are judged: up fast, down slowly
    tuple_ns: tuple[float, ...] = ()  # by stream: its coefficient, as it is judged
    priced_ns: float = 0.0  # what was done, a second, by the coefficients
    worked_ns: float = 0.0  # and by the clock
    priced_ticks: int = 0  # in which anything was done


def judge(before: Verdict, sample: Sample, terms: Terms, workers: int) -> Verdict:
    """The next verdict."""
    elapsed_s = sample.elapsed_ns / 1e9
    rates = _rates(before, sample, elapsed_s)
    headroom = _headroom(before, sample, workers, elapsed_s)
    priced_ns, worked_ns = _priced(before, sample, elapsed_s)
    tuple_ns, scale = _prices(before, sample, priced_ns, worked_ns, elapsed_s)
    load_ns = float(np.dot(tuple_ns[terms.streams], rates[terms.streams]))
    done_ns = scale * float(np.dot(sample.coefficients.arcs[terms.others], sample.taken_rates[terms.others]))
    others_ns = before.others_ns + _gain(elapsed_s, CAPACITY_TAU_S) * (done_ns - before.others_ns)
    all_ns = headroom * workers * 1e9
    capacity_ns = max(all_ns - others_ns, SLOWEST_RATIO * all_ns)
    backlog = scale * sample.backlog_ns
    backlog_ns = float(backlog[terms.arcs].sum())
    melt_ns = _melt_ns(backlog, backlog_ns, terms, capacity_ns)
    trim = _trim(before, backlog_ns, capacity_ns * terms.levels[-1].wait_ns / 1e9, elapsed_s)
    ratio = load_ns / capacity_ns
    trend = 0.0
    if before.at_ns:
        trend = before.trend_per_s + _gain(elapsed_s, TREND_TAU_S) * (
            (ratio - before.load_ratio) / elapsed_s - before.trend_per_s
        )
    return Verdict(
        at_ns=sample.at_ns,
        state=_state(before, ratio, _begins(backlog, terms, load_ns, capacity_ns)),
        load_ns=load_ns,
        capacity_ns=capacity_ns,
        load_ratio=ratio,
        trend_per_s=trend,
        backlog_ns=backlog_ns,
        wait_ns=backlog_ns / capacity_ns * 1e9,
        excess_ns=load_ns - (HEADROOM + trim) * capacity_ns + melt_ns,
        melt_ns=melt_ns,
        trim=trim,
        headroom_ratio=headroom,
        others_ns=others_ns,
        suffering=_suffering(sample, terms),
        rates=tuple(rates.tolist()),
        tuple_ns=tuple(tuple_ns.tolist()),
        priced_ns=priced_ns,
        worked_ns=worked_ns,
        priced_ticks=before.priced_ticks + (sample.work_ns > 0),
    )


def _state(before: Verdict, ratio: float, begins: bool) -> State:
    """It begins with a backlog that is there and growing, and lasts for as long as more is asked than can be done."""
    if begins or (before.state == "overloaded" and ratio > HEADROOM):
        return "overloaded"
    return "close" if ratio > CLOSE_RATIO else "fine"


def _begins(backlog: Floats, terms: Terms, load_ns: float, capacity_ns: float) -> bool:
    grows_ns = AHEAD_S * max(0.0, load_ns - capacity_ns)
    for level in terms.levels:
        waits_ns, may_ns = float(backlog[level.arcs].sum()), capacity_ns * level.wait_ns / 1e9
        if waits_ns > BEGUN_RATIO * may_ns and waits_ns + grows_ns > may_ns:
            return True
    return False


def _melt_ns(backlog: Floats, backlog_ns: float, terms: Terms, capacity_ns: float) -> float:
    """Work a second beside what arrives, until no more waits than may."""
    per_ns = capacity_ns / 1e9
    soon = [(float(backlog[level.arcs].sum()) - per_ns * level.wait_ns) / MELT_S for level in terms.levels]
    return max(0.0, (backlog_ns - per_ns * terms.wait_ns / 2) / LEISURE_S, *soon)


def _trim(before: Verdict, backlog_ns: float, may_wait_ns: float, elapsed_s: float) -> float:
    if before.state != "overloaded":
        return 0.0
    full = backlog_ns / max(STANDING * may_wait_ns, 1.0)
    per_s = TRIM_UP_PER_S * (1.0 - full) if full < 1.0 else -TRIM_DOWN_PER_S * min(full - 1.0, 1.0)
    return min(max(before.trim + per_s * elapsed_s, 0.0), TRIM_AT_MOST)


def _priced(before: Verdict, sample: Sample, elapsed_s: float) -> tuple[float, float]:
    """Over the last ticks: what was done, by the coefficients and by the clock."""
    gain = _gain(elapsed_s, PRICED_TAU_S)
    return (
        before.priced_ns + gain * (sample.priced_ns - before.priced_ns),
        before.worked_ns + gain * (sample.work_ns - before.worked_ns),
    )


def _prices(
    before: Verdict, sample: Sample, priced_ns: float, worked_ns: float, elapsed_s: float
) -> tuple[Floats, float]:
    """By stream: the work of a tuple; and all of it over what the coefficients say."""
    measured = sample.coefficients.streams
    prices = measured / max(1.0, priced_ns / worked_ns if worked_ns > 0 else 1.0)
    if before.priced_ticks and len(before.tuple_ns) == len(prices):
        known = np.array(before.tuple_ns)
        most = known * DEARER_A_TICK ** min(elapsed_s / TICK_S, 3.0)
        dearer = np.where(known > 0, np.minimum(prices, most), prices)
        # At first the mean of all that was seen, so that no first guess lasts.
        prices = known + max(_gain(elapsed_s, PRICE_TAU_S), 1.0 / before.priced_ticks) * (dearer - known)
    total = float(measured.sum())
    return prices, float(prices.sum()) / total if total > 0 else 1.0


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
