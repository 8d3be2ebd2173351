"""The load of each unit: a unit runs on one worker at a time, so it may be full while other workers are idle.

A unit is what the scheduler never runs twice at once: a superbox, or a box. For each the monitor says how much work the
streams demand of it, how busy it was, and how much more waits before it than its outputs can bear.

A unit is *stalled* when tuples wait before it while workers are idle: the scheduler would run it at once, so it runs or
is being handed from one plan to the next. Its limit is then the work that it gets done, which may be far less than one
worker's, because the time between two plans is part of it. A unit is *bound* when it is stalled or has used nearly all
of one worker, and the streams demand more of it than its limit, or so little less that what is late before it would
stay late for longer than ``MELTS_S``. No drop elsewhere helps a unit that is stalled or bound, and its backlog is not
the network's.

With one worker nothing is bound: the network as a whole says the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from catalog.load import LoadModel
from catalog.load_verdict import LoadVerdict
from catalog.network import Network
from catalog.stats import Floats, port_starts
from qos_monitor.sampler import Sample

Index = npt.NDArray[np.intp]
Flags = npt.NDArray[np.bool_]

BOUND = 0.85  # of one worker's time: a unit that used more has no room
BUSY_TAU_S = 0.35
WAITS_RATIO = 0.25  # of the backlog allowed: with less before it no unit is stalled
IDLE_BELOW = 0.92  # of the workers' time: with less some worker was idle
STALLED = 0.6  # of the last ticks
BEYOND_RATIO = 1.05  # demand over the measured limit: with less the unit keeps up
LIMIT_AT_LEAST = 0.3  # of one worker
MELTS_S = 1.0  # a backlog that is late and gone within this time is a hiccup


class Units(NamedTuple):
    """The units of one network. Arrays by number."""

    number: int  # of units
    of_box: Index
    of_arc: Index  # the unit that takes the arc's tuples; -1: none, or the arc's streams do not shed
    inside: Floats  # by flat port: 1 where its tuples stay in the unit, else 0
    wait_ns: Floats  # by unit: how long tuples may wait before it
    model: LoadModel

    @classmethod
    def of(cls, network: Network, units: Sequence[Sequence[int]], counted: Flags, may_wait_ns: Sequence[int]) -> Units:
        """``units`` lists boxes; ``counted`` are the arcs of the streams that shed; ``may_wait_ns`` is by output."""
        of_box = np.zeros(len(network.boxes), np.intp)
        for number, boxes in enumerate(units):
            of_box[list(boxes)] = number
        of_arc = np.array(
            [-1 if a.box is None or not counted[a.number] else of_box[a.box] for a in network.arcs], np.intp
        )
        starts = port_starts(network)
        inside = np.zeros(int(starts[-1]))
        for node in network.boxes:
            for port, arcs in enumerate(node.out_arcs):
                stays = [
                    b is not None and of_box[b] == of_box[node.number] for a in arcs for b in [network.arcs[a].box]
                ]
                inside[int(starts[node.number]) + port] = float(bool(stays) and all(stays))
        wait_ns = np.full(len(units), np.inf)
        for node in network.boxes:
            behind = network.box_outputs[node.number]
            unit = of_box[node.number]
            wait_ns[unit] = min([wait_ns[unit], *(may_wait_ns[o] for o in behind)])
        return cls(len(units), of_box, of_arc, inside, wait_ns, LoadModel(network))


class UnitLoads(NamedTuple):
    needed_ns: Floats  # work per second that the streams demand of each unit
    busy: Floats  # share of one worker's time, smoothed
    late_ns: Floats  # work that waits, beyond what may wait
    stalled: Floats  # share of the last ticks in which tuples waited while workers were idle
    limits_ns: Floats  # work per second that each unit gets done at most
    limit_ns: float  # work per second that one worker can do
    bound: Flags

    def is_free(self, of_arc: Index) -> Flags:
        """Return, by arc, whether its backlog is the network's: its unit has room, or it leads to none."""
        if not len(self.bound):
            return np.ones(len(of_arc), np.bool_)
        own = self.bound | (self.stalled > STALLED)
        free: Flags = ~(own[of_arc] & (of_arc >= 0))
        return free

    @property
    def ratio(self) -> float:
        """The demand of the fullest bound unit, over what one worker can do."""
        return float((self.needed_ns[self.bound] / self.limits_ns[self.bound]).max()) if self.bound.any() else 0.0


def unit_loads(
    before: LoadVerdict, sample: Sample, units: Units, workers: int, rates: Floats, scale: float, headroom: float
) -> UnitLoads:
    """Return the loads of the units. ``scale`` corrects the measured costs; ``headroom`` is the share of a worker's
    time that becomes work."""
    limit_ns = headroom * 1e9
    if workers < 2 or not units.number or len(sample.box_ns) != len(units.of_box):
        none = np.zeros(0)
        return UnitLoads(none, none, none, none, none, limit_ns, np.zeros(0, np.bool_))
    flow = units.model.flow(rates, sample.port_selectivity)
    needed: Floats = scale * np.bincount(units.of_box, flow.boxes * sample.box_ns, units.number).astype(np.float64)
    now = np.bincount(units.of_box, sample.box_busy, units.number).astype(np.float64)
    gain = float(-np.expm1(-sample.elapsed_ns / 1e9 / BUSY_TAU_S))
    busy = _smoothed(before.unit_busy, now, gain)
    # The price of a waiting tuple is here the work in its own unit alone.
    own = units.model.coefficients(sample.box_ns, sample.port_selectivity * units.inside).arcs
    every = sample.ahead_ns if len(sample.ahead_ns) else sample.coefficients.arcs
    share = np.divide(own, every, out=np.zeros(len(every)), where=every > 0)
    queued = units.of_arc >= 0
    waiting = scale * np.bincount(units.of_arc[queued], (sample.backlog_ns * share)[queued], units.number)
    may_wait = np.minimum(units.wait_ns, 1e9) / 1e9
    waits = (waiting > WAITS_RATIO * limit_ns * may_wait) & (sample.busy_ratio < IDLE_BELOW)
    stalled = _smoothed(before.unit_stalled, waits.astype(np.float64), gain)
    is_stalled = stalled > STALLED
    limits = np.where(is_stalled, np.clip(1e9 * busy, LIMIT_AT_LEAST * limit_ns, limit_ns), limit_ns)
    late = np.maximum(waiting - limits * may_wait, 0.0)
    room = np.where(is_stalled, BEYOND_RATIO * limits, limit_ns) - needed  # below 0: more is demanded than can be done
    bound = ((busy > BOUND * headroom) | is_stalled) & ((room < 0) | (late > MELTS_S * room))
    return UnitLoads(needed, busy, late, stalled, limits, limit_ns, bound)


def _smoothed(before: Sequence[float], now: Floats, gain: float) -> Floats:
    known = np.array(before) if len(before) == len(now) else np.zeros(len(now))
    smoothed: Floats = known + gain * (now - known)
    return smoothed
