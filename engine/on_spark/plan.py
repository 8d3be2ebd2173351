"""Decide where each box of a network runs on Spark. Pure: a network in, a plan out.

**The front.** filter, case, map and union that nothing of ours stands before run as Spark SQL, with the same text
(``same_text``).

**Stages.** Every other box is a kernel: the very code of the daemon, in a Python worker of Spark. A stage is a group of
kernels between two shuffles. The tuples of a stage are divided into shards by key, and a shard has its own state. A box
joins the stage of the boxes that feed it if they have divided the tuples by a part of its key; else it begins the next
stage. A box without a key has one shard for all.

**Stage 0** is there when the front cannot do a row-wise box, or cannot compute a key. It has no state, so nothing is
shuffled before it.

A lane is the way of tuples into a stage (``lanes``). Tuples that a later stage needs pass the stages before it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from catalog.network import BoxNode, Network, PortRef
from catalog.schema import Schema, Type
from engine.on_spark.refusals import Remark, goes_by_arrival, remarks_on
from engine.on_spark.same_text import why_not_sql
from engine.operators.boxes.keyed import KeyedBox

SQL_KINDS = ("filter", "case", "map", "union")


@dataclass(frozen=True)
class ShardKey:
    """By what a lane is divided: the key of an input of a box, or some of its parts. No parts: one shard for all."""

    box: int
    port: int
    parts: tuple[int, ...]
    fields: tuple[str | None, ...]  # of those parts; None where it is computed
    types: tuple[Type, ...]

    @property
    def is_plain(self) -> bool:
        return None not in self.fields

    @property
    def sign(self) -> tuple[object, ...]:
        """Equal for two keys that divide tuples in the same way."""
        return (self.fields, self.types) if self.is_plain else (self.box, self.port, self.parts)


@dataclass
class Way:
    """Where tuples go: inputs of boxes in the same stage, outputs, and lanes of the next stage."""

    inputs: list[tuple[int, int]] = field(default_factory=list)
    outputs: list[int] = field(default_factory=list)
    lanes: list[int] = field(default_factory=list)


@dataclass
class Lane:
    """The way of tuples into a stage. ``number`` counts within the stage."""

    stage: int
    number: int
    source: PortRef
    schema: Schema
    shard: ShardKey | None  # None: any shard
    order: str | None = None  # the field that says the order of arrival
    way: Way = field(default_factory=Way)


@dataclass
class Stage:
    number: int
    boxes: list[BoxNode] = field(default_factory=list)
    lanes: list[Lane] = field(default_factory=list)
    ways: dict[tuple[int, int], Way] = field(default_factory=dict)  # by box and output port

    @property
    def is_sharded(self) -> bool:
        return self.number > 0


@dataclass(frozen=True)
class PlacedBox:
    """One box. ``stage`` is None for Spark SQL. ``parts`` of its key say the shard; None for a box without state."""

    node: BoxNode
    stage: int | None
    parts: tuple[int, ...] | None = None
    why: str = ""

    def describe(self) -> str:
        if self.stage is None:
            return "Spark SQL, the same text"
        if self.parts is None:
            return f"our kernel, stage {self.stage}" + (f" ({self.why})" if self.why else "")
        if not self.parts:
            return f"our kernel, stage {self.stage}, one shard for all"
        names = [self.node.box.key_fields(0)[part] or "a computed key" for part in self.parts]
        return f"our kernel, stage {self.stage}, shards by {', '.join(names)}"


@dataclass(frozen=True)
class SparkPlan:
    network: Network
    placed: tuple[PlacedBox, ...]  # by box
    stages: tuple[Stage, ...]
    remarks: tuple[Remark, ...]

    @property
    def refusals(self) -> list[Remark]:
        return [remark for remark in self.remarks if not remark.is_warning]


@dataclass(frozen=True)
class _Port:
    """What is known of the tuples at a port: their stage (None: the front), and the fields that say their shard."""

    stage: int | None
    held: tuple[str | None, ...] | None = None  # None: any shard
    order: str | None = None  # the field that says the order of arrival, where tuples are as they came


def make_plan(network: Network) -> SparkPlan:
    planner = _Planner(network)
    for node in network.boxes:
        planner.place(node)
    planner.lay_lanes()
    return SparkPlan(
        network, tuple(planner.placed), tuple(planner.stages.values()), tuple(remarks_on(network, planner.unordered))
    )


class _Planner:
    def __init__(self, network: Network) -> None:
        self.network = network
        self.placed: list[PlacedBox] = []
        self.ports: dict[PortRef, _Port] = {}
        self.stages: dict[int, Stage] = {}
        self._known: dict[tuple[object, ...], Lane] = {}
        self.unordered: list[BoxNode] = []  # go by the order of arrival, and nothing says it
        for stream in network.streams:
            self.ports[PortRef(stream=stream.number)] = _Port(None, order=getattr(stream.options, "order", None))

    # -- where a box runs ----------------------------------------------------------------------------------------------

    def place(self, node: BoxNode) -> None:
        inputs = [self.ports[self.network.arcs[a].source] for a in node.in_arcs]
        if isinstance(node.box, KeyedBox) or node.box.needs_time or node.kind not in SQL_KINDS:
            self._place_state(node, inputs)
            return
        why = "a box before it is ours" if any(p.stage is not None for p in inputs) else _why_not(node)
        order = _order_behind(node, inputs)
        if not why:
            self._add(node, None, None, [_Port(None, order=order)] * len(node.ports))
            return
        stage = max((p.stage for p in inputs if p.stage is not None), default=0)
        same = {p.held for p in inputs} if all(p.stage == stage for p in inputs) else set()
        held = same.pop() if len(same) == 1 else None
        if held is not None and node.kind == "map":
            renamed = tuple(None if name is None else node.box.name_after(name) for name in held)
            held = None if None in renamed else renamed
        self._add(node, stage, None, [_Port(stage, held, order)] * len(node.ports), why)

    def _place_state(self, node: BoxNode, inputs: Sequence[_Port]) -> None:
        keys = _keys(node)
        if goes_by_arrival(node) and any(p.order is None for p in inputs):
            self.unordered.append(node)
        ours = [p for p in inputs if p.stage is not None]
        stage = max((p.stage or 0 for p in ours), default=0)
        parts = self._same_shards(stage, inputs, keys) if stage > 0 else None
        if parts is None:
            stage, parts = stage + 1, tuple(range(len(keys[0]))) if keys else ()
        order = _order_behind(node, inputs)
        ports = [_Port(stage, _held(node, parts, port), order) for port in range(len(node.ports))]
        self._add(node, stage, parts, ports)

    @staticmethod
    def _same_shards(
        stage: int, inputs: Sequence[_Port], keys: Sequence[Sequence[str | None]]
    ) -> tuple[int, ...] | None:
        """Return the parts of the key by which the tuples of all inputs are divided already; None if they are not."""
        found: set[tuple[int, ...]] = set()
        for port, at in enumerate(inputs):
            if at.stage is None:
                continue  # the front divides by any key
            if at.stage != stage or at.held is None or (at.held and not keys):
                return None
            key = list(keys[port]) if keys else []
            if any(name is None or name not in key for name in at.held):
                return None
            found.add(tuple(key.index(name) for name in at.held))
        return found.pop() if len(found) == 1 else None

    def _add(
        self, node: BoxNode, stage: int | None, parts: tuple[int, ...] | None, ports: Sequence[_Port], why: str = ""
    ) -> None:
        self.placed.append(PlacedBox(node, stage, parts, why))
        if stage is not None:
            self._stage(stage).boxes.append(node)
        for number, port in enumerate(ports):
            self.ports[PortRef(box=node.number, port=number)] = port

    def _stage(self, number: int) -> Stage:
        if number not in self.stages:
            self.stages[number] = Stage(number)
        return self.stages[number]

    # -- how tuples get there ------------------------------------------------------------------------------------------

    def lay_lanes(self) -> None:
        if not self.stages or self._needs_stage_0():
            self._stage(0)
        self.stages = {number: self._stage(number) for number in range(min(self.stages), max(self.stages) + 1)}
        for node in self.network.boxes:
            for port, arc in enumerate(node.in_arcs):
                stage = self.placed[node.number].stage
                if stage is not None:
                    self._way(self.network.arcs[arc].source, stage, self._shard_key(node, port)).inputs.append(
                        (node.number, port)
                    )
        for output in self.network.outputs:
            source = self.network.arcs[output.arc].source
            if output.sink is not None:
                stage = self.ports[source].stage
                self._way(source, min(self.stages) if stage is None else stage, None).outputs.append(output.number)

    def _needs_stage_0(self) -> bool:
        """Tell whether the front would have to compute a key that is more than fields."""
        for node in self.network.boxes:
            if self.placed[node.number].stage == 1:
                for port, arc in enumerate(node.in_arcs):
                    key = self._shard_key(node, port)
                    if self.ports[self.network.arcs[arc].source].stage is None and key and not key.is_plain:
                        return True
        return False

    def _shard_key(self, node: BoxNode, port: int) -> ShardKey | None:
        parts = self.placed[node.number].parts
        if parts is None:
            return None
        if not parts:
            return ShardKey(node.number, port, (), (), ())
        fields = tuple(node.box.key_fields(port)[part] for part in parts)
        kinds = tuple(node.in_schemas[port][name].type for name in fields if name is not None)
        return ShardKey(node.number, port, parts, fields, kinds)

    def _way(self, source: PortRef, stage: int, shard: ShardKey | None) -> Way:
        """Return where tuples of a port go in a stage; lay the lanes that lead there."""
        begun = self.ports[source].stage
        if begun == stage and source.box is not None:
            return self._own_way(source, stage)
        way = None if begun is None or source.box is None else self._own_way(source, begun)
        for number in range(min(self.stages) if begun is None else begun + 1, stage + 1):
            lane = self._lane(source, number, shard if number == stage else None, way)
            way = lane.way
        assert way is not None
        return way

    def _own_way(self, source: PortRef, stage: int) -> Way:
        assert source.box is not None
        return self._stage(stage).ways.setdefault((source.box, source.port), Way())

    def _lane(self, source: PortRef, stage: int, shard: ShardKey | None, before: Way | None) -> Lane:
        sign = (source, stage, None if shard is None else shard.sign)
        lane = self._known.get(sign)
        if lane is None:
            lanes = self._stage(stage).lanes
            order = self.ports[source].order
            lane = self._known[sign] = Lane(stage, len(lanes), source, self._schema(source), shard, order)
            lanes.append(lane)
            if before is not None:
                before.lanes.append(lane.number)
        return lane

    def _schema(self, source: PortRef) -> Schema:
        if source.stream is not None:
            return self.network.streams[source.stream].schema
        assert source.box is not None
        return self.network.boxes[source.box].out_schemas[source.port]


def _order_behind(node: BoxNode, inputs: Sequence[_Port]) -> str | None:
    """Return the field that says the order of arrival behind a box that lets tuples pass as they came; else None."""
    names = {port.order for port in inputs}
    order = names.pop() if len(names) == 1 else None
    if order is None or node.kind not in (*SQL_KINDS, "dedup", "latest") or node.box.waits_for_time():
        return None
    after: str | None = node.box.name_after(order) if node.kind == "map" else order
    return after


def _keys(node: BoxNode) -> list[tuple[str | None, ...]]:
    """Return the key of each input; empty for a box that needs all tuples in one place."""
    box = node.box
    if not isinstance(box, KeyedBox) or not box.is_divisible or not box.key_fields(0):
        return []
    return [box.key_fields(port) for port in range(len(node.in_arcs))]


def _held(node: BoxNode, parts: tuple[int, ...], port: int) -> tuple[str | None, ...] | None:
    """Return the fields of an output that say the shard of a tuple; None when it has lost one."""
    if not parts:
        return ()
    names = node.box.key_names(port)
    held = tuple(names[part] for part in parts)
    return None if None in held else held


def _why_not(node: BoxNode) -> str:
    """Return why Spark SQL might compute a row-wise box in another way; empty when it cannot."""
    p = node.box.parameters
    texts: list[str] = []
    if node.kind == "filter":
        texts = [p.where]
    elif node.kind == "case":
        texts = list(p.when.values())
    elif node.kind == "map":
        texts = list((p.select or p.add).values())
    for text in texts:
        if why := why_not_sql(text, node.in_schemas[0]):
            return why
    return ""
