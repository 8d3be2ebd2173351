"""The answer of ``/api/v1/stats``, which ``top`` shows: a reading joined with rates, estimates and quantiles.

Names end in their unit. ``queue_tuples`` of an output counts all tuples that wait anywhere before it. ``shed`` counts
the tuples dropped since the start on all arcs behind a stream, or before an output, by reason.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import sqrt
from typing import Any

import numpy as np

from catalog.catalog import Epoch
from catalog.network import Arc, Network
from catalog.readings import ArcReading, OutputReading, Readings, plain
from qos_monitor.means import BoxMeans
from qos_monitor.sampler import Sample

Shed = dict[str, int]
"""Dropped tuples by reason."""


def stats_json(readings: Readings, sample: Sample | None, epoch: Epoch, residuals: Mapping[str, int]) -> dict[str, Any]:
    """Return plain data, ready for a JSON encoder."""
    queues = _queues(readings, epoch)
    return {
        "engine": plain(readings.engine),
        "scheduler": plain(readings.scheduler),
        "overload": plain(readings.overload),
        "streams": [
            {**plain(s), "shed": shed}
            for s, shed in zip(readings.streams, _shed_of_streams(readings, epoch), strict=True)
        ],
        "arcs": [plain(a) for a in readings.arcs],
        "boxes": _boxes(readings, sample, epoch, queues),
        "outputs": [
            _output(o, sum(queues[b] for b in feeding), shed, number)
            for number, (o, feeding, shed) in enumerate(
                zip(readings.outputs, _upstream(epoch), _shed_before_outputs(readings, epoch.network), strict=True)
            )
        ],
        "workers": _workers(readings, sample),
        "resources": [plain(r) for r in readings.resources],
        "readiness": plain(readings.readiness),
        "history": plain(readings.history),
        "spark": plain(readings.spark),
        "bulk": [plain(b) for b in readings.bulk],
        "watched": [plain(w) for w in readings.watched],
        "sinks": [plain(s) for s in readings.sinks],
        "conservation_residual": dict(residuals),
        "totals": _totals(readings),
    }


def output_utility(output: OutputReading) -> float:
    """Return the worse of delay and loss: an output that is in time but half lost is not fine."""
    return min(output.latency.window_utility, output.loss_utility)


def _totals(readings: Readings) -> dict[str, Any]:
    """Sum up what ``top`` and the page show of the whole, so that both show the same."""
    dropped = _sum_of_shed(readings.arcs)
    for stream in readings.streams:
        for reason, tuples in stream.edge.dropped.items():
            dropped[reason] = dropped.get(reason, 0) + tuples
    if slow := sum(output.dropped for output in readings.outputs):
        dropped["slow reader"] = slow
    return {
        "utility": sum(map(output_utility, readings.outputs)),
        "outputs": len(readings.outputs),
        "dropped": dict(sorted(dropped.items())),
        "dropped_tuples": sum(dropped.values()),
    }


def bills_json(readings: Readings, network: Network) -> dict[str, Any]:
    """Return the answer of ``/api/v1/bills``: the dearest query first, each with its own boxes and the shared ones."""
    billing = readings.billing
    own: list[list[str]] = [[] for _ in network.outputs]
    shared: list[list[str]] = [[] for _ in network.outputs]
    for node, outputs in zip(network.boxes, network.box_outputs, strict=True):
        for output in outputs:
            (own if len(outputs) == 1 else shared)[output].append(node.name)
    bills = [
        {**plain(bill), "cpu_ns": bill.cpu_ns, "boxes": own[number], "shared": shared[number]}
        for number, bill in enumerate(billing.bills)
    ]
    bills.sort(key=lambda bill: -bill["cpu_ns"])
    totals = {name: getattr(billing, name) for name in ("busy_ns", "gone_ns", "no_output_ns", "residual_ns")}
    return {**totals, "billed_ns": sum(bill["cpu_ns"] for bill in bills), "bills": bills}


def _boxes(readings: Readings, sample: Sample | None, epoch: Epoch, queues: list[int]) -> list[dict[str, Any]]:
    stats, none = epoch.stats, np.zeros(len(queues))
    means = sample.box_means if sample is not None and sample.box_means is not None else BoxMeans(*[none] * 4)
    figures = {
        "queue_tuples": queues,
        "rate_per_s": sample.box_rates.tolist() if sample is not None else none.tolist(),
        "busy_ratio": means.busy.tolist(),
        "mean_tuple_ns": means.tuple_ns.tolist(),
        "mean_call_ns": means.call_ns.tolist(),
        "mean_call_tuples": means.call_tuples.tolist(),
        "cost_per_tuple_ns": stats.cost_per_tuple_ns.tolist(),
        "cost_per_call_ns": stats.cost_per_call_ns.tolist(),
        "effective_cost_ns": stats.effective_cost_ns().tolist(),
        "selectivity": stats.selectivity.tolist(),
        "mean_train_tuples": np.where(stats.observed_calls > 0, stats.train_tuples, 0.0).tolist(),
    }
    rows = zip(*figures.values(), strict=True)
    return [
        {**plain(box), **dict(zip(figures, row, strict=True))} for box, row in zip(readings.boxes, rows, strict=True)
    ]


def _output(output: OutputReading, queue: int, shed: Shed, number: int) -> dict[str, Any]:
    lat = output.latency
    return {
        "number": number,
        "name": output.name,
        "emitted": output.emitted,
        "rate_per_s": output.rate_per_s,
        "queue_tuples": queue,
        "error": None if output.error is None else output.error._asdict(),
        "latency": {
            "p50_ns": lat.p50_ns,
            "p99_ns": lat.p99_ns,
            "p999_ns": lat.p999_ns,
            "mean_ns": lat.mean_ns,
            "max_ns": lat.window_max_ns,
            "window_tuples": lat.window_tuples,
            "all_time_mean_ns": lat.histogram.sum / lat.tuples if lat.tuples else 0.0,
            "all_time_max_ns": lat.max_ns,
        },
        "utility": {
            "latency": lat.window_utility,
            "loss": output.loss_utility,
            "value": output.value_utility,
            "worst": output_utility(output),
            "latency_all_time": lat.utility_sum / lat.tuples if lat.tuples else 1.0,
        },
        "value_point": None if lat.value_point is None else list(lat.value_point),
        "share_delivered": output.share_delivered,
        "shed": shed,
        "deadline_ns": lat.deadline_ns,
        "missed": lat.missed,
        "sdmr": lat.window_missed / lat.window_tuples if lat.window_tuples else 0.0,
        "sdmr_all_time": lat.missed / lat.tuples if lat.tuples else 0.0,
        "slowdown": {
            "mean": lat.slowdown_sum / lat.tuples if lat.tuples else 0.0,
            "max": lat.slowdown_max,
            "l2": sqrt(lat.slowdown_square_sum),
        },
        "readers": output.readers,
        "delivered": output.delivered,
        "dropped": output.dropped,
        "subscribers": [plain(s) for s in output.subscribers],
    }


def _workers(readings: Readings, sample: Sample | None) -> list[dict[str, Any]]:
    shares = list(sample.worker_busy) if sample is not None else []
    return [{**plain(w), "busy_ratio": shares[w.number] if w.number < len(shares) else 0.0} for w in readings.workers]


def _shed_of_streams(readings: Readings, epoch: Epoch) -> list[Shed]:
    """Return, by stream, the tuples dropped undecoded, and on arcs that it leads to. An arc behind two streams counts
    for both."""
    network = epoch.network
    undecoded = [dict(s.edge.dropped) for s in readings.streams]
    if not any(arc.shed for arc in readings.arcs):
        return undecoded
    return [
        gone | _sum_of_shed(readings.arcs[a] for a in network.arcs_behind(s.arcs))
        for s, gone in zip(network.streams, undecoded, strict=True)
    ]


def drops_before_outputs(readings: Readings, network: Network) -> list[int]:
    """Return, by output, the tuples dropped undecoded, on arcs that lead to it, and for its slow readers."""
    dropped = [sum(shed.values()) for shed in _shed_before_outputs(readings, network)]
    for number, output in enumerate(readings.outputs):
        dropped[number] += output.dropped
    return dropped


def _outputs_of(network: Network, arc: Arc) -> tuple[int, ...]:
    return (arc.output,) if arc.output is not None else network.box_outputs[arc.box or 0]


def _shed_before_outputs(readings: Readings, network: Network) -> list[Shed]:
    """Return, by output, the tuples dropped undecoded and on arcs that lead to it. An arc to two outputs counts for
    both."""
    before: list[list[ArcReading]] = [[] for _ in network.outputs]
    for arc, reading in zip(network.arcs, readings.arcs, strict=True):
        if reading.shed:
            for output in _outputs_of(network, arc):
                before[output].append(reading)
    found = [_sum_of_shed(arcs) for arcs in before]
    for stream, stream_reading in zip(network.streams, readings.streams, strict=True):
        if undecoded := stream_reading.edge.dropped:
            for number in {o for a in stream.arcs for o in _outputs_of(network, network.arcs[a])}:
                for reason, tuples in undecoded.items():
                    found[number][reason] = found[number].get(reason, 0) + tuples
    return found


def _sum_of_shed(arcs: Iterable[ArcReading]) -> Shed:
    shed: Shed = {}
    for arc in arcs:
        for reason, tuples in arc.shed.items():
            shed[reason] = shed.get(reason, 0) + tuples
    return shed


def _queues(readings: Readings, epoch: Epoch) -> list[int]:
    """Return, by box, the tuples that wait before it."""
    arc_box = epoch.load.arc_box
    queued = np.flatnonzero(arc_box >= 0)
    waiting = np.fromiter((a.tuples for a in readings.arcs), np.int64)
    before: list[int] = np.bincount(arc_box[queued], waiting[queued], len(readings.boxes)).astype(int).tolist()
    return before


def _upstream(epoch: Epoch) -> list[list[int]]:
    """Return, by output, the boxes whose tuples can reach it."""
    feeding: list[list[int]] = [[] for _ in epoch.network.outputs]
    for box, outputs in enumerate(epoch.network.box_outputs):
        for output in outputs:
            feeding[output].append(box)
    return feeding
