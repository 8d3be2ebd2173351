"""The load verdict: the work that the streams demand, the work that the engine can do, and the outputs that suffer.

    load = sum L r          arriving work per second: work of a tuple times tuples offered, by stream, shed or not
    capacity                work per second that the workers really get done when they have enough to do
    excess = load + catch_up - (HEADROOM + trim) * capacity

Capacity is measured, not derived from the number of cores. Two workers under the GIL do less than two workers' work,
the I/O thread takes its part, and the measured cost of a box contains all of that. Work done, divided by the busy share
of the time, is the work that all of the time would bring; under overload that is simply the work done.

Costs are measured by the wall clock, so a call that lost its core to another process looks expensive for a while. Three
rules keep that from looking like an overload. First, the work done is priced by the same coefficients; if the price
exceeds the time that it took, the coefficients are too high by that factor, and are corrected. Second, a coefficient
rises by ``DEARER_A_TICK`` at most. Third, coefficients are averaged over ``PRICE_TAU_S``, while rates are not; a tuple
that really costs more shows in the backlog meanwhile. Refused: the CPU time of the thread, which a box that waits (for
a lock, a disk, another machine) does not use.

The latency graphs say what may wait. A backlog that is worked off before its outputs leave their good zone harms no
output, so a burst that fits into it is no overload (``levels``). During an overload the backlog beyond half of the
tightest deadline's is worked off within ``CATCH_UP_SLOWLY_S``, because even where the order is kept, workers that are
never idle cost the urgent outputs some milliseconds.

The headroom is for what no average shows, and the right amount is not known in advance: during an overload it is
*trimmed*. While less waits than could without harm, workers are idle now and then, so more work can be taken: the more
idle they are, the faster. When more than that waits, it was too much. The engine settles at full use, with a short
queue of tuples that are not urgent. The trim may double the plan, because costs may be that wrong: shedding keeps
queues short, short trains carry the cost of their calls, and the load that was measured so would keep up the shedding
for ever.

A unit of the scheduler runs on one worker at a time (``unit_load``). Work that waits for a unit that is full counts
against that unit alone: no drop elsewhere would melt it.

Streams that block or spill can wait. Only the work done for them counts, as capacity that the others do not have; their
backlog adds to no excess.

``judge`` is a pure function of the last verdict and the sample: the same samples give the same verdicts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from catalog.load_verdict import LevelLoad, LoadState, LoadVerdict
from catalog.network import Network
from catalog.stats import Floats
from qos_monitor.levels import STANDING, WAIT_AT_MOST_NS, UrgencyLevel, find_levels, level_loads, may_wait_ns
from qos_monitor.sampler import Sample
from qos_monitor.unit_load import Units, unit_loads

Flags = npt.NDArray[np.bool_]

HEADROOM = 0.95  # share of capacity that may be planned for; the rest is for what no average shows
TRIM_AT_MOST, TRIM_UP_PER_S, TRIM_DOWN_PER_S = 1.0, 0.1, 1.5
TRIM_IDLE = 1.5  # beside this, for each share of the workers' time that is idle
CLOSE_RATIO = 0.9
CATCH_UP_SLOWLY_S = 8.0  # time to work off a backlog that does not harm yet
RISE_TAU_S, FALL_TAU_S = 0.15, 0.3  # of rates: up fast, down slowly
CAPACITY_TAU_S, BUSY_TAU_S = 0.5, 0.4  # a plan counts when it ends, so a tick may see none and the next one two
PRICED_TAU_S, PRICE_TAU_S = 0.5, 0.7
DEARER_A_TICK = 1.5  # the most a coefficient may rise in a tenth of a second
TICK_S = 0.1
TREND_TAU_S = 1.0
BUSY_ENOUGH = 0.5  # with a smaller busy share, the capacity at full time would be a guess
SLOWEST_RATIO = 0.05  # of the workers' time: capacity is never taken as less
SUFFERS_BELOW = 0.95


class Terms(NamedTuple):
    """The constants of one network that the verdict needs."""

    streams: Flags  # whose load counts: the shedding streams, or all when none sheds
    arcs: Flags  # whose backlog counts
    others: npt.NDArray[np.intp]  # arcs from the other streams
    wait_ns: int  # how long tuples may wait without harm to any output
    levels: tuple[UrgencyLevel, ...]  # from the tightest on; each contains the ones before it
    best: Floats  # by output: the highest utility of its latency graph
    units: Units  # what never runs twice at once

    @classmethod
    def of(
        cls, network: Network, shed_arcs: list[bool], urgent_first: bool, units: Sequence[Sequence[int]] | None = None
    ) -> Terms:
        """Without ``units`` each box is one."""
        sheds = np.array([s.overload == "shed" for s in network.streams], np.bool_)
        arcs = np.array(shed_arcs, np.bool_)
        others = [a for s in network.streams if s.overload != "shed" for a in s.arcs] if sheds.any() else []
        if not sheds.any():
            sheds, arcs = np.ones_like(sheds), np.ones_like(arcs)
        waits = [may_wait_ns(o.qos.deadline_ns) for o in network.outputs]
        wait_ns = min(waits, default=WAIT_AT_MOST_NS)
        graphs = [o.qos.latency for o in network.outputs]
        best = np.array([1.0 if g is None else g.points[0][1] for g in graphs], np.float64)
        levels = find_levels(network, waits, arcs, urgent_first)
        known = units if units is not None else [(node.number,) for node in network.boxes]
        return cls(sheds, arcs, np.array(others, np.intp), wait_ns, levels, best, Units.of(network, known, arcs, waits))


class LoadJudge:
    """The verdict so far, of one network. Owner: the monitor thread. ``urgent_first`` returns whether the policy that
    decides now runs the tuples of tight deadlines first (``scheduler/policies``): it is asked for each sample, because
    ``policy: auto`` changes the policy while the engine runs. ``units`` lists the boxes of each unit that never runs
    twice at once."""

    def __init__(
        self,
        network: Network,
        shed_arcs: list[bool],
        workers: int,
        *,
        urgent_first: Callable[[], bool],
        units: Sequence[Sequence[int]] | None = None,
    ) -> None:
        self._terms = {ordered: Terms.of(network, shed_arcs, ordered, units) for ordered in (False, True)}
        self._urgent_first = urgent_first
        self._workers = max(1, workers)
        self._verdict = LoadVerdict()

    def __call__(self, sample: Sample) -> LoadVerdict:
        """Return the next verdict, from the last one and this sample."""
        terms = self._terms[self._urgent_first()]
        self._verdict = judge(self._verdict, sample, terms, sample.workers or self._workers)
        return self._verdict


def judge(before: LoadVerdict, sample: Sample, terms: Terms, workers: int) -> LoadVerdict:
    """Return the next verdict."""
    elapsed_s = sample.elapsed_ns / 1e9
    rates = _rates(before.rates, sample, elapsed_s, FALL_TAU_S)
    rates_now = _rates(before.rates_now, sample, elapsed_s, RISE_TAU_S)
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
    units = unit_loads(before, sample, terms.units, workers, rates, scale, headroom)
    free = np.where(units.is_free(terms.units.of_arc), backlog, 0.0)
    free_ns = float(free[terms.arcs].sum())
    arriving, coming = (np.where(terms.streams, tuple_ns * r, 0.0) for r in (rates, rates_now))
    levels = level_loads(
        before.levels, sample, terms.levels, terms.units.model, arriving, coming, free, capacity_ns, HEADROOM
    )
    slowly_ns = (free_ns - capacity_ns / 1e9 * terms.wait_ns / 2) / CATCH_UP_SLOWLY_S
    catch_up_ns = max(slowly_ns, levels[-1].catch_up_ns, 0.0)
    busy = before.busy + _gain(elapsed_s, BUSY_TAU_S) * (sample.busy_ratio - before.busy)
    trim = _trim(before, levels, busy, elapsed_s)
    may_ns = (HEADROOM + trim) * capacity_ns
    levels = tuple(level._replace(excess_ns=level.load_ns - may_ns + level.catch_up_ns) for level in levels)
    ratio = max(load_ns / capacity_ns, units.ratio)
    trend = 0.0
    if before.at_ns:
        trend = before.trend_per_s + _gain(elapsed_s, TREND_TAU_S) * (
            (ratio - before.load_ratio) / elapsed_s - before.trend_per_s
        )
    return LoadVerdict(
        at_ns=sample.at_ns,
        state=_state(
            before, ratio, any(level.is_pressed for level in levels) or bool(units.late_ns[units.bound].any())
        ),
        load_ns=load_ns,
        capacity_ns=capacity_ns,
        load_ratio=ratio,
        trend_per_s=trend,
        backlog_ns=backlog_ns,
        wait_ns=backlog_ns / capacity_ns * 1e9,
        excess_ns=load_ns - may_ns + catch_up_ns,
        catch_up_ns=catch_up_ns,
        trim=trim,
        headroom_ratio=headroom,
        busy=busy,
        others_ns=others_ns,
        suffering=_suffering(sample, terms),
        rates=tuple(rates.tolist()),
        rates_now=tuple(rates_now.tolist()),
        tuple_ns=tuple(tuple_ns.tolist()),
        priced_ns=priced_ns,
        worked_ns=worked_ns,
        priced_ticks=before.priced_ticks + (sample.work_ns > 0),
        unit_ns=tuple(units.needed_ns.tolist()),
        unit_busy=tuple(units.busy.tolist()),
        unit_late_ns=tuple(units.late_ns.tolist()),
        unit_bound=tuple(units.bound.tolist()),
        unit_stalled=tuple(units.stalled.tolist()),
        unit_limits_ns=tuple(units.limits_ns.tolist()),
        unit_limit_ns=units.limit_ns,
        levels=levels,
        late=tuple(np.flatnonzero(_is_late(sample, terms)).tolist()),
    )


def _state(before: LoadVerdict, ratio: float, begins: bool) -> LoadState:
    """An overload begins with a backlog that exists and grows, and lasts while more is demanded than can be done."""
    if begins or (before.state == "overloaded" and ratio > HEADROOM):
        return "overloaded"
    return "close" if ratio > CLOSE_RATIO else "fine"


def _trim(before: LoadVerdict, levels: tuple[LevelLoad, ...], busy: float, elapsed_s: float) -> float:
    """Return the next trim: up while the backlog is below its target, down above it, 0 while no level is pressed."""
    pressed = [level.backlog_ns / max(STANDING * level.may_wait_ns, 1.0) for level in levels if level.is_pressed]
    if not pressed or not any(level.is_pressed for level in before.levels):
        return 0.0
    full = max(pressed)
    up_per_s = TRIM_UP_PER_S + TRIM_IDLE * max(0.0, HEADROOM - busy)
    per_s = up_per_s * (1.0 - full) if full < 1.0 else -TRIM_DOWN_PER_S * min(full - 1.0, 1.0)
    return min(max(before.trim + per_s * elapsed_s, 0.0), TRIM_AT_MOST)


def _priced(before: LoadVerdict, sample: Sample, elapsed_s: float) -> tuple[float, float]:
    """Return the work done over the last ticks, by the coefficients and by the clock."""
    gain = _gain(elapsed_s, PRICED_TAU_S)
    return (
        before.priced_ns + gain * (sample.priced_ns - before.priced_ns),
        before.worked_ns + gain * (sample.work_ns - before.worked_ns),
    )


def _prices(
    before: LoadVerdict, sample: Sample, priced_ns: float, worked_ns: float, elapsed_s: float
) -> tuple[Floats, float]:
    """Return, by stream, the work of a tuple; and the ratio of these prices to the measured coefficients."""
    measured = sample.coefficients.streams
    prices = measured / max(1.0, priced_ns / worked_ns if worked_ns > 0 else 1.0)
    if before.priced_ticks and len(before.tuple_ns) == len(prices):
        known = np.array(before.tuple_ns)
        most = known * DEARER_A_TICK ** min(elapsed_s / TICK_S, 3.0)
        dearer = np.where(known > 0, np.minimum(prices, most), prices)
        # At first the mean of all ticks so far, so that no first guess lasts.
        prices = known + max(_gain(elapsed_s, PRICE_TAU_S), 1.0 / before.priced_ticks) * (dearer - known)
    total = float(measured.sum())
    return prices, float(prices.sum()) / total if total > 0 else 1.0


def _rates(before: tuple[float, ...], sample: Sample, elapsed_s: float, fall_tau_s: float) -> Floats:
    now = sample.offered_rates
    if len(before) != len(now):
        return now
    known = np.array(before)
    gain = np.where(now > known, _gain(elapsed_s, RISE_TAU_S), _gain(elapsed_s, fall_tau_s))
    smoothed: Floats = known + gain * (now - known)
    return smoothed


def _headroom(before: LoadVerdict, sample: Sample, workers: int, elapsed_s: float) -> float:
    """Return the work done as a share of the workers' time; unchanged while they are too idle to learn from."""
    busy = sample.busy_ratio  # above 1 when other threads helped, or when a plan of many ticks has ended
    if busy < BUSY_ENOUGH or sample.work_ns <= 0:
        return before.headroom_ratio
    seen = min(max(sample.work_ns / busy / (workers * 1e9), SLOWEST_RATIO), 1.0)
    return before.headroom_ratio + _gain(elapsed_s, CAPACITY_TAU_S) * (seen - before.headroom_ratio)


def _suffering(sample: Sample, terms: Terms) -> tuple[int, ...]:
    lossy = sample.output_loss_utilities < SUFFERS_BELOW
    return tuple(np.flatnonzero(_is_late(sample, terms) | lossy).tolist())


def _is_late(sample: Sample, terms: Terms) -> Flags:
    late: Flags = sample.output_utilities < SUFFERS_BELOW * terms.best
    return late


def _gain(elapsed_s: float, tau_s: float) -> float:
    return float(-np.expm1(-elapsed_s / tau_s))
