"""A network as shapes (streams, boxes, outputs) and the links between their ports."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from catalog.config.models import FileSink, FileSource, StdinSource, StdoutSink, TcpSink, TcpSource
from catalog.config.units import Address, format_duration
from catalog.network import BoxNode, Network, PortRef
from catalog.printable import printable
from catalog.qos import QoS

Role = Literal["stream", "box", "output"]

NAMES_SHOWN = 3


@dataclass(frozen=True, slots=True)
class DrawnShape:
    number: int
    role: Role
    title: str
    detail: str  # one short line
    tip: str  # all details, for the tooltip
    layer: int
    inputs: int
    ports: tuple[str, ...]
    qos: QoS | None = None


@dataclass(frozen=True, slots=True)
class DrawnLink:
    name: str
    source: int  # a shape's number
    port: int
    target: int
    target_port: int


@dataclass(frozen=True, slots=True)
class Drawing:
    shapes: tuple[DrawnShape, ...]
    links: tuple[DrawnLink, ...]


def sketch(network: Network) -> Drawing:
    """Make shapes and links. Streams are in the first layer, outputs in the last, a box right of all its feeders."""
    streams, boxes = len(network.streams), len(network.boxes)

    def shape_of(ref: PortRef) -> int:
        return ref.stream if ref.stream is not None else streams + (ref.box or 0)

    layers: list[int] = [1] * boxes
    for node in network.boxes:
        feeders = network.feeders[node.number]
        layers[node.number] = 1 + max((layers[f] for f in feeders), default=0)
    last = 1 + max(layers, default=0)
    shapes = [
        DrawnShape(s.number, "stream", s.name, _source(s.source), f"{s.name} {s.schema}", 0, 0, ("",))
        for s in network.streams
    ]
    shapes += [
        DrawnShape(
            streams + n.number,
            "box",
            _all_names(n),
            _summary(n),
            f"{_all_names(n)}: {n.kind}\n{_parameters(n)}\n{n.out_schemas[0]}",
            layers[n.number],
            len(n.in_arcs),
            n.ports,
        )
        for n in network.boxes
    ]
    shapes += [
        DrawnShape(
            streams + boxes + o.number,
            "output",
            o.name,
            " · ".join(x for x in (describe_qos(o.qos), _sink(o.sink)) if x),
            f"{o.name} {o.schema}",
            last,
            1,
            (),
            o.qos,
        )
        for o in network.outputs
    ]
    links = tuple(
        DrawnLink(
            arc.name,
            shape_of(arc.source),
            arc.source.port,
            streams + arc.box if arc.box is not None else streams + boxes + (arc.output or 0),
            arc.port,
        )
        for arc in network.arcs
    )
    return Drawing(tuple(shapes), links)


def _all_names(node: BoxNode) -> str:
    """Return the names of a box; it has several when equal boxes have become one."""
    more = f" = {len(node.names) - NAMES_SHOWN} more" if len(node.names) > NAMES_SHOWN else ""
    return " = ".join(node.names[:NAMES_SHOWN]) + more


def describe_qos(qos: QoS) -> str:
    """Describe QoS in a few words: ``in 200ms``, ``keep 70%``, ``prefer severity >= 3``."""
    words = []
    if qos.deadline_ns == 0:
        words.append("the sooner the better")  # the graph falls from 0 on
    elif qos.deadline_ns is not None:
        words.append(f"in {format_duration(qos.deadline_ns)}")
    elif qos.latency is not None:
        words.append("any delay")
    if qos.loss is not None:
        best = qos.loss.points[-1][1]
        needed = min(x for x, y in qos.loss.points if y == best)
        words += [f"keep {100 * needed:.4g}%"] if needed < 1 else []
    if qos.prefer:
        words.append(f"prefer {qos.prefer}")
    if qos.value is not None:
        words.append(f"by {qos.value_field}")
    return ", ".join(words)


def _source(source: Any) -> str:
    if isinstance(source, TcpSource):
        return f"{source.format} {_short(source.tcp)}"
    if isinstance(source, FileSource | StdinSource):
        return printable(source.file) if isinstance(source, FileSource) else f"{source.stdin} stdin"
    return printable(f"spark {source.spark}") if source is not None else "fed by code"


def _sink(sink: Any) -> str:
    if isinstance(sink, TcpSink):
        return f"{sink.format} {_short(sink.tcp)}"
    if isinstance(sink, FileSink | StdoutSink):
        return printable(sink.file) if isinstance(sink, FileSink) else f"{sink.stdout} stdout"
    return printable(f"spark {sink.spark}") if sink is not None else "read by code"


def _short(address: Address) -> str:
    """Shorten an address on loopback to its port, as in a network file."""
    return f":{address.port}" if address.host in ("127.0.0.1", "localhost") else str(address)


def _summary(node: BoxNode) -> str:
    """Name the kind, and the parameter that is a text if there is only one, such as ``where`` or ``on``."""
    texts = [str(v) for v in _values(node).values() if isinstance(v, str)]
    return f"{node.kind} {printable(texts[0])}" if len(texts) == 1 and len(node.ports) == 1 else node.kind


def _parameters(node: BoxNode) -> str:
    return "\n".join(printable(f"{k}: {v}", keep="\n") for k, v in _values(node).items())


def _values(node: BoxNode) -> dict[str, Any]:
    parameters = getattr(node.box, "parameters", None)
    return parameters.model_dump(exclude_defaults=True) if parameters is not None else {}
