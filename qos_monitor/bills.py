"""Bills: what each query costs. A query is an output with everything before it.

Rules
- The time of a box is split among its arcs by the tuples that were consumed behind each of them in the last seconds,
  and so on down to the outputs. A box that only one query needs is paid by that query alone. A box that passes nothing
  on is split evenly.
- The time of a worker between boxes (routing, queues, compiling) is split among the boxes by their calls.
- The time of a delivery is paid by its output.
- Bytes in queues and in state are split like the time. Drops are not: each query behind a drop has suffered it.
- A box that leads to no output is paid by nobody (``no_output``), and the bill of a removed query is kept (``gone``).

So the bills add up to the time that threads were busy with plans and deliveries. What is missing is the residual: work
whose counters were read between two of its counts, and nothing else.

The costs flow down the network as tuples do, so a fold is a few numpy calls whatever the number of queries, and no
matrix of boxes and outputs is made.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from threading import Lock
from typing import Any

import numpy as np

from catalog.catalog import Epoch
from catalog.network import Network
from catalog.readings import BillingReading, BillReading, Readings
from catalog.stats import Floats
from qos_monitor.means import mean_gain
from qos_monitor.report import drops_before_outputs
from qos_monitor.sampler import by_port

FOLD_EVERY_NS = 500_000_000
CONSUMED_TAU_S = 10.0
RATE_TAU_S = 3.0
EVEN = 1e-6  # tuples: the weight of an arc without any, so that a box that passes nothing on is split evenly


@dataclass(slots=True)
class _Counters:
    """The counters of one reading that bills are made of."""

    at_ns: int
    calls: Floats  # by box, as the next two
    tuples: Floats
    cost_ns: Floats
    delivery_ns: Floats  # by output, as the next one
    results: Floats
    consumed: Floats  # by arc
    workers_ns: Sequence[int]
    caller_ns: int


def _count(epoch: Epoch, readings: Readings) -> _Counters:
    boxes, outputs = readings.boxes, readings.outputs
    shed = _column(sum(a.shed.values()) if a.shed else 0 for a in readings.arcs)
    offered = epoch.load.offered(_column(s.admitted for s in readings.streams), _column(by_port(epoch, readings)))
    return _Counters(
        readings.engine.now_ns,
        _column(b.calls for b in boxes),
        _column(b.tuples_in for b in boxes),
        _column(b.cost_ns for b in boxes),
        _column(o.cost_ns for o in outputs),
        _column(o.emitted for o in outputs),
        np.maximum(offered - shed, 0.0),
        [w.busy_ns for w in readings.workers],
        readings.scheduler.caller_ns,
    )


class _Accounts:
    """Sums since the start, by query."""

    def __init__(self, queries: int) -> None:
        self.boxes_ns, self.delivery_ns, self.overhead_ns, self.tuples, self.results = np.zeros((5, queries))

    @property
    def columns(self) -> tuple[Floats, ...]:
        return self.boxes_ns, self.delivery_ns, self.overhead_ns, self.tuples, self.results


class Ledger:
    """The accounts of one network. Any thread: a lock covers the fold."""

    def __init__(self, epoch: Epoch) -> None:
        network, outputs = epoch.network, len(epoch.network.outputs)
        self._epoch = epoch
        self._lock = Lock()
        self._names = [output.name for output in network.outputs]
        self._leads = np.array([_leads_to_output(network, arc.number) for arc in network.arcs], np.float64)
        self._by_worker = _delivered_by_workers(network)
        self._consumed = np.zeros(len(network.arcs))  # over the last seconds
        self._shares = epoch.load.shares_of_arcs(self._leads)
        self._before: _Counters | None = None
        self._accounts = _Accounts(outputs)
        self._gone_ns = self._no_output_ns = self._busy_ns = 0.0
        self._owed_ns = 0.0  # overhead that no call has paid yet; below 0 while a plan runs whose boxes have ended
        self._busy_ratio, self._tuples_per_s = np.zeros(outputs), np.zeros(outputs)

    # -- counting -----------------------------------------------------------------------------------------------------

    def fold(self, readings: Readings, *, now: bool = False) -> None:
        """Add what has happened since the last fold; ``now``: also if that was a moment ago."""
        with self._lock:
            self._fold(readings, now)

    def _fold(self, readings: Readings, now: bool) -> None:
        if not self._is_of_network(readings):
            return
        before = self._before
        if before is not None and readings.engine.now_ns - before.at_ns < (1 if now else FOLD_EVERY_NS):
            return
        after = self._before = _count(self._epoch, readings)
        if before is not None:
            self._add(before, after)

    def _is_of_network(self, readings: Readings) -> bool:
        network = self._epoch.network
        pairs = ((readings.boxes, network.boxes), (readings.arcs, network.arcs), (readings.outputs, network.outputs))
        return all(len(mine) == len(theirs) for mine, theirs in pairs)

    def _add(self, before: _Counters, after: _Counters) -> None:
        elapsed_ns = after.at_ns - before.at_ns
        keep = 1.0 - mean_gain(elapsed_ns, CONSUMED_TAU_S)
        self._consumed = keep * self._consumed + _grown(before.consumed, after.consumed)
        self._shares = self._epoch.load.shares_of_arcs((self._consumed + EVEN) * self._leads)
        calls, tuples, cost_ns = (
            _grown(getattr(before, name), getattr(after, name)) for name in ("calls", "tuples", "cost_ns")
        )
        delivery_ns = _grown(before.delivery_ns, after.delivery_ns)
        overhead_ns = self._overhead(before, after, calls, float(cost_ns.sum()), delivery_ns)
        billed = [self._epoch.load.passed_on(each, self._shares) for each in (cost_ns, overhead_ns, tuples)]
        accounts = self._accounts
        accounts.boxes_ns += billed[0]
        accounts.overhead_ns += billed[1]
        accounts.tuples += billed[2]
        accounts.delivery_ns += delivery_ns
        accounts.results += _grown(before.results, after.results)
        self._no_output_ns += float(cost_ns.sum() + overhead_ns.sum() - billed[0].sum() - billed[1].sum())
        gain = mean_gain(elapsed_ns, RATE_TAU_S)
        busy = (billed[0] + billed[1] + delivery_ns) / elapsed_ns
        self._busy_ratio += gain * (busy - self._busy_ratio)
        self._tuples_per_s += gain * (billed[2] * (1e9 / elapsed_ns) - self._tuples_per_s)

    def _overhead(
        self, before: _Counters, after: _Counters, calls: Floats, cost_ns: float, delivery_ns: Floats
    ) -> Floats:
        """Return, by box, its part of the time that workers spent outside boxes and deliveries."""
        plans_ns = float(max(0, after.caller_ns - before.caller_ns))
        for number, busy_ns in enumerate(after.workers_ns):
            was_ns = before.workers_ns[number] if number < len(before.workers_ns) else 0
            plans_ns += max(0, busy_ns - was_ns)
        self._busy_ns += plans_ns + float(delivery_ns[~self._by_worker].sum())
        self._owed_ns += plans_ns - cost_ns - float(delivery_ns[self._by_worker].sum())
        made = float(calls.sum())
        if made == 0 or self._owed_ns <= 0:
            return np.zeros(len(calls))
        part = calls * (self._owed_ns / made)
        self._owed_ns = 0.0
        return part

    # -- a change of the network --------------------------------------------------------------------------------------

    def follow(self, last: Readings, epoch: Epoch, boxes: Mapping[int, int], outputs: Mapping[int, int]) -> Ledger:
        """Return the ledger of the next network, which goes on with these accounts.

        ``last`` is the last reading of this network, and the mappings lead from the numbers of parts in the next
        network, which go on with their counters, to the numbers here.
        """
        with self._lock:
            self._fold(last, now=True)
            following = Ledger(epoch)
            following._take_over(self, boxes, outputs)
            return following

    def _take_over(self, other: Ledger, boxes: Mapping[int, int], outputs: Mapping[int, int]) -> None:
        self._busy_ns, self._no_output_ns, self._owed_ns = other._busy_ns, other._no_output_ns, other._owed_ns
        here = {name: number for number, name in enumerate(self._names)}
        self._gone_ns = other._gone_ns
        for there, name in enumerate(other._names):
            if name in here:
                for mine, theirs in zip(self._accounts.columns, other._accounts.columns, strict=True):
                    mine[here[name]] = theirs[there]
                self._busy_ratio[here[name]] = other._busy_ratio[there]
                self._tuples_per_s[here[name]] = other._tuples_per_s[there]
            else:
                self._gone_ns += float(sum(column[there] for column in other._accounts.columns[:3]))
        if other._before is not None:
            self._before = _carried(self._epoch, other._before, boxes, outputs)

    # -- reading ------------------------------------------------------------------------------------------------------

    def reading(self, readings: Readings) -> BillingReading:
        """Return the bills at this reading. Any thread."""
        with self._lock:
            self._fold(readings, now=True)
            if not self._is_of_network(readings):
                return BillingReading()
            network, accounts = self._epoch.network, self._accounts
            waiting = np.zeros(len(network.boxes))
            for arc, reading in zip(network.arcs, readings.arcs, strict=True):
                if reading.bytes and arc.box is not None:
                    waiting[arc.box] += reading.bytes
            state = np.array([b.state_bytes for b in readings.boxes], np.float64)
            columns = [
                *(_whole(c) for c in accounts.columns),
                *(_whole(self._epoch.load.passed_on(each, self._shares)) for each in (waiting, state)),
                drops_before_outputs(readings, network),
                self._busy_ratio.tolist(),
                self._tuples_per_s.tolist(),
            ]
            bills = [BillReading(*row) for row in zip(self._names, *columns, strict=True)]
            billed_ns = float(sum(c.sum() for c in accounts.columns[:3]))
            residual_ns = self._busy_ns - billed_ns - self._gone_ns - self._no_output_ns
            return BillingReading(
                round(self._busy_ns), round(self._gone_ns), round(self._no_output_ns), round(residual_ns), bills
            )


def _carried(epoch: Epoch, last: _Counters, boxes: Mapping[int, int], outputs: Mapping[int, int]) -> _Counters:
    """Return the counters with which the parts of the next network begin: 0 for those that are new."""
    network = epoch.network
    calls, tuples, cost_ns = np.zeros((3, len(network.boxes)))
    for now, was in boxes.items():
        calls[now], tuples[now], cost_ns[now] = last.calls[was], last.tuples[was], last.cost_ns[was]
    delivery_ns, results = np.zeros((2, len(network.outputs)))
    for now, was in outputs.items():
        delivery_ns[now], results[now] = last.delivery_ns[was], last.results[was]
    consumed = np.full(len(network.arcs), np.inf)  # counts from the next reading on
    return _Counters(
        last.at_ns, calls, tuples, cost_ns, delivery_ns, results, consumed, last.workers_ns, last.caller_ns
    )


def _leads_to_output(network: Network, arc: int) -> bool:
    box = network.arcs[arc].box
    return box is None or bool(network.box_outputs[box])


def _delivered_by_workers(network: Network) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Return, by output, whether workers deliver its tuples; the thread that admits a tuple delivers the others."""
    return np.array([network.arcs[o.arc].source.box is not None for o in network.outputs], np.bool_)


def _column(values: Iterable[Any]) -> Floats:
    return np.fromiter(values, np.float64)


def _grown(before: Floats, after: Floats) -> Floats:
    return np.maximum(after - before, 0.0)


def _whole(column: Floats) -> list[int]:
    rounded: list[int] = np.rint(column).astype(np.int64).tolist()
    return rounded
