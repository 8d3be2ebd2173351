"""Number the bound boxes and freeze them into a network; warn about tuples that lead nowhere."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from catalog.config.boxes import BoxDraft
from catalog.config.document import Document
from catalog.config.models import NetworkFile, OutputModel
from catalog.errors import Problem
from catalog.network import Arc, BoxNode, KeptPlace, Network, Output, PortRef, Stream
from catalog.qos import QoS
from catalog.schema import Schema


@dataclass(frozen=True, slots=True)
class InputSource:
    """The origin of an input: a stream, or a port of a box."""

    name: str
    port: int
    is_stream: bool


@dataclass(frozen=True, slots=True)
class BoundBox:
    """A box that is bound to the schemas of its inputs."""

    draft: BoxDraft
    box: Any
    origins: list[InputSource]
    in_schemas: tuple[Schema, ...]
    out_schemas: tuple[Schema, ...]


@dataclass(frozen=True, slots=True)
class BoundOutput:
    """An output with its origin, schema and QoS resolved."""

    name: str
    model: OutputModel
    origin: InputSource
    schema: Schema
    qos: QoS


def assemble(
    file: NetworkFile,
    schemas: Mapping[tuple[str, int], Schema],
    times: Mapping[tuple[str, int], str | None],
    bound: Sequence[BoundBox],
    outputs: Sequence[BoundOutput],
    version: int,
    other_names: Callable[[str], tuple[str, ...]] = lambda _: (),
    declared: Mapping[str, tuple[str, ...]] | None = None,
    drafts: Mapping[str, Any] | None = None,
) -> Network:
    """Make the network. ``bound`` is in topological order; the index of a box in it becomes its number."""
    streams = {name: i for i, name in enumerate(file.streams)}
    boxes = {b.draft.name: i for i, b in enumerate(bound)}
    arcs = _arcs(streams, boxes, bound, outputs, times)
    leaving: dict[PortRef, list[int]] = {}
    entering: dict[int | None, list[int]] = {}
    for arc in arcs:
        leaving.setdefault(arc.source, []).append(arc.number)
        entering.setdefault(arc.box, []).append(arc.number)

    def out(ref: PortRef) -> tuple[int, ...]:
        return tuple(leaving.get(ref, ()))

    nodes = tuple(
        BoxNode(
            number=i,
            name=b.draft.name,
            kind=b.draft.kind,
            box=b.box,
            in_arcs=tuple(entering.get(i, ())),
            out_arcs=tuple(out(PortRef(box=i, port=p)) for p in range(len(b.draft.ports))),
            ports=b.draft.ports,
            in_schemas=b.in_schemas,
            out_schemas=b.out_schemas,
            cost_ns=b.draft.entry.cost_ns,
            selectivity=b.draft.entry.selectivity,
            also=other_names(b.draft.name),
        )
        for i, b in enumerate(bound)
    )
    kept = _kept(file, schemas, times, streams, bound)
    return Network(
        streams=tuple(
            Stream(i, n, schemas[n, 0], out(PortRef(stream=i)), s.time, s.slack_ns, s.overload, s.source, s)
            for i, (n, s) in enumerate(file.streams.items())
        ),
        boxes=nodes,
        arcs=_timed(arcs, nodes, {place.source.box for place in kept}),
        outputs=tuple(
            Output(
                i, o.name, o.schema, len(arcs) - len(outputs) + i, o.qos, o.model.sink, o.model.start, o.model.paused
            )
            for i, o in enumerate(outputs)
        ),
        config=file,
        version=version,
        declared=declared or {},
        drafts=drafts or {},
        kept=kept,
    )


def _kept(
    file: NetworkFile,
    schemas: Mapping[tuple[str, int], Schema],
    times: Mapping[tuple[str, int], str | None],
    streams: Mapping[str, int],
    bound: Sequence[BoundBox],
) -> tuple[KeptPlace, ...]:
    """Return the places that keep their history: streams first, then the ports of boxes."""
    found = [
        KeptPlace(
            n, PortRef(stream=streams[n]), schemas[n, 0], times[n, 0], s.slack_ns, s.keep.for_ns, s.keep.size_bytes
        )
        for n, s in file.streams.items()
        if s.keep is not None
    ]
    for box, b in enumerate(bound):
        keep, name = b.draft.entry.keep, b.draft.name
        for number, port in enumerate(b.draft.ports):
            is_meant = keep is not None and (port in keep.ports if keep.ports else not port or "" not in b.draft.ports)
            if keep is not None and is_meant:
                place = f"{name}.{port}" if port else name
                time = times[name, number] or None  # a box may have dropped the field of event time
                ref = PortRef(box=box, port=number)
                found.append(KeptPlace(place, ref, schemas[name, number], time, 0, keep.for_ns, keep.size_bytes))
    return tuple(found)


def _arcs(
    streams: Mapping[str, int],
    boxes: Mapping[str, int],
    bound: Sequence[BoundBox],
    outputs: Sequence[BoundOutput],
    times: Mapping[tuple[str, int], str | None],
) -> list[Arc]:
    def ref(origin: InputSource) -> PortRef:
        if origin.is_stream:
            return PortRef(stream=streams[origin.name])
        return PortRef(box=boxes[origin.name], port=origin.port)

    def tail(origin: InputSource) -> str:
        port = "" if origin.is_stream else bound[boxes[origin.name]].draft.ports[origin.port]
        return f"{origin.name}.{port}" if port else origin.name

    def time(origin: InputSource) -> str | None:
        return times[origin.name, origin.port]

    arcs: list[Arc] = []
    for i, b in enumerate(bound):
        for port, origin in enumerate(b.origins):
            head = f"{b.draft.name}.{port}" if len(b.origins) > 1 else b.draft.name
            name = f"{tail(origin)}->{head}"
            arcs.append(
                Arc(len(arcs), name, ref(origin), b.in_schemas[port], box=i, port=port, time_field=time(origin))
            )
    for i, o in enumerate(outputs):
        name = f"{tail(o.origin)}->{o.name}"
        arcs.append(Arc(len(arcs), name, ref(o.origin), o.schema, output=i, time_field=time(o.origin)))
    return arcs


def _timed(arcs: Sequence[Arc], nodes: Sequence[BoxNode], kept: Container[int | None]) -> tuple[Arc, ...]:
    """Mark the timed arcs: those with a box that needs event time anywhere behind them, or one that keeps its tuples
    for queries that may need it."""
    timed = [False] * len(arcs)
    for node in reversed(nodes):
        needs = node.box.needs_time or node.number in kept or any(timed[a] for port in node.out_arcs for a in port)
        for a in node.in_arcs:
            timed[a] = needs
    return tuple(replace(arc, timed=True) if timed[arc.number] else arc for arc in arcs)


def find_dead_ends(network: Network, document: Document) -> list[Problem]:
    """Warn about streams, boxes and ports whose tuples lead nowhere. A box without an output gets one warning, not one
    for each port."""
    found: list[Problem] = []
    for stream in network.streams:
        if not stream.arcs:
            path = ("streams", stream.name)
            found.append(document.problem(path, f"nothing reads the stream '{stream.name}'", at_key=True, warning=True))
    for node in network.boxes:
        path = ("boxes", node.name)
        if getattr(node.box, "is_asked", False):
            continue
        if not network.box_outputs[node.number]:
            message = f"the box '{node.name}' leads to no output"
            found.append(document.problem(path, message, at_key=True, warning=True))
        elif "" not in node.ports:  # a port beside the default one is optional
            for port, arcs in zip(node.ports, node.out_arcs, strict=True):
                if not arcs:
                    message = f"nothing reads the port '{node.name}.{port}': its tuples are dropped"
                    found.append(document.problem(path, message, at_key=True, warning=True))
    return found
