"""The models of the network file: the keys that it may contain, and their defaults.

``configs/default.yaml`` is the manual of these keys; a test keeps the two in step. A field with a unit ends in that
unit here (``slack_ns``) and not in the file (``slack: 200ms``). Each section is checked here by itself. Checks that
need other parts of the file (does this input exist?) are in ``catalog/build.py``.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    InstanceOf,
    SecretStr,
    Tag,
    model_validator,
)

from catalog.config.access import AccessSection, TlsSection, UserModel
from catalog.config.files import FileSink, FileSource, StdinSource, StdoutSink
from catalog.config.history import KeepModel, Start
from catalog.config.qos import QoSModel
from catalog.config.section import Format, NanForm, Section
from catalog.config.units import (
    Address,
    Cost,
    Duration,
    Listen,
    PositiveDuration,
    PositiveSize,
    Share,
    parse_duration_ns,
    parse_share,
    parse_size_bytes,
)
from catalog.config.words import (
    RefusedValueError,
    check_field_name,
    check_field_type,
    check_name,
    nearest,
)
from catalog.schema import Field as SchemaField
from catalog.schema import Schema


def _no_boolean(value: object) -> object:
    if isinstance(value, bool):
        raise ValueError(f"should be a whole number, not {str(value).lower()}")
    return value


Name = Annotated[str, AfterValidator(check_name)]
WholeNumber = Annotated[int, BeforeValidator(_no_boolean)]


AUTO_WORKERS = 0
MOST_AUTO_WORKERS = 4
KERNELS_FROM_BYTES = 256 * 1024**2
"""The least ``engine.memory`` with compiled kernels: numba's own 110 MB would break the promise of a smaller budget."""


def _workers(value: object) -> object:
    if value == "auto":
        return AUTO_WORKERS
    if isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= 256:
        return value
    raise ValueError(f"should be auto or a whole number from 1 to 256, not {value}")


class EngineSection(Section):
    workers: Annotated[int, BeforeValidator(_workers)] = AUTO_WORKERS
    memory_bytes: PositiveSize = Field(default=512 * 1024**2, alias="memory")
    data_dir: str | None = Field(default=None, min_length=1)
    checkpoint_ns: PositiveDuration = Field(default=10 * 10**9, alias="checkpoint")
    retain_bytes: PositiveSize = Field(default=1024**3, alias="retain")
    forget_outputs: list[str] = Field(default=[])
    explain: bool = True
    kernels: bool = True
    drain_ns: PositiveDuration = Field(default=20 * 10**9, alias="drain")
    python_path: list[str] = Field(default=[], max_length=100)
    stop: Literal["close", "keep", "drop"] | None = None
    share: bool | None = None

    @property
    def shares(self) -> bool:
        """Whether equal boxes are one box. With a data_dir only if asked for: queues on disk belong to single boxes."""
        return self.data_dir is None if self.share is None else self.share

    @property
    def compiles(self) -> bool:
        """Whether kernels are compiled or loaded where numba is installed."""
        return self.kernels and self.memory_bytes >= KERNELS_FROM_BYTES

    @property
    def is_staffed(self) -> bool:
        """Whether the engine itself finds out how many workers pay."""
        return self.workers == AUTO_WORKERS

    @property
    def most_workers(self) -> int:
        """The number of worker threads. With ``auto`` most of them may sleep."""
        return self.workers or max(1, min(MOST_AUTO_WORKERS, len(os.sched_getaffinity(0))))

    @property
    def sure_workers(self) -> int:
        """The number of workers to plan with: ``auto`` uses another one only where it pays."""
        return self.workers or 1

    @property
    def at_stop(self) -> str:
        """What happens to open windows when the daemon stops: close, keep or drop."""
        return self.stop or ("close" if self.data_dir is None else "keep")


def _off(value: object) -> object:
    return None if value == "off" else value


class HttpSection(Section):
    listen: Annotated[Listen | None, BeforeValidator(_off)] = Address("127.0.0.1", 9400)
    hosts: list[str] = Field(default=[], max_length=100)
    config_file: str | None = Field(default=None, min_length=1)
    insecure: bool = False


@dataclass(frozen=True, slots=True)
class TrainSize:
    """How many tuples a box takes at once. The unit of ``amount`` follows from ``rule``: tuples, a share, ns or
    bytes."""

    rule: Literal["auto", "all", "tuples", "fraction", "cost", "memory", "spread"]
    amount: float = 0


def _parse_tuples(value: object) -> int:
    if isinstance(value, int) and not isinstance(value, bool) and value > 0:
        return value
    raise ValueError(f"tuples must be a whole number above 0, not {value}")


_TRAIN_AMOUNTS = {
    "tuples": _parse_tuples,
    "fraction": parse_share,
    "cost": parse_duration_ns,
    "memory": parse_size_bytes,
    "spread": parse_duration_ns,
}


def _parse_train(value: object) -> TrainSize:
    if isinstance(value, TrainSize):
        return value
    if value == "auto" or value == "all":
        return TrainSize("auto" if value == "auto" else "all")
    if isinstance(value, dict) and len(value) == 1:
        [(rule, text)] = value.items()
        if rule in _TRAIN_AMOUNTS:
            amount = _TRAIN_AMOUNTS[rule](text)
            if amount <= 0:
                raise RefusedValueError(f"{rule} must be above 0", at=(rule,))
            return TrainSize(rule, amount)
    words = [value] if isinstance(value, str) else list(value) if isinstance(value, dict) else []
    raise RefusedValueError(
        "a train is auto, all, {tuples: 1000}, {fraction: 20%}, {cost: 1ms}, {memory: 1MiB} or {spread: 10ms}",
        nearest([str(w) for w in words], ["auto", "all", *_TRAIN_AMOUNTS]),
    )


class BatchSection(Section):
    basic_ns: PositiveDuration = Field(default=100 * 10**6, alias="basic")
    k: WholeNumber = Field(default=1, ge=1, le=1_000_000)
    proportional: float = Field(default=1.0, ge=0, allow_inf_nan=False)
    integral: float = Field(default=10.0, ge=0, allow_inf_nan=False)
    interval_ns: Duration = Field(default=0, alias="interval")
    step_ns: Duration = Field(default=50_000, alias="step")
    window: Share = 0.0
    whole: bool = False
    overdue: bool = False
    total: bool = False


class SchedulerSection(Section):
    policy: str = "round_robin"
    unit: Literal["tuple", "box", "superbox", "vpipe"] = "superbox"
    traversal: Literal["min_cost", "min_latency", "min_memory", "auto"] = "auto"
    train: Annotated[InstanceOf[TrainSize], BeforeValidator(_parse_train)] = TrainSize("auto")
    spanner: WholeNumber = Field(default=0, ge=0, le=1_000_000)
    grid: WholeNumber = Field(default=20, ge=1, le=256)
    batch: BatchSection = BatchSection()
    window_worth: bool = False
    tune: list[Literal["grid", "spanner", "controller"]] = Field(default_factory=list)
    idle_fast_path: bool = True

    @model_validator(mode="after")
    def _has_something_to_span(self) -> SchedulerSection:
        if (self.spanner or "spanner" in self.tune) and self.unit != "superbox":
            at = ("spanner",) if self.spanner else ("tune",)
            raise RefusedValueError(f"a spanner is a part of a superbox, but the unit is {self.unit}", at=at)
        return self


class LimitsSection(Section):
    line_bytes: PositiveSize = Field(default=1024**2, alias="line")
    batch_bytes: PositiveSize = Field(default=16 * 1024**2, alias="batch")
    connections: WholeNumber = Field(default=1000, ge=1)
    dead_letters: WholeNumber = Field(default=1000, ge=0)


class LogSection(Section):
    format: Literal["text", "json"] = "text"
    level: Literal["debug", "info", "warning", "error"] = "info"


Option = str | int | float | bool | None


def _check_master(value: str) -> str:
    if value.startswith("sc://"):
        hint = "name the master itself: spark://host:7077, yarn or local[*]"
        raise RefusedValueError(
            "Spark Connect (sc://) is not supported: executors need the files that a driver ships", hint
        )
    return value


class SparkSection(Section):
    master: Annotated[str, AfterValidator(_check_master)] = Field(default="local[*]", min_length=1)
    config: dict[str, Option] = Field(default_factory=dict)
    listen: Annotated[Listen | None, BeforeValidator(_off)] = Address("127.0.0.1", 0)
    token: SecretStr | None = Field(default=None, min_length=1)
    staging: str | None = Field(default=None, min_length=1)
    priority: Literal["auto", "low", "normal"] = "auto"
    insecure: bool = False


class TcpSource(Section):
    tcp: Listen
    format: Format = "ndjson"
    timestamps: Literal["ns", "us", "ms", "s"] = "ns"
    receive_bytes: PositiveSize | None = Field(default=None, alias="receive_buffer")
    insecure: bool = False


def _check_pace(value: str) -> str:
    match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)x", value)
    if value not in ("as_fast", "realtime") and (match is None or float(match[1]) == 0):
        raise RefusedValueError(f"a pace is as_fast, realtime or a speed such as 10x, not '{value}'")
    return value


class SparkSource(Section):
    spark: str = Field(min_length=1)
    path: str | list[str] | None = None
    options: dict[str, Option] = Field(default_factory=dict)
    sql: str | None = None
    pace: Annotated[str, AfterValidator(_check_pace)] = "as_fast"
    order_by: list[str] = Field(default_factory=list)
    increasing: str | None = Field(default=None, min_length=1)
    watch_ns: PositiveDuration | None = Field(default=None, alias="watch")
    bad_rows: str | None = Field(default=None, min_length=1)

    @model_validator(mode="after")
    def _has_what_to_read(self) -> SparkSource:
        if self.path is None and not self.sql and not self.options:
            raise ValueError("a Spark source needs path, sql or options")
        return self


class TcpSink(Section):
    tcp: Listen
    format: Format = "ndjson"
    buffer_bytes: PositiveSize = Field(default=8 * 1024**2, alias="buffer")
    when_slow: Literal["drop", "block", "disconnect"] = "drop"
    timestamps: Literal["iso", "ns", "us", "ms", "s"] = "iso"
    nan: NanForm = "null"
    insecure: bool = False


class SparkSink(Section):
    spark: str = Field(min_length=1)
    path: str | None = None
    every_ns: PositiveDuration = Field(default=10 * 10**9, alias="every")
    partition_by: list[str] = Field(default_factory=list)
    options: dict[str, Option] = Field(default_factory=dict)
    files: WholeNumber = Field(default=1, ge=1, le=1000)
    buffer_bytes: PositiveSize = Field(default=1024**3, alias="buffer")

    @model_validator(mode="after")
    def _has_where_to_write(self) -> SparkSink:
        if self.path is None and self.spark != "aurorad" and not self.options:
            raise ValueError("a Spark sink needs path, or options that name the target")
        return self


_KINDS: dict[str, type[BaseModel] | tuple[type[BaseModel], ...]] = {
    "tcp": (TcpSource, TcpSink),
    "file": (FileSource, FileSink),
    "stdin": StdinSource,
    "stdout": StdoutSink,
    "spark": (SparkSource, SparkSink),
}
"""The word that names a kind of source or sink, and its models."""


def _by_first_word(value: Any) -> str | None:
    """Return the tag of the union arm. It has brackets, because it appears in the paths of errors beside real keys."""
    for word, models in _KINDS.items():
        if isinstance(value, models) or (isinstance(value, dict) and word in value):
            return f"<{word}>"
    return None


_SOURCES = (
    "a source is {tcp: 127.0.0.1:9401, format: ndjson}, {file: trades.ndjson}, {stdin: ndjson} "
    "or {spark: parquet, path: ...}"
)
_SINKS = (
    "a sink is {tcp: 127.0.0.1:9402, format: ndjson}, {file: alerts.ndjson}, {stdout: table} "
    "or {spark: parquet, path: ...}"
)
Source = Annotated[
    Annotated[TcpSource, Tag("<tcp>")]
    | Annotated[FileSource, Tag("<file>")]
    | Annotated[StdinSource, Tag("<stdin>")]
    | Annotated[SparkSource, Tag("<spark>")],
    Discriminator(_by_first_word, custom_error_type="source", custom_error_message=_SOURCES),
]
Sink = Annotated[
    Annotated[TcpSink, Tag("<tcp>")]
    | Annotated[FileSink, Tag("<file>")]
    | Annotated[StdoutSink, Tag("<stdout>")]
    | Annotated[SparkSink, Tag("<spark>")],
    Discriminator(_by_first_word, custom_error_type="sink", custom_error_message=_SINKS),
]

FieldName = Annotated[str, AfterValidator(check_field_name)]
FieldType = Annotated[str, AfterValidator(check_field_type)]


class StreamModel(Section):
    columns: dict[FieldName, FieldType] = Field(alias="schema", min_length=1, max_length=1000)
    time: str | None = None
    order: str | None = None
    slack_ns: Duration = Field(default=0, alias="slack")
    max_skew_ns: PositiveDuration = Field(default=3_600 * 10**9, alias="max_skew")
    idle_ns: Annotated[PositiveDuration | None, BeforeValidator(_off)] = Field(default=None, alias="idle")
    source: Source | None = None
    overload: Literal["shed", "block", "spill"] = "block"
    keep: KeepModel | None = None

    @property
    def is_never_idle(self) -> bool:
        """Tell whether the file says ``idle: off``: the user knows that only tuples and heartbeats move event time."""
        return self.idle_ns is None and "idle_ns" in self.model_fields_set

    @model_validator(mode="after")
    def _check_idle(self) -> StreamModel:
        if self.is_never_idle and self.time is None:
            raise ValueError("idle: off needs time; without it the time of the stream is the clock")
        return self

    def make_schema(self) -> Schema:
        return Schema(tuple(SchemaField.parse(name, text) for name, text in self.columns.items()))


class BoxEntry(BaseModel):
    """A box as written in the file. ``model_extra`` has its kind with its inputs, and the parameters of the kind."""

    model_config = ConfigDict(extra="allow", frozen=True, defer_build=True)

    cost_ns: Cost | None = Field(default=None, alias="cost")
    selectivity: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    keep: KeepModel | None = None


class OutputModel(Section):
    from_: str = Field(alias="from", min_length=1)
    qos: QoSModel = QoSModel()
    sink: Sink | None = None
    start: Start | None = None
    paused: bool = False


class AdmissionSection(Section):
    min_utility: float | None = Field(default=None, ge=0.0, le=1.0)


class NetworkFile(Section):
    """The whole file."""

    engine: EngineSection = EngineSection()
    http: HttpSection = HttpSection()
    scheduler: SchedulerSection = SchedulerSection()
    limits: LimitsSection = LimitsSection()
    log: LogSection = LogSection()
    spark: SparkSection = SparkSection()
    access: AccessSection = AccessSection()
    admission: AdmissionSection = AdmissionSection()
    streams: dict[Name, StreamModel] = Field(default_factory=dict)
    boxes: dict[Name, BoxEntry] = Field(default_factory=dict)
    outputs: dict[Name, OutputModel] = Field(default_factory=dict)

    @property
    def spark_port(self) -> Address | None:
        """Where Spark's executors and readers connect. Nobody needs the port where neither ``spark`` nor a source or
        sink of Spark is in the file: then it stays closed."""
        ends = [*(s.source for s in self.streams.values()), *(o.sink for o in self.outputs.values())]
        is_used = "spark" in self.model_fields_set or any(isinstance(end, SparkSource | SparkSink) for end in ends)
        return self.spark.listen if is_used else None


__all__ = [
    "AccessSection",
    "BatchSection",
    "BoxEntry",
    "EngineSection",
    "FileSink",
    "FileSource",
    "HttpSection",
    "KeepModel",
    "LimitsSection",
    "LogSection",
    "NetworkFile",
    "OutputModel",
    "QoSModel",
    "SchedulerSection",
    "SparkSection",
    "SparkSink",
    "SparkSource",
    "StdinSource",
    "StdoutSink",
    "StreamModel",
    "TcpSink",
    "TcpSource",
    "TlsSection",
    "TrainSize",
    "UserModel",
]
