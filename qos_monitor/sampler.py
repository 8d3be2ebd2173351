"""One tick of the monitor: fold the difference of two readings into statistics and rates.

``Sampler.fold`` depends only on the readings; time is the engine's clock inside them. It is arithmetic on columns: a
network of 1,000 boxes takes two milliseconds a tick, and reading it three. A sampler belongs to one epoch of the
catalog. A new network gets a new sampler, and the catalog carries the statistics over.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from catalog.catalog import Epoch
from catalog.load import Coefficients, load_ratio
from catalog.loss import ValueCells
from catalog.readings import Readings
from catalog.stats import Floats
from qos_monitor.means import BoxMeans, BoxMeter, BusyShares, mean_gain
from qos_monitor.pairs import PairMeter

RATE_TAU_S = 1.0
SHARE_TAU_S = 3.0  # time constant of the delivered share
LATELY_TAU_S = 0.2  # of the share that the drops of plans keep now


class Sample(NamedTuple):
    """The result of one tick. Arrays are by number; slowdown is relative to ``output_ideal_ns``."""

    at_ns: int
    elapsed_ns: int
    load_ratio: float
    coefficients: Coefficients
    stream_rates: Floats  # valid tuples offered per second
    box_rates: Floats  # tuples into the box per second
    box_busy: Floats  # work reported in this tick, as a share of its time; above 1 when a long call has ended
    output_rates: Floats
    output_utilities: Floats  # mean utility by latency of this tick's deliveries; the last value when there were none
    output_shares: Floats  # tuples delivered over tuples without drops
    output_loss_utilities: Floats  # by the loss graphs, applied to the worth where the output states one
    output_values: Floats  # worth delivered over worth without drops; 1 where the output states none
    output_ideal_ns: Floats
    offered_rates: Floats  # valid tuples per second, of this tick alone
    taken_rates: Floats  # by arc: tuples per second taken from the queue in this tick
    backlog_ns: Floats  # by arc: ns of work that wait there
    work_ns: float  # ns of work done per second in this tick: boxes and deliveries
    busy_ratio: float  # busy share of the workers' time in this tick; above 1 when other threads ran plans too
    priced_ns: float = 0.0  # the same work per second, priced by the coefficients
    box_means: BoxMeans | None = None  # for people: steady over some seconds
    worker_busy: Sequence[float] = ()  # likewise, by worker
    box_ns: Floats = np.zeros(0)  # the cost of a tuple, by box
    port_selectivity: Floats = np.zeros(0)  # by flat port
    workers: int = 0  # at work; 0: as many as there are
    ahead_ns: Floats = np.zeros(0)  # by arc: the work of a tuple that waits there, with the drops behind it


class Sampler:
    """Holds the last reading and the smoothed rates. Owner: the monitor thread."""

    def __init__(self, epoch: Epoch) -> None:
        network = epoch.network
        self.epoch = epoch
        self._before: Readings | None = None
        self._is_first = True
        self._box_rates = np.zeros(len(network.boxes))
        self._output_rates = np.zeros(len(network.outputs))
        self._utilities = np.ones(len(network.outputs))
        self._arcs = _Kept(len(network.arcs))
        self._by_plans = _Kept(len(network.arcs), LATELY_TAU_S)  # without the tuples that expired
        self._edge = _Kept(len(network.streams))  # of the rows, that were decoded
        self._subscribers = _Kept(len(network.outputs))
        self.values: Mapping[int, ValueCells] = {}  # by arc with drops by value: the worth of its tuples
        self._offered = np.zeros(len(network.streams))
        self._admitted = np.zeros(len(network.streams))  # in this tick
        self._taken = np.zeros(len(network.arcs))
        self._waiting = np.zeros(len(network.arcs))
        self._delivery_ns = 0.0  # in this tick
        self._busy = np.zeros(len(network.boxes))  # share of one worker's time, in this tick
        self._came, self._emitted = np.zeros(len(network.boxes)), np.zeros(len(network.outputs))  # in this tick
        self._meter = BoxMeter(len(network.boxes))
        self._pairs = PairMeter(network)
        self._box_means: BoxMeans | None = None
        self._workers: BusyShares | None = None  # their number is known with the first reading
        self._worker_busy: Sequence[float] = ()
        self._worked_ns = 0  # busy time of the workers until the last reading
        boxes, ports = len(network.boxes), len(epoch.stats.port_box)
        self._inputs = [
            (node.number, port, arc)
            for node in network.boxes
            for port, arc in enumerate(node.in_arcs if len(node.in_arcs) > 1 else ())
        ]
        self._begun = (
            np.zeros(boxes),
            np.zeros(boxes),
            np.zeros(ports),
        )  # calls, tuples in and out of calls whose cost is not known yet
        self._says_worth = np.array([o.qos.value is not None or bool(o.qos.prefer) for o in network.outputs], np.bool_)

    def fold(self, now: Readings, yield_gil: Callable[[], None] | None = None) -> Sample | None:
        """Fold a reading. Return None for the first one, when no time has passed, and when it is of another network.

        ``yield_gil`` is called between the parts, where the process has other threads.
        """
        network = self.epoch.network
        if (len(now.boxes), len(now.arcs)) != (len(network.boxes), len(network.arcs)):
            return None
        before, self._before = self._before, now
        if before is None or now.engine.now_ns <= before.engine.now_ns:
            self._worked_ns = sum(w.busy_ns for w in now.workers) + now.scheduler.caller_ns
            return None
        elapsed_ns = now.engine.now_ns - before.engine.now_ns
        for fold in (self._fold_streams, self._fold_boxes, self._fold_outputs, self._fold_workers):
            fold(before, now, elapsed_ns)
            if yield_gil is not None:
                yield_gil()
        self._is_first = False
        return self._sample(now, elapsed_ns)

    def _rate_gain(self, elapsed_ns: int) -> float:
        """Return the weight of a new rate. The first rate counts fully: there is nothing to smooth it with."""
        return 1.0 if self._is_first else mean_gain(elapsed_ns, RATE_TAU_S)

    def _fold_streams(self, before: Readings, now: Readings, elapsed_ns: int) -> None:
        admitted = _delta((s.admitted for s in before.streams), (s.admitted for s in now.streams))
        self.epoch.stats.observe_streams(admitted, elapsed_ns)
        self._offered = admitted * (1e9 / elapsed_ns)
        self._admitted = admitted
        undecoded = _delta(*((sum(s.edge.dropped.values()) for s in r.streams) for r in (before, now)))
        self._edge.fold(admitted, undecoded, elapsed_ns)

    def _fold_boxes(self, before: Readings, now: Readings, elapsed_ns: int) -> None:
        calls = _delta((b.calls for b in before.boxes), (b.calls for b in now.boxes))
        came = _delta((b.tuples_in for b in before.boxes), (b.tuples_in for b in now.boxes))
        cost_ns = _delta((b.cost_ns for b in before.boxes), (b.cost_ns for b in now.boxes))
        out = _delta(by_port(self.epoch, before), by_port(self.epoch, now))
        self._observe(calls, came, out, cost_ns, elapsed_ns)
        self._observe_inputs(before, now, elapsed_ns)
        self._came = came
        self._box_rates += self._rate_gain(elapsed_ns) * (came * 1e9 / elapsed_ns - self._box_rates)

        waiting, nbytes = _column(a.tuples for a in now.arcs), _column(a.bytes for a in now.arcs)
        arc_box = self.epoch.load.arc_box
        queued = np.flatnonzero(arc_box >= 0)
        at, boxes = arc_box[queued], len(now.boxes)
        self.epoch.stats.observe_tuple_bytes(
            np.bincount(at, waiting[queued], boxes), np.bincount(at, nbytes[queued], boxes)
        )
        self._waiting = waiting
        taken = _delta((a.dequeued for a in before.arcs), (a.dequeued for a in now.arcs))
        self._taken = taken * (1e9 / elapsed_ns)
        offered = self.epoch.load.offered(self._admitted, out)
        shed = _delta((sum(a.shed.values()) for a in before.arcs), (sum(a.shed.values()) for a in now.arcs))
        self._arcs.fold(np.maximum(offered - shed, 0), shed, elapsed_ns)
        expired = _delta(*((a.shed.get("expired", 0) for a in r.arcs) for r in (before, now)))
        passed = np.maximum(offered - (shed - expired), 0)
        self._by_plans.fold(passed, np.maximum(shed - expired, 0), elapsed_ns)
        self._observe_pairs(now, passed, taken, expired, out, elapsed_ns)
        self._busy = cost_ns / elapsed_ns
        self._box_means = self._meter.fold(calls, came, cost_ns, elapsed_ns)

    def _observe_pairs(
        self, now: Readings, passed: Floats, taken: Floats, expired: Floats, out: Floats, elapsed_ns: int
    ) -> None:
        """Fold what met at joins, and what they made of it."""
        stats, boxes = self.epoch.stats, self._pairs.boxes
        if boxes:
            waiting = self._waiting + _column(a.spilled_tuples for a in now.arcs)
            met = self._pairs.fold(passed, waiting, taken, expired, elapsed_ns)
            made = np.bincount(stats.port_box, out, len(now.boxes)).astype(np.float64)[boxes]
            stats.observe_pairs(boxes, met, made, elapsed_ns)
            stats.observe_arcs(passed, elapsed_ns)

    def _observe(self, calls: Floats, came: Floats, out: Floats, cost_ns: Floats, elapsed_ns: int) -> None:
        """Update the statistics of boxes. The cost of a call is known when it ends, perhaps many ticks later: its
        counts are held back until then."""
        stats = self.epoch.stats
        for held, new in zip(self._begun, (calls, came, out), strict=True):
            held += new
        ended = cost_ns > 0
        ended_ports = ended[stats.port_box]
        begun_calls, begun_in, begun_out = self._begun
        stats.observe_boxes(
            np.where(ended, begun_calls, 0.0),
            np.where(ended, begun_in, 0.0),
            np.where(ended_ports, begun_out, 0.0),
            cost_ns,
            elapsed_ns,
        )
        begun_calls[ended], begun_in[ended], begun_out[ended_ports] = 0.0, 0.0, 0.0

    def _fold_outputs(self, before: Readings, now: Readings, elapsed_ns: int) -> None:
        emitted = _delta((o.emitted for o in before.outputs), (o.emitted for o in now.outputs))
        self._output_rates += self._rate_gain(elapsed_ns) * (emitted * 1e9 / elapsed_ns - self._output_rates)
        judged = _delta((o.latency.tuples for o in before.outputs), (o.latency.tuples for o in now.outputs))
        utility = _delta((o.latency.utility_sum for o in before.outputs), (o.latency.utility_sum for o in now.outputs))
        np.divide(utility, judged, out=self._utilities, where=judged > 0)
        # Subscribers come and go with their counters; a sum that falls counts as no drops (_delta).
        dropped = _delta(*((sum(s.dropped for s in o.subscribers) for o in r.outputs) for r in (before, now)))
        offered = _delta(*((sum(s.offered for s in o.subscribers) for o in r.outputs) for r in (before, now)))
        self._subscribers.fold(np.maximum(offered - dropped, 0), dropped, elapsed_ns)
        cost_ns = _delta((o.cost_ns for o in before.outputs), (o.cost_ns for o in now.outputs))
        self.epoch.stats.observe_outputs(emitted, cost_ns, elapsed_ns)
        self._delivery_ns, self._emitted = float(cost_ns.sum()), emitted

    def _fold_workers(self, before: Readings, now: Readings, elapsed_ns: int) -> None:
        if len(before.workers) == len(now.workers):
            self._workers = self._workers or BusyShares(len(now.workers))
            busy_ns = _delta((w.busy_ns for w in before.workers), (w.busy_ns for w in now.workers))
            self._worker_busy = self._workers.fold(busy_ns, elapsed_ns).tolist()

    def _sample(self, now: Readings, elapsed_ns: int) -> Sample:
        stats, load = self.epoch.stats, self.epoch.load
        kept, read, decoded = self._arcs.share(), self._subscribers.share(), self._edge.share()
        stats.kept_share[:] = self._kept_by_box(kept)
        stats.unshed_factor[:] = load.unshed_factor(stats.rate_per_s, stats.port_selectivity, stats.pair_rate)
        # The load is what the streams demand, as if nothing were shed.
        box_ns, selectivity = stats.unshed_cost_ns(), stats.unshed_selectivity()
        coefficients = load.coefficients(box_ns, selectivity, stats.output_cost_ns)
        # What waits passes the drops behind it, and meets the partners that those before the joins have left.
        ahead = load.coefficients(box_ns, stats.present_selectivity(), stats.output_cost_ns, self._by_plans.share())
        present_ns = stats.effective_cost_ns()  # the work done was done at the present train lengths
        priced_ns = float(np.dot(present_ns, self._came) + np.dot(stats.output_cost_ns, self._emitted))
        worth = kept.copy()
        for arc, values in self.values.items():
            worth[arc] = values.carried(float(kept[arc]))
        for stream, share in zip(self.epoch.network.streams, decoded.tolist(), strict=True):
            kept[list(stream.arcs)] *= share  # the edge drops by no value
            worth[list(stream.arcs)] *= share
        shares = self._delivered(kept, decoded) * read
        carried = self._delivered(worth, decoded) * read if self.values else shares
        return Sample(
            at_ns=now.engine.now_ns,
            elapsed_ns=elapsed_ns,
            load_ratio=load_ratio(coefficients, stats.rate_per_s, now.engine.workers),
            coefficients=coefficients,
            stream_rates=stats.rate_per_s.copy(),
            box_rates=self._box_rates.copy(),
            box_busy=self._busy,
            output_rates=self._output_rates.copy(),
            output_utilities=self._utilities.copy(),
            output_shares=shares,
            output_loss_utilities=self._loss_utilities(np.where(self._says_worth, carried, shares)),
            output_values=np.where(self._says_worth, carried, 1.0),
            output_ideal_ns=load.ideal_ns(stats.cost_per_call_ns, stats.cost_per_tuple_ns),
            offered_rates=self._offered,
            taken_rates=self._taken,
            backlog_ns=self._waiting * ahead.arcs,
            work_ns=float(self._busy.sum()) * 1e9 + self._delivery_ns * (1e9 / elapsed_ns),
            busy_ratio=self._busy_ratio(now, elapsed_ns),
            priced_ns=priced_ns * (1e9 / elapsed_ns),
            box_means=self._box_means,
            worker_busy=self._worker_busy,
            box_ns=box_ns,
            port_selectivity=selectivity,
            workers=now.engine.workers,
            ahead_ns=ahead.arcs,
        )

    def _kept_by_box(self, kept_on_arc: Floats) -> Floats:
        """Return, by box, the tuples that the drops before it leave over all of them."""
        stats, load = self.epoch.stats, self.epoch.load
        whole = load.flow(stats.rate_per_s, stats.port_selectivity).boxes
        left = load.flow(stats.rate_per_s, stats.port_selectivity, kept_on_arc).boxes
        return np.divide(left, whole, out=np.ones(len(whole)), where=whole > 0)

    def _delivered(self, kept_on_arc: Floats, decoded: Floats) -> Floats:
        stats = self.epoch.stats
        offered = stats.rate_per_s / np.maximum(decoded, 1e-3)
        return self.epoch.load.share_delivered(offered, stats.port_selectivity, kept_on_arc)

    def _loss_utilities(self, shares: Floats) -> Floats:
        """Apply the graphs that the load shedder uses; 1 where nothing may be dropped."""
        graphs = [o.qos.shed_by for o in self.epoch.network.outputs]
        return np.array([1.0 if g is None else g.utility(s) for g, s in zip(graphs, shares.tolist(), strict=True)])

    def _busy_ratio(self, now: Readings, elapsed_ns: int) -> float:
        busy_ns = sum(w.busy_ns for w in now.workers) + now.scheduler.caller_ns
        worked_ns, self._worked_ns = busy_ns - self._worked_ns, busy_ns
        return max(0.0, worked_ns / (elapsed_ns * max(1, now.engine.workers or len(now.workers))))

    def _observe_inputs(self, before: Readings, now: Readings, elapsed_ns: int) -> None:
        """Fold the selectivity of each input of joins."""
        joins = [
            (a, b, p) for b, p, a in self._inputs if p < min(len(now.boxes[b].by_input), len(before.boxes[b].by_input))
        ]
        if joins:
            came, made = (
                _delta(
                    (before.boxes[b].by_input[p][i] for _, b, p in joins),
                    (now.boxes[b].by_input[p][i] for _, b, p in joins),
                )
                for i in (0, 1)
            )
            self.epoch.stats.observe_inputs([a for a, _, _ in joins], came, made, elapsed_ns)


class _Kept:
    """The share kept over some seconds: exponentially weighted sums of tuples passed and dropped."""

    def __init__(self, count: int, tau_s: float = SHARE_TAU_S) -> None:
        self._tau_s = tau_s
        self._passed, self._dropped = np.zeros(count), np.zeros(count)

    def fold(self, passed: Floats, dropped: Floats, elapsed_ns: int) -> None:
        keep = 1.0 - mean_gain(elapsed_ns, self._tau_s)
        self._passed = keep * self._passed + passed
        self._dropped = keep * self._dropped + dropped

    def share(self) -> Floats:
        total = self._passed + self._dropped
        return np.divide(self._passed, total, out=np.ones(len(total)), where=self._dropped > 1e-6)


def by_port(epoch: Epoch, readings: Readings) -> Iterator[float]:
    """Yield tuples out by port, in the layout of the statistics; spread evenly where only the sum is known."""
    ports = np.diff(epoch.stats.port_start).tolist()
    for box, count in zip(readings.boxes, ports, strict=True):
        if len(box.tuples_out_by_port) == count:
            yield from box.tuples_out_by_port
        else:
            yield from [box.tuples_out / count] * count


def enrich(readings: Readings, sample: Sample | None, epoch: Epoch) -> Readings:
    """Return the reading with the monitor's own results: rates, load, the share delivered and its utility."""
    if sample is None or len(readings.outputs) != len(sample.output_rates):
        return readings
    outputs = []
    for number, output in enumerate(readings.outputs):
        outputs.append(
            output._replace(
                rate_per_s=float(sample.output_rates[number]),
                share_delivered=float(sample.output_shares[number]),
                loss_utility=float(sample.output_loss_utilities[number]),
                value_utility=float(sample.output_values[number]),
            )
        )
    rates = sample.stream_rates.tolist()
    streams = [s._replace(rate_per_s=rate) for s, rate in zip(readings.streams, rates, strict=True)]
    overload = readings.overload  # uses the measured capacity; without it, load is relative to the number of workers
    ratio = overload.load_ratio if overload.capacity_ns else sample.load_ratio
    ratio = max([ratio, *(r.load_ratio for r in readings.resources if r.name != "encode")])  # of the fullest
    engine = readings.engine._replace(load_ratio=ratio, shed_level=overload.shed_level)
    return readings._replace(streams=streams, outputs=outputs, engine=engine)


def _column(values: Iterable[Any]) -> Floats:
    return np.fromiter(values, np.float64)


def _delta(before: Iterable[Any], now: Iterable[Any]) -> Floats:
    """Return the differences, never below 0: a counter that fell (a subscriber left) has started again."""
    return np.maximum(_column(now) - _column(before), 0.0)
