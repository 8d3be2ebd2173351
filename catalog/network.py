"""The network: streams, boxes, arcs and outputs, numbered, checked and frozen.

A network is built once from a network file (``catalog/config``) and never changes: a live change makes a new network of
the next version. Everything that runs is addressed by number, so the hot path indexes arrays. The number of a box also
breaks ties. Names are for people, metrics and errors.

Boxes are numbered in topological order: the number of a box is above those of all boxes that feed it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar, Protocol

from pydantic import BaseModel

from catalog.loss import UnderLoss
from catalog.qos import QoS
from catalog.schema import Schema


class BoxProtocol(Protocol):
    """The part of a box that the catalog needs; the whole is in ``engine/operators/boxes/base.py``."""

    kind: ClassVar[str]
    parameters_model: ClassVar[type[BaseModel]]
    input_prefixes: ClassVar[tuple[str, ...]]  # of the fields of each input in expressions, such as l. and r.
    min_inputs: ClassVar[int]
    max_inputs: ClassVar[int]
    needs_time: ClassVar[bool]

    @classmethod
    def ports(cls, parameters: Any) -> tuple[str, ...]:
        """Return the names of the output ports; the default port is named ``""``."""

    def __init__(self, parameters: Any) -> None: ...

    def bind(self, inputs: tuple[Schema, ...], times: tuple[str | None, ...]) -> tuple[Schema, ...]:
        """Compile against the input schemas; return the schema of each output port. Raises BindError."""

    def runs_behind(self, inputs: tuple[bool, ...]) -> bool:
        """Tell whether results may come out behind later ones, down to the watermark; called after ``bind``."""

    def time_out(self, times: tuple[str | None, ...]) -> tuple[str | None, ...]:
        """Return the event-time field of each output port."""

    @classmethod
    def may_share(cls, parameters: Any) -> bool:
        """Return whether two boxes with these parameters and the same inputs may be one."""

    def under_loss(self, port: int = 0) -> UnderLoss:
        """Return the kind of answer that the box gives when a part of its input is missing (``catalog/loss.py``)."""

    def unbounded(self) -> str:
        """Return why the error of approximate results has no bound; "" if it has one."""

    def keeps(self, field: str) -> bool:
        """Return whether tuples leave the box with this field unchanged."""

    def waits_for_time(self) -> bool:
        """Return whether results wait until a watermark passes, and nothing else frees them."""


Kinds = Mapping[str, type[BoxProtocol]]


@dataclass(frozen=True, slots=True)
class Stream:
    """An input of the network."""

    number: int
    name: str
    schema: Schema
    arcs: tuple[int, ...]  # where its tuples go
    time_field: str | None  # the field with the event time; None: the time of arrival
    slack_ns: int
    overload: str  # shed | block | spill
    source: Any  # the source's model from the network file, None for a stream that only code feeds
    options: Any = None  # the whole stream model, for keys that only one component reads


@dataclass(frozen=True, slots=True)
class PortRef:
    """The origin of tuples: a stream, or a port of a box."""

    stream: int | None = None
    box: int | None = None
    port: int = 0


@dataclass(frozen=True, slots=True)
class KeptPlace:
    """A connection point: a stream, or a port of a box, whose tuples are kept as history."""

    name: str  # "trades", "vwap", "split.nyse"
    source: PortRef
    schema: Schema
    time_field: str | None  # None: the time of arrival
    slack_ns: int  # of the stream; 0 for a box
    for_ns: int | None  # older tuples may go
    size_bytes: int  # the oldest go when there are more bytes


@dataclass(frozen=True, slots=True)
class Arc:
    """An arrow. An arc to a box is a queue. An arc to an output is direct: the router delivers, nothing waits."""

    number: int
    name: str  # "trades->big", "split.nyse->paired.0"
    source: PortRef
    schema: Schema
    box: int | None = None  # the consumer ...
    port: int = 0  # ... and its input port
    output: int | None = None
    timed: bool = False  # a box behind it needs event time: watermarks travel on the arc
    time_field: str | None = None  # event time of its tuples; None: arrival time; "": a box before it dropped the field


@dataclass(frozen=True, slots=True)
class BoxNode:
    """A box in the network. ``box`` is the bound definition, immutable; the state at run time is elsewhere."""

    number: int
    name: str
    kind: str
    box: Any  # a bound Box of engine/operators/boxes/base.py
    in_arcs: tuple[int, ...]  # by input port
    out_arcs: tuple[tuple[int, ...], ...]  # by output port
    ports: tuple[str, ...]
    in_schemas: tuple[Schema, ...]
    out_schemas: tuple[Schema, ...]
    cost_ns: float | None = None  # declared by the user; seeds the statistics
    selectivity: float | None = None
    also: tuple[str, ...] = ()  # other names: boxes of the file that are equal to this one (``catalog/share.py``)

    @property
    def names(self) -> tuple[str, ...]:
        return (self.name, *self.also)


@dataclass(frozen=True, slots=True)
class Output:
    """An output of the network."""

    number: int
    name: str
    schema: Schema
    arc: int
    qos: QoS
    sink: Any  # the sink's model, None for an output that only code reads
    start: Any = None  # catalog.config.history.StartPoint: where in the history of its inputs it starts; None: now
    paused: bool = False  # it gets no tuples (``catalog/pause.py``)


@dataclass(frozen=True)
class Network:
    """Immutable and versioned. ``config`` is the whole network file as models. ``declared`` has what each box of the
    file reads, as it is written there, before equal boxes became one; in topological order."""

    streams: tuple[Stream, ...]
    boxes: tuple[BoxNode, ...]
    arcs: tuple[Arc, ...]
    outputs: tuple[Output, ...]
    config: Any = None
    version: int = 1
    warnings: tuple[Any, ...] = field(default=(), compare=False)
    declared: Mapping[str, tuple[str, ...]] = field(default_factory=dict, compare=False)
    drafts: Mapping[str, Any] = field(default_factory=dict, compare=False, repr=False)  # for the next network's builder
    kept: tuple[KeptPlace, ...] = ()

    def stream(self, name: str) -> Stream:
        return self._streams[name]

    def find_stream(self, name: str) -> Stream | None:
        return self._streams.get(name)

    def box(self, name: str) -> BoxNode:
        return self._boxes[name]

    def find_box(self, name: str) -> BoxNode | None:
        """Return the box with this name, which may be one of its other names."""
        return self._boxes.get(name)

    def output(self, name: str) -> Output:
        return self._outputs[name]

    def consumers(self, arcs: Sequence[int]) -> list[int]:
        """Return the boxes that these arcs feed, each once, in order."""
        return list(dict.fromkeys(b for a in arcs if (b := self.arcs[a].box) is not None))

    def arcs_behind(self, arcs: Sequence[int]) -> list[int]:
        """Return these arcs and all arcs that their tuples can reach, each once."""
        found: dict[int, None] = {}
        ahead = list(arcs)
        while ahead:
            arc = ahead.pop()
            if arc not in found:
                found[arc] = None
                box = self.arcs[arc].box
                ahead += [] if box is None else [a for out in self.boxes[box].out_arcs for a in out]
        return list(found)

    @cached_property
    def feeders(self) -> tuple[tuple[int, ...], ...]:
        """By box: the boxes that feed it, in the order of its input ports."""
        return tuple(
            tuple(dict.fromkeys(b for a in n.in_arcs if (b := self.arcs[a].source.box) is not None)) for n in self.boxes
        )

    @cached_property
    def fed(self) -> tuple[tuple[int, ...], ...]:
        """By box: the boxes that it feeds."""
        return tuple(tuple(self.consumers([a for arcs in n.out_arcs for a in arcs])) for n in self.boxes)

    @cached_property
    def box_outputs(self) -> tuple[tuple[int, ...], ...]:
        """By box: the outputs that its tuples can reach, ascending."""
        reach: list[set[int]] = [set() for _ in self.boxes]
        for node in reversed(self.boxes):
            for arcs in node.out_arcs:
                for a in arcs:
                    arc = self.arcs[a]
                    if arc.output is not None:
                        reach[node.number].add(arc.output)
                    elif arc.box is not None:
                        reach[node.number] |= reach[arc.box]
        return tuple(tuple(sorted(r)) for r in reach)

    @cached_property
    def kept_sources(self) -> frozenset[PortRef]:
        """Where history is kept."""
        return frozenset(place.source for place in self.kept)

    @cached_property
    def _streams(self) -> dict[str, Stream]:
        return {s.name: s for s in self.streams}

    @cached_property
    def _boxes(self) -> dict[str, BoxNode]:
        return {name: b for b in self.boxes for name in b.names}

    @cached_property
    def _outputs(self) -> dict[str, Output]:
        return {o.name: o for o in self.outputs}
