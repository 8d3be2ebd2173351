"""Prometheus metrics: every family is made from one reading at scrape time; the hot path touches no Prometheus object.

Names begin with ``aurorad_``. Units are seconds, bytes, tuples and ratios. Counters end in ``_total``. Labels come only
from names in the network file and from closed sets of words, so that no client can increase the number of series. A
family exists even before it has samples: a dashboard finds every name on the first day.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from math import sqrt

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import InfoMetricFamily, Metric, SummaryMetricFamily
from prometheus_client.registry import Collector

from catalog.loss import UNINTENDED
from catalog.readings import (
    DECISION_BOUNDS_NS,
    TRAIN_BOUNDS,
    ArcReading,
    BoxReading,
    HistoryReading,
    OutputReading,
    OverloadReading,
    Readings,
)
from qos_monitor.bill_metrics import bills
from qos_monitor.conservation import residuals
from qos_monitor.exposition import expose
from qos_monitor.families import counter as _counter
from qos_monitor.families import gauge as _gauge
from qos_monitor.families import histogram as _histogram
from qos_monitor.families import histograms as _histograms

__all__ = ["EngineCollector", "expose", "registry_for"]


class EngineCollector(Collector):
    """``residual`` returns the conservation residual by law; None: compute it from the reading."""

    def __init__(
        self, readings: Callable[[], Readings], residual: Callable[[], Mapping[str, int]] | None = None
    ) -> None:
        self._readings = readings
        self._residual = residual

    def collect(self) -> Iterator[Metric]:
        r = self._readings()
        yield from _streams(r)
        yield from _arcs(r.arcs)
        yield from _boxes(r.boxes)
        yield from _outputs(r.outputs)
        yield from _latencies(r.outputs)
        yield from _scheduler(r)
        yield from _engine(r)
        yield from _readiness(r)
        yield from _history(r.history)
        yield from _overload(r.overload)
        yield _gauge("resource_load_ratio", "Work demanded over capacity, by resource.", ["resource"],
                     (([x.name], x.load_ratio) for x in r.resources))  # fmt: skip
        yield from _spark(r)
        yield from bills(r.billing)
        yield _counter(
            "access", "What happened at a listener with users: logins accepted, refused, postponed; requests denied; "
            "handshakes refused; requests that change something.", ["event", "listener"],
            (([x.event, x.listener], x.times) for x in r.access),
        )  # fmt: skip
        left = self._residual() if self._residual is not None else residuals(r)
        yield _gauge(
            "conservation_residual", "Tuples unaccounted for, by conservation law; anything but 0 is a bug.", ["law"],
            (([law], missing) for law, missing in left.items()),
        )  # fmt: skip

    def describe(self) -> Iterable[Metric]:
        """Return nothing: registration must not read an engine that is still under construction."""
        return ()


def registry_for(collector: Collector) -> CollectorRegistry:
    """Return a new registry with the metrics of the process and of the engine."""
    registry = CollectorRegistry()
    registry.register(collector)
    ProcessCollector(registry=registry)
    return registry


def _streams(r: Readings) -> Iterator[Metric]:
    label = ["stream"]
    streams = r.streams
    yield _counter("tuples_in", "Tuples received, valid or not.", label, (([s.name], s.received) for s in streams))
    yield _counter(
        "tuples_admitted", "Tuples that entered the network.", label, (([s.name], s.admitted) for s in streams)
    )
    yield _counter(
        "tuples_rejected", "Tuples refused at the edge, by reason.", ["stream", "reason"],
        (([s.name, reason], n) for s in streams for reason, n in s.rejected.items()),
    )  # fmt: skip
    yield _counter(
        "tuples_duplicate",
        "Tuples received again in a repeated batch.",
        label,
        (([s.name], s.duplicates) for s in streams),
    )
    yield _counter("stream_bytes", "Bytes read.", label, (([s.name], s.received_bytes) for s in streams))
    yield _gauge("stream_connections", "Open connections.", label, (([s.name], s.connections) for s in streams))
    yield _gauge(
        "stream_paused", "1 while reading is paused for lack of room.", label,
        (([s.name], float(s.paused)) for s in streams),
    )  # fmt: skip
    yield _counter(
        "tuples_undecoded", "Tuples dropped before they were decoded, by reason.", ["stream", "reason"],
        (([s.name, reason], n) for s in streams for reason, n in s.edge.dropped.items()),
    )  # fmt: skip
    yield _gauge("stream_decoded_ratio", "Share of the tuples that is decoded, by the shed plan of the edge.", label,
                 (([s.name], s.edge.share) for s in streams))  # fmt: skip
    yield _counter("stream_decode_seconds", "Time spent decoding.", label,
                   (([s.name], s.edge.decode_ns / 1e9) for s in streams))  # fmt: skip


def _arcs(arcs: Sequence[ArcReading]) -> Iterator[Metric]:
    yield _gauge("queue_tuples", "Tuples that wait in memory.", ["arc"], (([a.name], a.tuples) for a in arcs))
    yield _gauge("queue_bytes", "Bytes that wait in memory.", ["arc"], (([a.name], a.bytes) for a in arcs))
    yield _gauge(
        "queue_spilled_tuples", "Tuples that wait on disk.", ["arc"], (([a.name], a.spilled_tuples) for a in arcs)
    )
    yield _counter(
        "tuples_dropped", "Tuples dropped on an arc, by reason.", ["arc", "reason"],
        (([a.name, reason], n) for a in arcs for reason, n in a.shed.items()),
    )  # fmt: skip
    yield _counter(
        "tuples_dropped_unintended", "Of these, drops without a plan: memory full, spilled file damaged.", ["arc"],
        (([a.name], sum(a.shed.get(reason, 0) for reason in UNINTENDED)) for a in arcs if a.shed),
    )  # fmt: skip


def _boxes(boxes: Sequence[BoxReading]) -> Iterator[Metric]:
    label = ["box"]
    yield _counter(
        "box_cost_seconds", "Time spent inside the box.", label, (([b.name], b.cost_ns / 1e9) for b in boxes)
    )
    yield _counter("box_calls", "Calls of the box.", label, (([b.name], b.calls) for b in boxes))
    yield _counter(
        "box_tuples", "Tuples into and out of the box.", ["box", "direction"],
        (
            ([b.name, direction], n)
            for b in boxes
            for direction, n in (("in", b.tuples_in), ("out", b.tuples_out))
        ),
    )  # fmt: skip
    yield _counter(
        "late_tuples", "Tuples that were too late for their window.", label, (([b.name], b.late) for b in boxes)
    )
    yield _counter(
        "stop_dropped_tuples", "Tuples in open windows that a stop of the daemon dropped.", label,
        (([b.name], b.dropped) for b in boxes),
    )  # fmt: skip
    yield _counter("dead_tuples", "Tuples that the box could not process.", label, (([b.name], b.dead) for b in boxes))
    yield _counter(
        "null_errors", "Overflows and divisions by zero that became NULL.", label,
        (([b.name], b.null_errors) for b in boxes),
    )  # fmt: skip
    yield _counter(
        "withheld_tuples", "Results withheld because tuples of their window were dropped.", label,
        (([b.name], b.withheld) for b in boxes),
    )  # fmt: skip
    yield _gauge(
        "box_failed", "1 when the box processes nothing any more: all its tuples are dead.", label,
        (([b.name], float(bool(b.failure))) for b in boxes),
    )  # fmt: skip
    yield _gauge(
        "box_state_bytes", "Bytes of the box's state in memory.", label, (([b.name], b.state_bytes) for b in boxes)
    )
    yield _gauge("box_state_keys", "Keys that the box remembers.", label, (([b.name], b.state_keys) for b in boxes))
    yield _gauge(
        "box_state_disk_bytes", "Bytes of the box's state on disk.", label,
        (([b.name], b.state_disk_bytes) for b in boxes),
    )  # fmt: skip
    yield _gauge(
        "box_waiting_tuples", "Tuples that the box has taken and that wait for state on disk.", label,
        (([b.name], b.waiting) for b in boxes),
    )  # fmt: skip
    yield _counter(
        "box_state_evicted_keys", "Keys forgotten because of a limit of the state.", label,
        (([b.name], b.evicted) for b in boxes),
    )  # fmt: skip
    yield _histogram(
        "train_tuples", "Tuples in a train, one box call each.", label, TRAIN_BOUNDS,
        (([b.name], b.train_counts, b.tuples_in) for b in boxes),
    )  # fmt: skip


def _readiness(r: Readings) -> Iterator[Metric]:
    ready = r.readiness
    yield _gauge(
        "ready", "1 where a check of /ready passes, 0 where it fails.", ["check"],
        (([check], float(not why)) for check, why in ready.checks.items()),
    )  # fmt: skip
    yield _gauge("connections", "Open connections of senders and readers.", [], [([], ready.connections)])
    yield _gauge("connections_limit", "Connections that may be open.", [], [([], ready.connections_limit)])
    yield _gauge("workers_alive", "Workers that run.", [], [([], ready.workers_alive)])
    yield _gauge("workers_at_work", "Workers that take plans; the others sleep.", [], [([], r.engine.workers)])
    yield _counter(
        "workers_replaced", "Workers replaced because a call of users' code did not return.", ["worker"],
        (([str(w.number)], w.replaced) for w in r.workers),
    )  # fmt: skip
    yield _gauge("log_pending_bytes", "Bytes that wait to be written to the log.", [], [([], ready.log_pending_bytes)])


def _history(places: Sequence[HistoryReading]) -> Iterator[Metric]:
    label = ["place"]
    yield _gauge("history_bytes", "Bytes of history on disk.", label, (([h.name], h.nbytes) for h in places))
    yield _gauge(
        "history_tuples", "Tuples of history, on disk and in memory.", label,
        (([h.name], h.newest - h.oldest + 1) for h in places),
    )  # fmt: skip
    yield _gauge("history_segments", "Files of history.", label, (([h.name], h.segments) for h in places))
    yield _gauge(
        "history_tail_bytes", "Bytes of history that are not in a file yet.", label,
        (([h.name], h.tail_bytes) for h in places),
    )  # fmt: skip
    yield _counter(
        "history_written_bytes", "Bytes of history written, without merging.", label,
        (([h.name], h.written_bytes) for h in places),
    )  # fmt: skip
    yield _counter(
        "history_lost_tuples", "Tuples that are missing in the history: the disk did not take them.", label,
        (([h.name], h.lost) for h in places),
    )  # fmt: skip


def _outputs(outputs: Sequence[OutputReading]) -> Iterator[Metric]:
    label = ["output"]
    yield _counter("tuples_out", "Tuples that the output emitted.", label, (([o.name], o.emitted) for o in outputs))
    yield _counter(
        "output_not_finite_values", "NaN and infinite values that ndjson or csv wrote as NULL or as a word.", label,
        (([o.name], o.not_finite) for o in outputs),
    )  # fmt: skip
    yield _gauge(
        "output_utility_ratio", "Utility by the QoS graphs over the last seconds, 0 to 1.", ["output", "kind"],
        (
            ([o.name, kind], utility)
            for o in outputs
            for kind, utility in (
                ("latency", o.latency.window_utility),
                ("loss", o.loss_utility),
                ("value", o.value_utility),
            )
        ),
    )  # fmt: skip
    yield _gauge(
        "output_delivered_ratio", "Tuples delivered, as a share of the tuples without shedding and drops.", label,
        (([o.name], o.share_delivered) for o in outputs),
    )  # fmt: skip
    limited = [(o.name, o.error) for o in outputs if o.error is not None]
    yield _gauge(
        "output_error_ratio",
        "Relative error of the last approximate results, at the confidence of their box; NaN before the first.",
        label, (([name], math.nan if e.ratio is None else e.ratio) for name, e in limited),
    )  # fmt: skip
    yield _gauge(
        "output_error_limit_ratio", "max_error of the output.", label, (([name], e.limit) for name, e in limited)
    )
    yield _gauge(
        "output_needed_ratio", "The share of its tuples that the output needs, so that max_error is kept.", label,
        (([name], e.needed_share) for name, e in limited),
    )  # fmt: skip
    yield _gauge(
        "output_error_kept", "1 if max_error is kept, else 0.", label,
        (([name], float(e.is_kept)) for name, e in limited),
    )  # fmt: skip
    yield _counter(
        "output_deadline_missed", "Tuples that were later than the output's deadline.", label,
        (([o.name], o.latency.missed) for o in outputs),
    )  # fmt: skip
    yield _counter(
        "output_delivered_tuples", "Tuples handed to readers; each reader counts.", label,
        (([o.name], o.delivered) for o in outputs),
    )  # fmt: skip
    yield _counter(
        "output_dropped_tuples", "Tuples dropped for readers that were too slow.", label,
        (([o.name], o.dropped) for o in outputs),
    )  # fmt: skip
    yield _gauge("output_subscribers", "Connected readers.", label, (([o.name], o.readers) for o in outputs))
    yield _gauge(
        "output_pending_tuples", "Tuples that wait for slow readers.", label,
        (([o.name], sum(s.pending for s in o.subscribers)) for o in outputs),
    )  # fmt: skip
    yield _gauge(
        "output_pending_bytes", "Bytes that wait for slow readers.", label,
        (([o.name], sum(s.pending_bytes for s in o.subscribers)) for o in outputs),
    )  # fmt: skip


def _latencies(outputs: Sequence[OutputReading]) -> Iterator[Metric]:
    yield _histograms(
        "output_latency_seconds", "From arrival to delivery; buckets on the breakpoints of the QoS graph.", ["output"],
        (
            ([o.name], [b / 1e9 for b in h.bounds], h.counts, h.sum / 1e9)
            for o, h in ((o, o.latency.histogram) for o in outputs)
        ),
    )  # fmt: skip
    yield _gauge(
        "output_latency_window_seconds", "Latency over the last ten seconds.", ["output", "statistic"],
        (([o.name, word], ns / 1e9) for o in outputs for word, ns in _window(o).items()),
    )  # fmt: skip
    slowdown = SummaryMetricFamily(
        "aurorad_output_slowdown_ratio", "Latency over the ideal time on an idle engine.", labels=["output"]
    )
    for o in outputs:
        slowdown.add_metric([o.name], count_value=o.latency.tuples, sum_value=o.latency.slowdown_sum)
    yield slowdown
    yield _gauge(
        "output_slowdown_max_ratio", "The largest slowdown since the start.", ["output"],
        (([o.name], o.latency.slowdown_max) for o in outputs),
    )  # fmt: skip
    yield _gauge(
        "output_slowdown_l2_ratio", "The l2 norm of slowdown since the start.", ["output"],
        (([o.name], sqrt(o.latency.slowdown_square_sum)) for o in outputs),
    )  # fmt: skip


def _window(o: OutputReading) -> dict[str, float]:
    lat = o.latency
    return {
        "mean": lat.mean_ns, "p50": lat.p50_ns, "p99": lat.p99_ns, "p999": lat.p999_ns, "max": float(lat.window_max_ns),
    }  # fmt: skip


def _scheduler(r: Readings) -> Iterator[Metric]:
    s = r.scheduler
    counts = s.decision_counts or [0] * len(DECISION_BOUNDS_NS) + [s.steps]
    yield _histogram(
        "scheduler_decision_seconds", "Time of one scheduling decision.", [], [b / 1e9 for b in DECISION_BOUNDS_NS],
        [([], counts, s.decision_ns / 1e9)],
    )  # fmt: skip
    yield _counter("scheduler_steps", "Scheduling steps.", [], [([], s.steps)])
    yield _gauge(
        "scheduler_choice",
        "1 for the policy, traversal and train rule in use. decided_by: the network file, or how auto chose: by QoS "
        "graphs alone, by a forecast, or because it measured that a forecast was wrong. /api/v1/stats has the reason "
        "in words.",
        ["policy", "traversal", "train", "decided_by"], [([s.policy, s.traversal, s.train, s.decided_by], 1.0)],
    )  # fmt: skip
    yield _counter("scheduler_choice_changes", "Times that auto changed the policy.", [], [([], s.changes)])
    yield _counter(
        "scheduler_plans", "Plans dispatched, by the order in which their boxes ran.", ["traversal"],
        (([name], n) for name, n in s.plans.items()),
    )  # fmt: skip
    yield _counter(
        "plans",
        "Plans, by who decided them: the scheduler's thread, or nobody because the engine was at rest (idle).",
        ["by"],
        (([by], n) for by, n in s.plans_by.items()),
    )
    yield _gauge(
        "scheduler_train_scale_ratio",
        "The factor by which auto has shortened trains; 1: not at all.",
        [],
        [([], s.train_scale)],
    )
    yield _gauge(
        "scheduler_train_limit_tuples", "The shortest train that auto sets for any box.", [], [([], s.train_limit)]
    )
    yield _gauge("execution_queue_length", "Plans that wait for a worker.", [], [([], s.execution_queue)])
    yield _counter(
        "overhead_seconds", "Time spent outside boxes, by part of the engine.", ["part"],
        ((["scheduler"], s.scheduler_ns / 1e9), (["storage"], s.storage_ns / 1e9), (["worker"], s.worker_ns / 1e9)),
    )  # fmt: skip
    yield _counter(
        "worker_busy_seconds", "Time that a worker ran plans.", ["worker"],
        (([str(w.number)], w.busy_ns / 1e9) for w in r.workers),
    )  # fmt: skip


def _engine(r: Readings) -> Iterator[Metric]:
    e = r.engine
    yield _gauge(
        "load_ratio", "Arriving work over the work that can be done; above 1 queues grow.", [], [([], e.load_ratio)]
    )
    yield _gauge(
        "shed_level", "Position of the load shedder on its road map, 0 to 1; 0 sheds nothing.", [], [([], e.shed_level)]
    )
    yield _gauge(
        "memory_used_bytes",
        "Bytes of trains in queues and in running plans, and of the state of boxes.",
        [],
        [([], e.memory_used)],
    )
    yield _gauge("memory_state_bytes", "Bytes of the state of boxes.", [], [([], e.memory_state)])
    yield _gauge(
        "memory_readers_bytes", "Bytes that wait for slow readers; outside of the budget: a sink has its buffer.", [],
        [([], sum(s.pending_bytes for o in r.outputs for s in o.subscribers))],
    )  # fmt: skip
    yield _gauge("memory_peak_bytes", "The largest memory_used_bytes since the start.", [], [([], e.memory_peak)])
    yield _gauge(
        "memory_budget_bytes", "Bytes that queues and state may hold before reading stops.", [], [([], e.memory_budget)]
    )
    yield _gauge("spill_bytes", "Bytes of trains on disk.", [], [([], e.spill_bytes)])
    yield _gauge("dead_letters", "Refused tuples kept for inspection.", [], [([], e.dead_letters)])
    yield _counter(
        "connections_evicted", "Unused connections closed to make room for new ones.", [],
        [([], e.evicted_connections)],
    )  # fmt: skip
    yield _counter(
        "connections_refused", "Connections refused because no place was free.", [], [([], e.refused_connections)]
    )
    yield _gauge("uptime_seconds", "Time since the start.", [], [([], e.uptime_ns / 1e9)])
    yield _gauge("network_version", "Version of the network; counts deployments.", [], [([], e.network_version)])
    build = {"version": e.version, "policy": r.scheduler.policy, "unit": r.scheduler.unit}
    yield InfoMetricFamily("aurorad_build", "Version, policy and unit of this daemon.", value=build)


def _overload(o: OverloadReading) -> Iterator[Metric]:
    yield _gauge(
        "overload_state", "1 for the load verdict: fine, close (to the knee), or overloaded.", ["state"],
        (([state], float(o.state == state)) for state in ("fine", "close", "overloaded")),
    )  # fmt: skip
    yield _gauge("capacity_ratio", "Measured capacity: seconds of work per second.", [], [([], o.capacity_ns / 1e9)])
    yield _gauge(
        "excess_ratio", "Seconds of work per second beyond capacity; below 0: room.", [], [([], o.excess_ns / 1e9)]
    )
    yield _gauge("backlog_seconds", "Seconds of work in queues.", [], [([], o.backlog_ns / 1e9)])
    yield _gauge("shed_utility", "Utility that the shed plan costs, summed over outputs.", [], [([], o.loss)])
    yield _counter("shedder_seconds", "Time spent deciding what to shed.", [], [([], o.spent_ns / 1e9)])


def _spark(r: Readings) -> Iterator[Metric]:
    """Yield bulk jobs and sinks: these families exist whether or not Spark was ever started."""
    yield _gauge("spark_up", "1 while a Spark driver runs.", [], [([], float(r.spark.up))])
    yield _counter("spark_starts", "Spark drivers started.", [], [([], r.spark.starts)])
    yield _counter("spark_lost", "Spark drivers that died or went silent.", [], [([], r.spark.lost)])
    stream, output = ["stream"], ["output"]
    yield _counter("bulk_rows", "Rows read by bulk jobs.", stream, (([b.stream], b.rows_total) for b in r.bulk))
    yield _gauge(
        "bulk_expected_rows", "Rows that the bulk job will read; 0: unknown.", stream,
        (([b.stream], b.rows_expected) for b in r.bulk),
    )  # fmt: skip
    yield _gauge(
        "bulk_state", "1 for the state that a bulk job is in.", ["stream", "state"],
        (
            ([b.stream, state], float(b.state == state))
            for b in r.bulk
            for state in ("waiting", "reading", "done", "failed")
        ),
    )  # fmt: skip
    yield _counter(
        "bulk_yielded_seconds", "Time that bulk jobs paused for live outputs.", stream,
        (([b.stream], b.yielded_ns / 1e9) for b in r.bulk),
    )  # fmt: skip
    yield _counter(
        "watched_files", "Files of a watched folder by what became of them.", ["stream", "result"],
        (([w.stream, name], getattr(w, name)) for w in r.watched for name in ("taken", "failed", "changed", "renamed")),
    )  # fmt: skip
    yield _gauge(
        "watched_files_waiting", "Files of a watched folder that may still grow.", stream,
        (([w.stream], w.waiting) for w in r.watched),
    )  # fmt: skip
    yield _counter(
        "sink_committed_tuples", "Tuples committed by Spark.", output,
        (([s.output], s.committed) for s in r.sinks),
    )  # fmt: skip
    yield _counter("sink_commits", "Commits of a sink.", output, (([s.output], s.commits) for s in r.sinks))
    yield _counter("sink_retries", "Commits retried.", output, (([s.output], s.retries) for s in r.sinks))
    yield _gauge(
        "sink_buffered_tuples", "Tuples that wait on disk for a commit.", output,
        (([s.output], s.buffered) for s in r.sinks),
    )  # fmt: skip
    yield _gauge(
        "sink_buffered_bytes", "Bytes that wait on disk for a commit.", output,
        (([s.output], s.buffered_bytes) for s in r.sinks),
    )  # fmt: skip
