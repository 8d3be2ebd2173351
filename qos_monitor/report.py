"""The answer of ``/api/v1/stats``, which ``top`` shows: a reading joined with rates, estimates and quantiles.

Names end in their unit. ``queue_tuples`` of an output counts all tuples that wait anywhere before it.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import sqrt
from typing import Any

import numpy as np

from catalog.catalog import Epoch
from catalog.readings import OutputReading, Readings, plain
from qos_monitor.sampler import Sample


def stats_json(readings: Readings, sample: Sample | None, epoch: Epoch, residuals: Mapping[str, int]) -> dict[str, Any]:
    """Return plain data, ready for a JSON encoder."""
    queues = _queues(readings, epoch)
    return {
        "engine": plain(readings.engine),
        "scheduler": plain(readings.scheduler),
        "overload": plain(readings.overload),
        "streams": [plain(s) for s in readings.streams],
        "arcs": [plain(a) for a in readings.arcs],
        "boxes": _boxes(readings, sample, epoch, queues),
        "outputs": [
            _output(o, sum(queues[b] for b in feeding), number)
            for number, (o, feeding) in enumerate(zip(readings.outputs, _upstream(epoch), strict=True))
        ],
        "workers": [plain(w) for w in readings.workers],
        "spark": plain(readings.spark),
        "bulk": [plain(b) for b in readings.bulk],
        "sinks": [plain(s) for s in readings.sinks],
        "conservation_residual": dict(residuals),
    }


def _boxes(readings: Readings, sample: Sample | None, epoch: Epoch, queues: list[int]) -> list[dict[str, Any]]:
    stats = epoch.stats
    rates = sample.box_rates.tolist() if sample is not None else [0.0] * len(queues)
    busy = sample.box_busy.tolist() if sample is not None else [0.0] * len(queues)
    columns = zip(
        readings.boxes, queues, rates, busy, stats.cost_per_tuple_ns.tolist(), stats.cost_per_call_ns.tolist(),
        stats.selectivity.tolist(), stats.train_tuples.tolist(), stats.observed_calls.tolist(), strict=True,
    )  # fmt: skip
    return [
        {
            **plain(box),
            "queue_tuples": queue,
            "rate_per_s": rate,
            "busy_ratio": share,
            "cost_per_tuple_ns": per_tuple,
            "cost_per_call_ns": per_call,
            "effective_cost_ns": per_tuple + per_call / max(train, 1.0),
            "selectivity": selectivity,
            "mean_train_tuples": train if calls else 0.0,
        }
        for box, queue, rate, share, per_tuple, per_call, selectivity, train, calls in columns
    ]


def _output(output: OutputReading, queue: int, number: int) -> dict[str, Any]:
    lat = output.latency
    return {
        "number": number,
        "name": output.name,
        "emitted": output.emitted,
        "rate_per_s": output.rate_per_s,
        "queue_tuples": queue,
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
            "latency_all_time": lat.utility_sum / lat.tuples if lat.tuples else 1.0,
        },
        "share_delivered": output.share_delivered,
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
