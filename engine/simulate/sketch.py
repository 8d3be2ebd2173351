"""Networks drawn in code, for experiments: boxes of given cost and selectivity, without a network file.

Every box is a universal box, which really spends its cost when the engine runs it. To the scheduler a box with several
inputs is a union, unless its kind says that it is a join.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from catalog.network import Arc, BoxNode, Network, Output, PortRef, Stream
from catalog.qos import QoS
from catalog.schema import Schema
from engine.operators.boxes.universal import Universal, UniversalParameters

SCHEMA = Schema.of(seq="bigint", value="double")


class SketchInput(NamedTuple):
    """The source of tuples: a stream or a port of a box, by its place in the sketch."""

    stream: int | None = None
    box: int | None = None
    port: int = 0


@dataclass
class _Box:
    name: str
    kind: str
    inputs: tuple[SketchInput, ...]
    cost_ns: float
    selectivity: float
    call_ns: float


@dataclass
class NetworkSketch:
    """Draw from the streams on. A box only has inputs that exist already, so the numbers are in topological order."""

    _streams: list[str] = field(default_factory=list)
    _boxes: list[_Box] = field(default_factory=list)
    _outputs: list[tuple[str, SketchInput, QoS]] = field(default_factory=list)

    def stream(self, name: str = "") -> SketchInput:
        self._streams.append(name or f"s{len(self._streams)}")
        return SketchInput(stream=len(self._streams) - 1)

    def box(
        self,
        *inputs: SketchInput,
        cost_ns: float = 1_000.0,
        selectivity: float = 1.0,
        call_ns: float = 0.0,
        name: str = "",
        kind: str = "",
    ) -> SketchInput:
        kind = kind or ("universal" if len(inputs) == 1 else "union")
        self._boxes.append(_Box(name or f"b{len(self._boxes)}", kind, inputs, cost_ns, selectivity, call_ns))
        return SketchInput(box=len(self._boxes) - 1)

    def chain(self, start: SketchInput, length: int, cost_ns: float = 1_000.0, selectivity: float = 1.0) -> SketchInput:
        for _ in range(length):
            start = self.box(start, cost_ns=cost_ns, selectivity=selectivity)
        return start

    def output(self, tap: SketchInput, qos: QoS | None = None, name: str = "") -> None:
        self._outputs.append((name or f"out{len(self._outputs)}", tap, qos or QoS()))

    def network(self) -> Network:
        arcs: list[Arc] = []
        for i, box in enumerate(self._boxes):
            for port, tap in enumerate(box.inputs):
                name = f"{self._name(tap)}->{box.name}" + (f".{port}" if len(box.inputs) > 1 else "")
                arcs.append(Arc(len(arcs), name, PortRef(*tap), SCHEMA, box=i, port=port))
        for i, (name, tap, _) in enumerate(self._outputs):
            arcs.append(Arc(len(arcs), f"{self._name(tap)}->{name}", PortRef(*tap), SCHEMA, output=i))
        leaving: dict[PortRef, list[int]] = {}
        entering: dict[int, list[int]] = {}
        for arc in arcs:
            leaving.setdefault(arc.source, []).append(arc.number)
            if arc.box is not None:
                entering.setdefault(arc.box, []).append(arc.number)
        return Network(
            streams=tuple(
                Stream(i, name, SCHEMA, tuple(leaving.get(PortRef(stream=i), ())), None, 0, "block", None)
                for i, name in enumerate(self._streams)
            ),
            boxes=tuple(
                self._node(i, box, tuple(entering[i]), tuple(leaving.get(PortRef(box=i), ())))
                for i, box in enumerate(self._boxes)
            ),
            arcs=tuple(arcs),
            outputs=tuple(
                Output(i, name, SCHEMA, len(arcs) - len(self._outputs) + i, qos, None)
                for i, (name, _, qos) in enumerate(self._outputs)
            ),
        )

    def _node(self, number: int, box: _Box, in_arcs: tuple[int, ...], out_arcs: tuple[int, ...]) -> BoxNode:
        parameters = UniversalParameters.model_construct(
            cost=round(box.cost_ns), call_cost=round(box.call_ns), selectivity=box.selectivity
        )
        return BoxNode(
            number=number,
            name=box.name,
            kind=box.kind,
            box=Universal(parameters),
            in_arcs=in_arcs,
            out_arcs=(out_arcs,),
            ports=("",),
            in_schemas=(SCHEMA,) * len(in_arcs),
            out_schemas=(SCHEMA,),
            cost_ns=box.cost_ns,
            selectivity=box.selectivity,
        )

    def _name(self, tap: SketchInput) -> str:
        return self._boxes[tap.box].name if tap.box is not None else self._streams[tap.stream or 0]
