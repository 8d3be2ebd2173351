"""The network as plain data for ``/api/v1/network``, and the tap places: where tuples can be watched.

Streams, boxes and outputs share one namespace. A tap place is a stream, an arc or an output. The name of a box stands
for its output, ``box.port`` for one of its ports.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from pydantic import BaseModel

from catalog.network import Arc, BoxNode, Network, Output, Stream
from catalog.qos import QoS, QoSGraph
from catalog.schema import Schema


@dataclass(frozen=True, slots=True)
class TapPlace:
    """A place where tuples can be watched. ``number`` is that of the stream, of the output, or of an arc to a box."""

    kind: Literal["stream", "arc", "output"]
    number: int
    name: str
    schema: Schema


def network_json(network: Network) -> dict[str, Any]:
    """Return the answer of ``/api/v1/network``."""
    return {
        "version": network.version,
        "streams": [_stream(network, s) for s in network.streams],
        "boxes": [_box(network, b) for b in network.boxes],
        "arcs": [_arc(network, a) for a in network.arcs],
        "outputs": [_output(network, o) for o in network.outputs],
    }


def tap_places(network: Network) -> dict[str, TapPlace]:
    """Return every tap place by its name: streams, boxes with their ports, and outputs first, arcs last."""
    known = {s.name: TapPlace("stream", s.number, s.name, s.schema) for s in network.streams}
    arcs = [_arc_place(arc) for arc in network.arcs]
    for box in network.boxes:
        for port, out in zip(box.ports, box.out_arcs, strict=True):
            for arc in out[:1]:
                known |= {f"{name}.{port}" if port else name: arcs[arc] for name in box.names}
    known |= {o.name: TapPlace("output", o.number, o.name, o.schema) for o in network.outputs}
    return known | {place.name: place for place in arcs}


def _arc_place(arc: Arc) -> TapPlace:
    if arc.output is not None:  # an arc to an output has no queue: watch the output itself
        return TapPlace("output", arc.output, arc.name, arc.schema)
    return TapPlace("arc", arc.number, arc.name, arc.schema)


def find_tap_place(network: Network, name: str) -> TapPlace | None:
    return tap_places(network).get(name)


def _stream(network: Network, s: Stream) -> dict[str, Any]:
    return {
        "name": s.name,
        "schema": _schema(s.schema),
        "time": s.time_field,
        "slack_ns": s.slack_ns,
        "overload": s.overload,
        "arcs": [network.arcs[a].name for a in s.arcs],
        "source": _model(s.source),
    }


def _box(network: Network, b: BoxNode) -> dict[str, Any]:
    return {
        "name": b.name,
        "also": list(b.also),
        "kind": b.kind,
        "parameters": _model(getattr(b.box, "parameters", None)),
        "inputs": [network.arcs[a].name for a in b.in_arcs],
        "ports": [
            {"name": port, "schema": _schema(schema), "arcs": [network.arcs[a].name for a in arcs]}
            for port, schema, arcs in zip(b.ports, b.out_schemas, b.out_arcs, strict=True)
        ],
        "declared_cost_ns": b.cost_ns,
        "declared_selectivity": b.selectivity,
    }


def _arc(network: Network, a: Arc) -> dict[str, Any]:
    source = a.source
    if source.stream is not None:
        origin = network.streams[source.stream].name
    else:
        assert source.box is not None
        box = network.boxes[source.box]
        port = box.ports[source.port] if box.ports else ""
        origin = f"{box.name}.{port}" if port else box.name
    end = network.boxes[a.box].name if a.box is not None else network.outputs[a.output or 0].name
    return {"name": a.name, "from": origin, "to": end, "port": a.port, "schema": _schema(a.schema)}


def _output(network: Network, o: Output) -> dict[str, Any]:
    return {
        "name": o.name,
        "schema": _schema(o.schema),
        "arc": network.arcs[o.arc].name,
        "qos": _qos(o.qos),
        "sink": _model(o.sink),
    }


def _qos(qos: QoS) -> dict[str, Any]:
    return {
        "latency": _graph(qos.latency),
        "loss": _graph(qos.loss),
        "value": _graph(qos.value),
        "value_field": qos.value_field,
        "prefer": qos.prefer,
        "deadline_ns": qos.deadline_ns,
    }


def _graph(graph: QoSGraph | None) -> list[list[float]] | None:
    return None if graph is None else [list(point) for point in graph.points]


def _schema(schema: Schema) -> list[dict[str, Any]]:
    return [{"name": f.name, "type": str(f.type), "nullable": f.nullable} for f in schema]


def _model(model: Any) -> Any:
    """Return a model of the network file as plain data. Spark options may hold passwords: only their names are
    shown."""
    if not isinstance(model, BaseModel):
        return None
    data = model.model_dump(mode="json", by_alias=True)
    if isinstance(data.get("options"), dict):
        data["options"] = sorted(data["options"])
    return data
