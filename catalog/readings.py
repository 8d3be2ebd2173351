"""What the engine shows of itself at one moment.

One ``Readings`` feeds everything that looks in from outside: ``/metrics``, ``/api/v1/stats``, ``top``, the monitor's
tick and the conservation laws. The engine fills one on demand; nothing here is touched per train.

Counters are totals since the start (whoever wants a rate takes two readings); gauges are of this moment. Everything
is in base integers (tuples, bytes, nanoseconds). A reading is a NamedTuple and not a frozen dataclass: the monitor
makes one of 1,000 boxes ten times a second under Python's lock, and ``map(BoxReading._make, zip(...))`` does that in
a tenth of the time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

NOTHING: Mapping[str, int] = MappingProxyType({})

GONE = "(gone)"
"""The name of the subscriber that stands for all that have left: their sums stay in the law."""

TRAIN_BOUNDS = tuple(8**k for k in range(7))
"""Upper bounds, inclusive, of the train-size buckets: 1, 8, 64 ... 262,144; one bucket more for what is above."""

DECISION_BOUNDS_NS = tuple(1_000 * 2**k for k in range(15))
"""Upper bounds, inclusive, of the scheduler's decision times: 1 us to 16 ms; one bucket more for what is above."""


def train_bucket(tuples: int) -> int:
    """The bucket of a train of at least one tuple; cheap enough for every box call (0.1 us)."""
    return min(((tuples - 1).bit_length() + 2) // 3, len(TRAIN_BOUNDS))


def decision_bucket(decision_ns: int) -> int:
    """The bucket of one scheduling decision."""
    return min(((max(decision_ns, 1) - 1) // 1_000).bit_length(), len(DECISION_BOUNDS_NS))


class HistogramReading(NamedTuple):
    """Counts by bucket, not cumulative: ``counts[i]`` has ``bounds[i-1] < x <= bounds[i]``, the last one the rest."""

    bounds: tuple[float, ...] = ()
    counts: tuple[int, ...] = (0,)
    sum: float = 0.0

    @property
    def total(self) -> int:
        return sum(self.counts)


class StreamReading(NamedTuple):
    """An input. Law: received = admitted + rejected + shed + duplicates."""

    name: str
    received: int = 0  # tuples, good and bad, that reached the edge
    admitted: int = 0
    rejected: Mapping[str, int] = NOTHING  # by reason; labels of metrics, so from a closed set
    shed: int = 0  # at the edge
    duplicates: int = 0
    received_bytes: int = 0
    connections: int = 0
    paused: bool = False  # reading is held back until there is room
    rate_per_s: float = 0.0  # good tuples offered; the monitor fills it in


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
    """A box. Law, row by row: in = out + filtered + dead; windowed: in = absorbed + late + dead."""

    name: str
    kind: str = ""
    row_wise: bool = True
    calls: int = 0
    tuples_in: int = 0
    tuples_out: int = 0  # emitted, counted once however many arcs a port feeds
    filtered: int = 0
    absorbed: int = 0
    late: int = 0
    dead: int = 0
    null_errors: int = 0
    cost_ns: int = 0  # time inside the box, all calls
    state_bytes: int = 0
    train_counts: Sequence[int] = ()  # calls by train_bucket()
    tuples_out_by_port: Sequence[int] = ()  # empty: unknown, taken as spread evenly
    withheld: int = 0  # results of windows that lacked something


class SubscriberReading(NamedTuple):
    """One reader of an output. Law: offered = delivered + pending + dropped."""

    name: str
    offered: int = 0  # emitted since it came
    delivered: int = 0
    pending: int = 0
    dropped: int = 0  # it was too slow
    pending_bytes: int = 0


class LatencyReading(NamedTuple):
    """What the output's recorder knows (``qos_monitor/histogram.py``). Quantiles are of the last ten seconds."""

    histogram: HistogramReading = HistogramReading()  # ns
    tuples: int = 0
    max_ns: int = 0
    utility_sum: float = 0.0  # of the latency graph, over the tuples delivered; utility_sum / tuples is the mean
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


class OutputReading(NamedTuple):
    name: str
    emitted: int = 0
    latency: LatencyReading = LatencyReading()
    subscribers: Sequence[SubscriberReading] = ()
    rate_per_s: float = 0.0  # these four the monitor fills in
    share_delivered: float = 1.0  # of what would have come out if nothing had been shed or dropped
    loss_utility: float = 1.0
    value_utility: float = 1.0  # the share delivered of what the tuples are worth
    cost_ns: int = 0  # time spent delivering: recording, encoding, handing to readers

    @property
    def readers(self) -> int:
        """How many there are now."""
        return sum(s.name != GONE for s in self.subscribers)

    @property
    def delivered(self) -> int:
        """To all readers since the start, those that left included."""
        return sum(s.delivered for s in self.subscribers)

    @property
    def dropped(self) -> int:
        """Because a reader was too slow; likewise."""
        return sum(s.dropped for s in self.subscribers)


class WorkerReading(NamedTuple):
    number: int
    busy_ns: int = 0  # running plans, boxes and overhead together
    plans: int = 0


class SchedulerReading(NamedTuple):
    policy: str = ""
    unit: str = ""
    steps: int = 0
    decision_ns: int = 0  # total
    decision_counts: Sequence[int] = ()  # by decision_bucket()
    execution_queue: int = 0  # plans waiting for a worker
    scheduler_ns: int = 0  # overhead as in figure 9 of the paper: deciding and applying events ...
    storage_ns: int = 0  # ... taking from and putting on queues ...
    worker_ns: int = 0  # ... and what a worker spends on a plan outside its boxes
    asked: str = ""  # the policy of the network file: `auto`, or the one that runs
    reason: str = ""  # why this one runs
    changes: int = 0  # of the policy, by `auto`
    traversal: str = ""  # of most plans of the last second
    plans: Mapping[str, int] = NOTHING  # dispatched, by traversal
    train: str = ""  # the rule
    train_scale: float = 1.0  # how far `auto` has shortened trains; 1: not at all
    train_limit: int = 0  # tuples: the shortest limit that `auto` sets to any box
    lent_ns: int = 0  # plans that other threads ran


class EngineReading(NamedTuple):
    version: str = ""
    network_version: int = 1
    now_ns: int = 0  # the engine's clock, which arrival stamps are on
    uptime_ns: int = 0
    workers: int = 0
    memory_used: int = 0
    memory_budget: int = 0
    memory_peak: int = 0
    load_ratio: float = 0.0  # the monitor fills it in
    shed_level: float = 0.0
    spill_bytes: int = 0
    dead_letters: int = 0
    draining: bool = False


class OverloadReading(NamedTuple):
    """The verdict and the shed plan (``qos_monitor/verdict.py``, ``catalog/shed.py``). Work is in ns a second."""

    state: str = "fine"  # fine | close | overloaded
    load_ns: float = 0.0  # asked for, nothing shed
    capacity_ns: float = 0.0  # learned
    load_ratio: float = 0.0
    trend_per_s: float = 0.0
    backlog_ns: float = 0.0  # work that waits
    wait_ns: float = 0.0  # how long
    excess_ns: float = 0.0
    headroom_ratio: float = 0.0
    suffering: Sequence[str] = ()  # outputs
    shed_level: float = 0.0
    plan: int = 0  # its number
    loss: float = 0.0  # utility that it gives up
    why: str = ""
    spent_ns: int = 0  # on deciding, since the start


class SparkReading(NamedTuple):
    """The Spark driver beside the daemon; all zero while nobody has needed it."""

    up: bool = False
    starts: int = 0
    lost: int = 0  # drivers that died or went silent
    start_ns: int = 0  # how long the last start took
    java: int = 0
    pid: int = 0  # of the JVM
    error: str = ""  # the last one
    port: str = ""  # where executors and readers connect: host:port


class BulkReading(NamedTuple):
    """The newest bulk job of a stream."""

    stream: str
    job: str = ""
    state: str = "waiting"  # waiting | reading | done | failed
    rows: int = 0  # that came, good and bad
    rows_expected: int = 0  # 0: unknown
    partitions: int = 0
    partitions_done: int = 0
    rate_per_s: float = 0.0
    attempts: int = 0
    yielded_ns: int = 0  # that it stood back for the live outputs
    error: str = ""
    rows_total: int = 0  # of all jobs of the stream, this one included

    @property
    def left(self) -> bool:
        """Whether it can be said how long it will take."""
        return self.rows_expected > self.rows and self.rate_per_s > 0


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


class Readings(NamedTuple):
    """Everything, at one moment. Parts stand in the order of their numbers in the network."""

    streams: Sequence[StreamReading] = ()
    arcs: Sequence[ArcReading] = ()
    boxes: Sequence[BoxReading] = ()
    outputs: Sequence[OutputReading] = ()
    workers: Sequence[WorkerReading] = ()
    scheduler: SchedulerReading = SchedulerReading()
    engine: EngineReading = EngineReading()
    spark: SparkReading = SparkReading()
    bulk: Sequence[BulkReading] = ()
    sinks: Sequence[SinkReading] = ()
    overload: OverloadReading = OverloadReading()

    def to_json(self) -> dict[str, Any]:
        """Plain dicts, lists, numbers and strings."""
        out: dict[str, Any] = plain(self)
        return out


def plain(value: Any) -> Any:
    """Any nest of readings as plain data."""
    if hasattr(value, "_fields"):
        return {name: plain(item) for name, item in zip(value._fields, value, strict=True)}
    if isinstance(value, Mapping):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, (tuple, list)):
        return [plain(v) for v in value]
    if hasattr(value, "tolist"):  # a numpy scalar or array from a counter table
        return value.tolist()
    return value
