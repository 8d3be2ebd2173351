"""The front: the row-wise boxes before the first kernel as Spark SQL, and the rows of all lanes in one pass.

A batch comes as one frame with the tuples of all streams: the number of the stream, and columns of its own for each
stream, NULL for the tuples of the others. A box of the front adds columns to the frame: whether the tuple is alive
behind it, and the fields that it computes. Catalyst makes one projection of all of them. Refused: a branch of the plan
for each stream and lane, with a union behind them. Spark would read the sources once for each branch.

A place behind which tuples come by several ways (a union) has several forms, each with its own columns.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from catalog.network import BoxNode, Network, PortRef, Stream
from catalog.schema import Type
from engine.on_spark.lanes import LANE, SHARD, lay_out
from engine.on_spark.plan import Lane, ShardKey, SparkPlan
from engine.on_spark.same_text import spark_text

STREAM = "__stream"
MOST_US = (2**63 - 1) // 1_000
CLOCK = "aurorad_clock"  # the name of what is observed of a batch


def column_of(stream: Stream, field: int) -> str:
    """Return the column of a field in the frame of a batch."""
    return f"__f{stream.number}_{field}"


@dataclass(frozen=True)
class Form:
    """Tuples at one place of the front: the stream from which they come, the column that says whether a tuple is alive
    there, and the column of each field."""

    stream: int
    alive: str
    columns: dict[str, str]


class Front:
    """Constant after its making."""

    def __init__(self, plan: SparkPlan, shards: int) -> None:
        self._plan = plan
        self._network: Network = plan.network
        self._lanes = plan.stages[0].lanes
        self._is_sharded = plan.stages[0].is_sharded
        self._shards = shards
        self._layout = lay_out([lane.schema for lane in self._lanes])

    def rows(self, frame: Any, now_ns: int) -> Any:
        """Return the rows of the first stage's lanes, from the frame of a batch."""
        from pyspark.sql.functions import expr

        made = _Columns(self._observed(frame, now_ns))
        forms: dict[PortRef, list[Form]] = {}
        for stream in self._network.streams:
            columns = {f.name: column_of(stream, i) for i, f in enumerate(stream.schema)}
            alive = made.add(f"{STREAM} = {stream.number} and {sound(stream, now_ns)}")
            forms[PortRef(stream=stream.number)] = [Form(stream.number, alive, columns)]
        for placed in self._plan.placed:
            if placed.stage is None:
                self._add_box(made, placed.node, forms)
        ways = [(lane, form) for lane in self._lanes for form in forms[lane.source]]
        rows = self._rows(made.frame, ways)
        if not self._is_sharded:
            return rows
        return rows.repartitionById(self._shards, expr(SHARD))

    # -- the clock -----------------------------------------------------------------------------------------------------

    def _observed(self, frame: Any, now_ns: int) -> Any:
        """Let Spark note, while it reads the batch, what the streams have and how far their event time is."""
        from pyspark.sql.functions import expr

        noted = []
        for stream in self._network.streams:
            mine = f"{STREAM} = {stream.number}"
            good = f"{mine} and {sound(stream, now_ns)}"
            noted += [
                expr(f"count_if({mine})").alias(f"all_{stream.number}"),
                expr(f"count_if({good})").alias(f"good_{stream.number}"),
                expr(f"max(case when {good} then {_event_us(stream)} end)").alias(f"newest_{stream.number}"),
            ]
        return frame.observe(CLOCK, *noted)

    # -- boxes ---------------------------------------------------------------------------------------------------------

    def _add_box(self, made: _Columns, node: BoxNode, forms: dict[PortRef, list[Form]]) -> None:
        inputs = [forms[self._network.arcs[arc].source] for arc in node.in_arcs]
        ports = [PortRef(box=node.number, port=port) for port in range(len(node.ports))]
        if node.kind == "union":
            forms[ports[0]] = [form for of_input in inputs for form in of_input]
            return
        for port in ports:
            forms[port] = []
        for form in inputs[0]:
            for port, out in zip(ports, _behind(made, node, form), strict=True):
                forms[port].append(out)

    # -- rows ----------------------------------------------------------------------------------------------------------

    def _rows(self, frame: Any, ways: list[tuple[Lane, Form]]) -> Any:
        """Return a row for each tuple and way that is alive."""
        if not ways:
            return frame.selectExpr(*self._row(None, None)).where("false")
        if len(ways) == 1:
            return frame.where(ways[0][1].alive).selectExpr(*self._row(*ways[0]))
        parts = []
        for lane, form in ways:
            fields = ", ".join(text.replace(" as ", " as ", 1) for text in self._row(lane, form))
            parts.append(f"case when {form.alive} then struct({fields}) end")
        if len({form.stream for _, form in ways}) == len(ways):  # a tuple goes at most one way
            return frame.selectExpr(f"coalesce({', '.join(parts)}) as row").where("row is not null").select("row.*")
        return frame.selectExpr(f"inline(array_compact(array({', '.join(parts)})))")

    def _row(self, lane: Lane | None, form: Form | None) -> list[str]:
        values = ["null"] * len(self._layout.types)
        if lane is not None and form is not None:
            for field, slot in zip(lane.schema, self._layout.slots[lane.number], strict=True):
                column = form.columns[field.name]
                values[slot] = f"unix_micros({column})" if field.type is Type.TIMESTAMP else column
        number, shard = (0, "0") if lane is None or form is None else (lane.number, self._shard(lane, form))
        return [
            f"{number} as {LANE}",
            f"cast({shard} as int) as {SHARD}",
            *(
                f"cast({value} as {kind}) as {self._layout.name(slot)}"
                for slot, (value, kind) in enumerate(zip(values, self._layout.types, strict=True))
            ),
        ]

    def _shard(self, lane: Lane, form: Form) -> str:
        key = lane.shard
        if key is None:
            return f"pmod(monotonically_increasing_id(), {self._shards})" if self._is_sharded else "0"
        if not key.parts:
            return "0"
        return f"pmod(xxhash64({', '.join(_hashed(key, form))}), {self._shards})"


class _Columns:
    """The frame of a batch and the columns that boxes have added to it."""

    def __init__(self, frame: Any) -> None:
        self.frame = frame
        self._count = 0

    def add(self, text: str, fields: dict[str, str] | None = None) -> str:
        """Add a column, computed from columns of the frame or, by the names of ``fields``, from those of a form."""
        from pyspark.sql.functions import col, expr

        self._count += 1
        name = f"__p{self._count}"
        if fields is None:
            self.frame = self.frame.withColumn(name, expr(text))
            return name
        shown = self.frame.select(*self.frame.columns, *(col(column).alias(field) for field, column in fields.items()))
        self.frame = shown.select(*self.frame.columns, expr(text).alias(name))
        return name


def _behind(made: _Columns, node: BoxNode, form: Form) -> list[Form]:
    """Return the form of tuples behind a box, by port."""
    p = node.box.parameters
    if node.kind == "filter":
        true = made.add(f"coalesce({spark_text(p.where)}, false)", form.columns)
        return [Form(form.stream, made.add(f"{form.alive} and {true}"), form.columns)]
    if node.kind == "map":
        texts = p.select or {**dict.fromkeys(form.columns, ""), **p.add}
        columns = {name: made.add(spark_text(text), form.columns) if text else form.columns[name]
                   for name, text in texts.items()}  # fmt: skip
        types = {f.name: f.type for f in node.out_schemas[0]}
        cast = {name: made.add(f"cast({column} as {types[name]})") if texts[name] else column
                for name, column in columns.items()}  # fmt: skip
        return [Form(form.stream, form.alive, cast)]
    assert node.kind == "case"
    out, taken = [], "false"
    for text in p.when.values():
        true = made.add(f"coalesce({spark_text(text)}, false)", form.columns)
        out.append(Form(form.stream, made.add(f"{form.alive} and {true} and not ({taken})"), form.columns))
        taken = f"{taken} or {true}"
    if p.otherwise:
        out.append(Form(form.stream, made.add(f"{form.alive} and not ({taken})"), form.columns))
    return out


def sound(stream: Stream, now_ns: int) -> str:
    """Return the condition under which the daemon would admit a tuple: no NULL where none may be, no time that 64 bits
    of nanoseconds cannot hold, and none too far ahead."""
    parts = [f"{column_of(stream, i)} is not null" for i, f in enumerate(stream.schema) if not f.nullable]
    for i, f in enumerate(stream.schema):
        if f.type is Type.TIMESTAMP:
            inside = f"unix_micros({column_of(stream, i)}) between {-MOST_US}L and {MOST_US}L"
            parts.append(f"({column_of(stream, i)} is null or {inside})" if f.nullable else inside)
    if stream.time_field is not None:
        limit_us = (now_ns + stream.options.max_skew_ns) // 1_000
        parts.append(f"{_event_us(stream)} <= {limit_us}L")
    return f"({' and '.join(parts or ['true'])})"


def _event_us(stream: Stream) -> str:
    if stream.time_field is None:
        return "cast(null as bigint)"
    return f"unix_micros({column_of(stream, stream.schema.index(stream.time_field))})"


def _hashed(key: ShardKey, form: Form) -> list[str]:
    """Return the parts of a key so that equal ones have equal bits: -0.0 as 0.0, one NaN."""
    out = []
    for name, kind in zip(key.fields, key.types, strict=True):
        assert name is not None
        column = form.columns[name]
        if kind in (Type.FLOAT, Type.DOUBLE):
            column = f"case when isnan({column}) then double('NaN') else cast({column} as double) + 0.0D end"
        out.append(column)
    return out
