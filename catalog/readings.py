"""Readings: the state of the engine at one moment, as plain numbers.

One ``Readings`` feeds everything that observes the engine: ``/metrics``, ``/api/v1/stats``, ``top``, the monitor's tick
and the conservation laws. The engine fills one on demand; nothing here is touched per train.

Counters are totals since the start; two readings give a rate. Gauges are of this moment. All values are base integers:
tuples, bytes, ns. A reading is a NamedTuple and not a frozen dataclass: the monitor makes one of 1,000 boxes ten times
a second under the GIL, and ``map(BoxReading._make, zip(...))`` takes a tenth of the time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

NOTHING: Mapping[str, int] = MappingProxyType({})

GONE = "(gone)"
"""The name of the entry that sums up all subscribers that have left: the conservation law still needs their counts."""

TRAIN_BOUNDS = tuple(8**k for k in range(7))
"""Upper bounds, inclusive, of the train-size buckets: 1, 8, 64 ... 262,144; one more bucket for longer trains."""

DECISION_BOUNDS_NS = tuple(1_000 * 2**k for k in range(15))
"""Upper bounds, inclusive, of the scheduler's decision times: 1 us to 16 ms; one more bucket for longer times."""


def train_bucket(tuples: int) -> int:
    """Return the bucket of a train of at least one tuple. Cheap enough for every box call (0.1 us)."""
    return min(((tuples - 1).bit_length() + 2) // 3, len(TRAIN_BOUNDS))


def decision_bucket(decision_ns: int) -> int:
    """Return the bucket of one scheduling decision."""
    return min(((max(decision_ns, 1) - 1) // 1_000).bit_length(), len(DECISION_BOUNDS_NS))


class HistogramReading(NamedTuple):
    """Counts by bucket, not cumulative: ``counts[i]`` has ``bounds[i-1] < x <= bounds[i]``, the last one the rest."""

    bounds: tuple[float, ...] = ()
    counts: tuple[int, ...] = (0,)
    sum: float = 0.0

    @property
    def total(self) -> int:
        return sum(self.counts)


class EdgeReading(NamedTuple):
    """A stream before it is decoded (``router/edge``)."""

    sheds: bool = False  # whether rows may be dropped undecoded
    share: float = 1.0  # of the rows, that is decoded
    dropped: Mapping[str, int] = NOTHING  # rows dropped undecoded, by reason
    decode_ns: int = 0  # spent decoding
    behind_ns: int = 0  # how long the fullest socket has not been found empty
    waited_ns: int = 0  # from a read to its decoding, of the last one


class StreamReading(NamedTuple):
    """An input. Law: received = admitted + rejected + duplicates + dropped undecoded."""

    name: str
    received: int = 0  # tuples, valid or not
    admitted: int = 0
    rejected: Mapping[str, int] = NOTHING  # by reason; from a closed set, because reasons are labels of metrics
    duplicates: int = 0
    received_bytes: int = 0
    connections: int = 0
    paused: bool = False  # reading is paused for lack of room
    rate_per_s: float = 0.0  # valid tuples offered; the monitor fills it in
    edge: EdgeReading = EdgeReading()
    newest_ns: int | None = None  # the highest event time that came; of arrivals where the stream names no time
    watermark_ns: int | None = None  # no tuple with an event time below it is expected


class ArcReading(NamedTuple):
    """A queue. Law: enqueued = dequeued + shed + tuples + spilled_tuples."""

    name: str
    tuples: int = 0  # in memory now
    bytes: int = 0
    enqueued: int = 0
    dequeued: int = 0
    shed: Mapping[str, int] = NOTHING  # by reason
    spilled_tuples: int = 0  # on disk now
    spilled_bytes: int = 0


class BoxReading(NamedTuple):
    """A box. Law, row by row: in = out + filtered + dead + waiting; windowed: in = absorbed + late + dead + waiting."""

    name: str
    kind: str = ""
    row_wise: bool = True
    calls: int = 0
    tuples_in: int = 0
    tuples_out: int = 0  # emitted; counted once even when a port feeds several arcs
    filtered: int = 0
    absorbed: int = 0
    late: int = 0
    dead: int = 0
    null_errors: int = 0
    cost_ns: int = 0  # time inside the box, all calls
    state_bytes: int = 0  # in memory
    state_keys: int = 0  # that the box remembers, in memory and on disk
    state_disk_bytes: int = 0
    waiting: int = 0  # tuples that the box has taken and that wait for state on disk
    evicted: int = 0  # keys that were forgotten because of a limit of the state
    train_counts: Sequence[int] = ()  # calls by train_bucket()
    tuples_out_by_port: Sequence[int] = ()  # empty: unknown, assumed to be spread evenly
    by_input: Sequence[tuple[int, int]] = ()  # of a join, by input: tuples in, and tuples out in the same calls
    withheld: int = 0  # results of windows of which tuples were dropped
    late_by_ns: int = 0  # the most that a late tuple was behind the watermark
    dropped: int = 0  # of the absorbed: tuples that were still in a window when the daemon stopped, which dropped them
    failure: str = ""  # why the box processes nothing any more: every tuple that it takes is dead
    watermark_ns: int | None = None  # the lowest of its inputs; None: none has come, or the end has


class SubscriberReading(NamedTuple):
    """One reader of an output. Law: offered = delivered + pending + dropped."""

    name: str
    offered: int = 0  # emitted since it connected
    delivered: int = 0
    pending: int = 0
    dropped: int = 0  # because it was too slow
    pending_bytes: int = 0


class LatencyReading(NamedTuple):
    """The latencies of an output (``qos_monitor/histogram.py``). Quantiles are of the last ten seconds."""

    histogram: HistogramReading = HistogramReading()  # ns
    tuples: int = 0
    max_ns: int = 0
    utility_sum: float = 0.0  # by the latency graph, over all tuples delivered; utility_sum / tuples is the mean
    missed: int = 0  # later than the deadline
    deadline_ns: int | None = None
    slowdown_sum: float = 0.0
    slowdown_max: float = 0.0
    slowdown_square_sum: float = 0.0  # the l2 norm is its root
    window_tuples: int = 0
    p50_ns: float = 0.0
    p99_ns: float = 0.0
    p999_ns: float = 0.0
    mean_ns: float = 0.0
    window_max_ns: int = 0
    window_utility: float = 1.0
    window_missed: int = 0
    value_point: tuple[float, float] | None = None  # the mean value delivered, and its utility by the value graph


class ErrorReading(NamedTuple):
    """The relative error of an output with ``max_error``, by its last windows."""

    limit: float
    ratio: float | None  # None: no window has closed yet
    needed_share: float  # of its tuples, that must be kept
    is_kept: bool


class OutputReading(NamedTuple):
    name: str
    emitted: int = 0
    latency: LatencyReading = LatencyReading()
    subscribers: Sequence[SubscriberReading] = ()
    rate_per_s: float = 0.0  # the monitor fills in this one and the next three
    share_delivered: float = 1.0  # of the tuples that would come out without shedding and drops
    loss_utility: float = 1.0
    value_utility: float = 1.0  # the share of the tuples' worth that was delivered
    cost_ns: int = 0  # time spent delivering: recording, encoding, handing to readers
    lag_ns: int = 0  # from the delivery of a train until the slowest reader's socket has taken it
    not_finite: int = 0  # NaN and infinite values that were written without a number for them
    error: ErrorReading | None = None  # of an output with ``max_error``

    @property
    def readers(self) -> int:
        """The readers that are connected now."""
        return sum(s.name != GONE for s in self.subscribers)

    @property
    def delivered(self) -> int:
        """Tuples delivered to all readers since the start, including readers that have left."""
        return sum(s.delivered for s in self.subscribers)

    @property
    def dropped(self) -> int:
        """Tuples dropped because a reader was too slow; likewise."""
        return sum(s.dropped for s in self.subscribers)


class WorkerReading(NamedTuple):
    number: int
    busy_ns: int = 0  # running plans, boxes and overhead together
    plans: int = 0
    replaced: int = 0  # how often another thread took its place, because a call of users' code did not return


class SchedulerReading(NamedTuple):
    policy: str = ""
    unit: str = ""
    steps: int = 0
    decision_ns: int = 0  # total
    decision_counts: Sequence[int] = ()  # by decision_bucket()
    execution_queue: int = 0  # plans waiting for a worker
    scheduler_ns: int = 0  # overhead, split as in figure 9 of the paper: deciding and applying events ...
    storage_ns: int = 0  # ... taking from and putting on queues ...
    worker_ns: int = 0  # ... and the time of a worker on a plan outside its boxes
    asked: str = ""  # the policy in the network file: `auto`, or the one that runs
    reason: str = ""  # why this policy runs
    changes: int = 0  # how often `auto` changed the policy
    traversal: str = ""  # of most plans of the last second
    plans: Mapping[str, int] = NOTHING  # dispatched, by traversal
    train: str = ""  # the train rule
    train_scale: float = 1.0  # the factor by which `auto` has shortened trains; 1: not at all
    train_limit: int = 0  # tuples: the shortest limit that `auto` sets for any box
    plans_by: Mapping[str, int] = NOTHING  # plans that ran, by who decided: the scheduler's thread, or idle (nobody)
    caller_ns: int = 0  # that threads other than workers spent running plans

    @property
    def decided_by(self) -> str:
        """Return what decided on the policy: the network file, the QoS graphs alone, a forecast of the simulator, or
        the utility that was measured after a change."""
        if self.asked == self.policy:
            return "file"
        if self.reason.startswith("measured"):
            return "measured"
        return "forecast" if self.changes else "graphs"


class EngineReading(NamedTuple):
    version: str = ""
    network_version: int = 1
    now_ns: int = 0  # the engine's clock; arrival stamps use it too
    uptime_ns: int = 0
    workers: int = 0
    memory_used: int = 0  # queues and state
    memory_state: int = 0  # the state of boxes alone
    memory_budget: int = 0
    memory_peak: int = 0
    load_ratio: float = 0.0  # the monitor fills it in
    shed_level: float = 0.0
    spill_bytes: int = 0
    dead_letters: int = 0
    evicted_connections: int = 0  # unused ones, closed to make room for new ones
    refused_connections: int = 0  # for which there was no place
    draining: bool = False


class HistoryReading(NamedTuple):
    """The history of a connection point (``storage/history``)."""

    name: str
    oldest: int  # the number of the first tuple that is kept; above ``newest`` when there is none
    newest: int
    from_ns: int  # the time of the oldest and of the newest tuple, 0 when there is none
    to_ns: int
    segments: int
    nbytes: int  # on disk
    tail_tuples: int  # in memory only
    tail_bytes: int
    written_bytes: int
    merged: int  # segments
    lost: int  # tuples that the disk did not take
    trouble: str


class ReadinessReading(NamedTuple):
    """Whether the daemon is ready, by check (``engine/daemon/monitor/readiness``), and what the checks look at."""

    checks: Mapping[str, str] = MappingProxyType({})  # by name: the reason why it fails, empty when it passes
    connections: int = 0  # open now, on the ports of streams and outputs
    connections_limit: int = 0
    workers_alive: int = 0
    log_pending_bytes: int = 0  # that wait to be written to the log


class AccessCount(NamedTuple):
    """How often something happened at a listener: ``login accepted``, ``login refused``, ``request denied``, ..."""

    event: str
    listener: str  # "http", "spark", "stream NAME" or "output NAME"
    times: int


class ResourceReading(NamedTuple):
    """Threads that may be full. ``busy_ns`` is the time that they were busy, all together."""

    name: str
    busy_ns: int = 0
    threads: int = 1
    load_ratio: float = 0.0  # demanded over capacity; the monitor fills it in


class OverloadReading(NamedTuple):
    """The load verdict (``qos_monitor/verdict.py``) and the shed plan in force. Work is in ns per second."""

    state: str = "fine"  # fine | close | overloaded
    load_ns: float = 0.0  # demanded, without shedding
    capacity_ns: float = 0.0  # measured
    load_ratio: float = 0.0
    trend_per_s: float = 0.0
    backlog_ns: float = 0.0  # ns of work that wait
    wait_ns: float = 0.0  # how long the backlog will wait
    excess_ns: float = 0.0
    headroom_ratio: float = 0.0
    suffering: Sequence[str] = ()  # outputs below the utility that their graphs allow
    shed_level: float = 0.0
    plan: int = 0  # the number of the shed plan
    loss: float = 0.0  # utility that the plan costs
    why: str = ""
    spent_ns: int = 0  # time spent deciding, since the start


class SparkReading(NamedTuple):
    """The Spark driver beside the daemon; all zero until it is first used."""

    up: bool = False
    starts: int = 0
    lost: int = 0  # drivers that died or went silent
    start_ns: int = 0  # how long the last start took
    java: int = 0
    pid: int = 0  # of the JVM
    error: str = ""  # the last error
    port: str = ""  # host:port for executors and readers


class BulkReading(NamedTuple):
    """The newest bulk job of a stream."""

    stream: str
    job: str = ""
    state: str = "waiting"  # waiting | reading | done | failed
    rows: int = 0  # received, valid or not
    rows_expected: int = 0  # 0: unknown
    partitions: int = 0
    partitions_done: int = 0
    rate_per_s: float = 0.0
    attempts: int = 0
    yielded_ns: int = 0  # time that it paused for the live outputs
    error: str = ""
    rows_total: int = 0  # of all jobs of the stream, including this one

    @property
    def left(self) -> bool:
        """Whether the remaining time can be estimated."""
        return self.rows_expected > self.rows and self.rate_per_s > 0


class WatchReading(NamedTuple):
    """What became of the files of a watched folder. All but ``taken`` and ``waiting`` count since the start."""

    stream: str = ""
    taken: int = 0  # files, also of earlier runs
    waiting: int = 0  # that may still grow
    failed: int = 0  # set aside: they could not be read
    changed: int = 0  # after they were taken
    renamed: int = 0  # after they were taken
    bad_rows: int = 0  # rows that did not fit, in ``bad_rows``
    error: str = ""


class SinkReading(NamedTuple):
    """A sink on Spark. Law: offered = committed + buffered + dropped."""

    output: str
    state: str = "idle"  # idle | committing | retrying | blocked
    offered: int = 0
    committed: int = 0  # tuples
    buffered: int = 0
    dropped: int = 0
    commits: int = 0
    retries: int = 0
    buffered_bytes: int = 0
    error: str = ""


class BillReading(NamedTuple):
    """What one query has cost since the start (``qos_monitor/bills.py``). A shared box counts in part."""

    query: str
    boxes_ns: int = 0  # inside boxes
    delivery_ns: int = 0  # recording, encoding, handing to readers
    overhead_ns: int = 0  # of workers between boxes
    tuples: int = 0  # that its boxes took in
    results: int = 0  # that it emitted
    queue_bytes: int = 0  # that wait before its boxes now
    state_bytes: int = 0  # in memory now
    dropped: int = 0  # tuples dropped anywhere before it, or for slow readers: suffered in full by each query behind
    busy_ratio: float = 0.0  # share of one worker's time over the last seconds
    tuples_per_s: float = 0.0

    @property
    def cpu_ns(self) -> int:
        return self.boxes_ns + self.delivery_ns + self.overhead_ns


class BillingReading(NamedTuple):
    """All bills together. Law: busy = bills + gone + no_output, up to the residual."""

    busy_ns: int = 0  # of workers and of other threads that ran plans or delivered
    gone_ns: int = 0  # the bills of queries that were removed
    no_output_ns: int = 0  # boxes that lead to no output: nobody pays for them
    residual_ns: int = 0
    bills: Sequence[BillReading] = ()


class Readings(NamedTuple):
    """Everything at one moment. Parts are in the order of their numbers in the network."""

    streams: Sequence[StreamReading] = ()
    arcs: Sequence[ArcReading] = ()
    boxes: Sequence[BoxReading] = ()
    outputs: Sequence[OutputReading] = ()
    workers: Sequence[WorkerReading] = ()
    scheduler: SchedulerReading = SchedulerReading()
    engine: EngineReading = EngineReading()
    spark: SparkReading = SparkReading()
    bulk: Sequence[BulkReading] = ()
    watched: Sequence[WatchReading] = ()
    sinks: Sequence[SinkReading] = ()
    overload: OverloadReading = OverloadReading()
    resources: Sequence[ResourceReading] = ()
    readiness: ReadinessReading = ReadinessReading()
    billing: BillingReading = BillingReading()  # the monitor fills it in
    access: Sequence[AccessCount] = ()
    history: Sequence[HistoryReading] = ()

    def to_json(self) -> dict[str, Any]:
        """Return plain dicts, lists, numbers and strings."""
        out: dict[str, Any] = plain(self)
        return out


def plain(value: Any) -> Any:
    """Return any nesting of readings as plain data."""
    if hasattr(value, "_fields"):
        return {name: plain(item) for name, item in zip(value._fields, value, strict=True)}
    if isinstance(value, Mapping):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, (tuple, list)):
        return [plain(v) for v in value]
    if hasattr(value, "tolist"):  # a numpy scalar or array from a counter table
        return value.tolist()
    return value
