"""The two systems that P2 analyses: outputs that are shared, and streams that meet in a join."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

import numpy as np

from catalog.network import Network
from engine.lab.figures.lab import Lab
from engine.lab.figures.p2_server import LINE, UNIT_NS, Served, arriving, serve, unit_ns
from engine.simulate.sketch import NetworkSketch
from scheduler.plan import Plan, Step
from scheduler.state import SchedulerState

# -- shared outputs (figure 5) ----------------------------------------------------------------------------------------


class SharedWaits(NamedTuple):
    """Mean waiting times in the queue, in units."""

    apart: float  # second segment, with arrivals of its own
    copied: float  # second segment, on copies
    base: float  # both segments as one service


def shared_output(lab: Lab, rate: float, first: float, second: float, variation: float, tuples: int) -> SharedWaits:
    """Run both forms. Chain uses declared costs, by which the first segment is always the steeper one."""
    means = (first, second)

    def low_wait(streams: int) -> float:
        sketch = NetworkSketch()
        taps = [sketch.stream() for _ in range(streams)]
        sketch.output(sketch.box(taps[0], cost_ns=1.0, name="O1"))
        sketch.output(sketch.box(taps[-1], cost_ns=2.0, name="O2"))
        trains = {s: arriving(lab, rate, tuples, s) for s in range(streams)}
        return serve(lab, sketch.network(), "chain", trains, means, variation).response(1) - second

    sketch = NetworkSketch()
    both = sketch.box(sketch.box(sketch.stream(), cost_ns=1.0), cost_ns=1.0)
    sketch.output(both)
    base = serve(lab, sketch.network(), one_by_one, {0: arriving(lab, rate, tuples, 0)}, means, variation)
    return SharedWaits(low_wait(2), low_wait(1), base.response() - first - second)


def one_by_one(state: SchedulerState, now_ns: int) -> Plan | None:
    """Run a tuple through all boxes, then the next one."""
    if not state.waiting[0]:
        return None
    return Plan(tuple(Step(box, 1) for box in range(len(state.network.boxes))))


# -- a join that keeps the order of time (figures 7 to 9) --------------------------------------------------------------

DIGITS = 4  # of an arrival in units: a unit has more nanoseconds than that


def ordered_join(fan_in: int, n: float) -> Network:
    """Make segments of one unit each that meet in J and O3, together n units. An earlier one is slightly steeper."""
    sketch = NetworkSketch()
    step = 0.001 / fan_in
    taps = [
        sketch.box(sketch.stream(), cost_ns=(1 - step * (fan_in - 1 - i)) * UNIT_NS, name=f"O{i + 1}")
        for i in range(fan_in)
    ]
    sketch.output(sketch.box(*taps, cost_ns=n * UNIT_NS, name="J O3", kind="join"))
    return sketch.network()


class ChainInOrder:
    """The rule of figure 9: Chain at a join that takes tuples in the order of time, for any number of inputs.

    The queues are served by priority. While an older tuple waits in a queue of lower priority, a tuple is kept in a
    buffer before the join (the pipeline is broken). After a tuple of the lowest queue the older tuples of the buffers
    go through the join. With ``at_once`` a buffer is also released when no older tuple waits anywhere; under the
    paper's rule it waits for the next tuple of the lowest queue.
    """

    def __init__(self, network: Network, at_once: bool) -> None:
        self._join = len(network.boxes) - 1
        self._queues = [network.boxes[box].in_arcs[0] for box in range(self._join)]
        self._buffers = network.boxes[self._join].in_arcs
        self._at_once = at_once
        self._released_ns = -1  # tuples older than this may pass the join
        self.fetched = 0  # from the first queue
        self.broken = 0

    def __call__(self, state: SchedulerState, now_ns: int) -> Plan | None:
        heads = [state.arcs[a].entries for a in self._queues]
        waiting = [e[0].first_arrival_ns for e in heads if e]
        oldest_ns = min(waiting, default=None)
        kept = [(state.arcs[a].entries[0].first_arrival_ns, a) for a in self._buffers if state.arcs[a].entries]
        if kept and self._may_pass(min(kept)[0], oldest_ns):
            return Plan((Step(self._join, 1),), {min(kept)[1]: 1})
        for box, entries in enumerate(heads):
            if entries:
                return self._fetch(box, entries[0].first_arrival_ns, any(heads[box + 1 :]))
        return None

    def _may_pass(self, came_ns: int, oldest_ns: int | None) -> bool:
        return came_ns < self._released_ns or (self._at_once and (oldest_ns is None or came_ns < oldest_ns))

    def _fetch(self, box: int, came_ns: int, is_broken: bool) -> Plan:
        if box == 0:
            self.fetched += 1
            self.broken += is_broken
        take = {self._queues[box]: 1}
        if is_broken:
            return Plan((Step(box, 1),), take)
        if box == self._join - 1:
            self._released_ns = came_ns
        return Plan((Step(box, 1), Step(self._join, 1)), take)


class JoinTimes(NamedTuple):
    """Response times at one rate, in units."""

    chain: float  # of all tuples, until they leave the join
    chain_at_once: float
    chain_high: (
        float  # until its segment is done with a tuple, E(W) + E(B); on the real engine until it leaves the join
    )
    chain_low: float
    vpipe: float
    broken: float  # P: share of tuples that find a tuple in the second queue
    second_busy: float  # share of the time in which a tuple of the second stream is in the system


@cache
def _joined(engine: str, short: bool, seed: int, x: float, n: float, variation: float, tuples: int) -> JoinTimes:
    lab = Lab(engine, short, seed)
    network = ordered_join(2, n)
    trains = {stream: arriving(lab, x / n, tuples, stream) for stream in (0, 1)}
    rules = [ChainInOrder(network, at_once) for at_once in (False, True)]
    means = (1.0, 1.0, n)
    chain, at_once = (serve(lab, network, rule, trains, means, variation) for rule in rules)
    vpipe = serve(lab, network, "vpipe", trains, means, variation, LINE)
    second = {round(ns / unit_ns(lab), DIGITS) for ns in trains[1][0].tolist()}
    high, low = by_queue(chain.plans, 2) if chain.plans else by_stream(chain, second)
    return JoinTimes(
        chain=chain.response(),
        chain_at_once=at_once.response(),
        chain_high=high,
        chain_low=low,
        vpipe=vpipe.response(),
        broken=rules[0].broken / rules[0].fetched,
        second_busy=_busy_share(chain.times[0], second),
    )


def joined(lab: Lab, x: float, n: float, variation: float, tuples: int) -> JoinTimes:
    """Run the join: both streams at the rate x/n."""
    return _joined(lab.engine, lab.short, lab.seed, x, n, variation, tuples)


def by_queue(plans: Sequence[tuple[int, float, float]], join: int) -> tuple[float, float]:
    """Compute the mean response by queue. The release after a tuple is part of its service."""
    spans: dict[int, list[list[float]]] = {0: [], 1: []}
    last: list[float] = []
    for box, came, end in plans:
        if box == join:
            last[1] = end
        else:
            last = [came, end]
            spans[box].append(last)
    high, low = (float(np.mean([end - came for came, end in spans[box]])) for box in (0, 1))
    return high, low


def by_stream(run: Served, second: set[float]) -> tuple[float, float]:
    """Compute the mean response by stream, until a tuple leaves the join."""
    of_second = [is_of(came, second) for came, _ in run.times[0]]
    spans = [done - came for came, done in run.times[0]]
    high, low = (
        float(np.mean([s for s, mine in zip(spans, of_second, strict=True) if mine is wanted]))
        for wanted in (False, True)
    )
    return high, low


def is_of(came: float, stream: set[float]) -> bool:
    """Tell whether a tuple is of a stream, by its arrival."""
    return round(came, DIGITS) in stream


def _busy_share(times: Sequence[tuple[float, float]], stream: set[float]) -> float:
    """Compute the share of the time in which at least one tuple of a stream is in the system."""
    busy = end = 0.0
    for came, done in sorted(t for t in times if is_of(t[0], stream)):
        if done > end:
            busy += done - max(came, end)
            end = done
    return busy / max(end, 1e-9)
