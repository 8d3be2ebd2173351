"""Compare two networks, part by part: kept, changed, rebuilt, added or removed.

Rules
- A box is kept, state and all, if it has the same name and the same definition: kind, parameters, fields of its inputs
  and their event time. Boxes before it may have changed, and its inputs may come from elsewhere. A box that has another
  name, the same definition and the same inputs is kept too: it was renamed.
- Equal boxes are one box with several names (``catalog/share.py``). A name that comes joins its state, and the state
  stays until the last name goes. A name that leaves for a box of its own takes a copy of the state.
- Tuples that wait before a box stay there if the box has the same name or was renamed, and the input has the same
  fields. Otherwise they are dropped and counted.
- A stream or an output is kept with its connections unless its fields or its address change.
- Some settings and some parts of the boundary are made only at a start: they need a restart (``Fate.RESTART``).

Refused: to keep the state of a box whose parameters changed, such as an aggregate with one more function. The state
of an aggregate has one layout for all its functions.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from pydantic import BaseModel

from catalog.config.models import SparkSink, SparkSource, TcpSink, TcpSource
from catalog.network import BoxNode, Network, Output, PortRef, Stream
from engine.operators.boxes.base import Box

LIVE_SECTIONS = ("scheduler", "admission")
LIVE_KEYS = (
    "engine.workers",
    "engine.memory",
    "engine.explain",
    "engine.drain",
    "engine.stop",
    "engine.python_path",
    "engine.share",
    "engine.forget_outputs",
)
SETTINGS = ("engine", "http", "scheduler", "limits", "log", "spark", "admission")


class Fate(StrEnum):
    KEPT = "kept"
    CHANGED = "changed"  # in place: nothing is lost, connections stay
    REBUILT = "rebuilt"  # begins anew
    ADDED = "added"
    REMOVED = "removed"
    RESTART = "restart"  # cannot change while the daemon runs


@dataclass(frozen=True, slots=True)
class PartChange:
    """What a change does to one stream, box, output or setting."""

    kind: str
    name: str
    fate: Fate
    why: str = ""
    was: str = ""  # its name before, if it was renamed
    loses: str = ""  # the state that is dropped


@dataclass(frozen=True)
class Change:
    """The difference of two networks. The mappings lead from names after the change to names before it."""

    parts: tuple[PartChange, ...]
    streams: Mapping[str, str]  # with their connections
    boxes: Mapping[str, str]  # with their state
    outputs: Mapping[str, str]  # with their readers
    same_boxes: Mapping[str, str] = field(default_factory=dict)  # kept or rebuilt: tuples that wait there stay
    copied_boxes: Mapping[str, str] = field(default_factory=dict)  # of ``boxes``' kind: another box has the state

    def of(self, *fates: Fate) -> list[PartChange]:
        return [part for part in self.parts if part.fate in fates]

    @property
    def is_empty(self) -> bool:
        return all(part.fate is Fate.KEPT and not part.was for part in self.parts)

    @property
    def needs_restart(self) -> list[PartChange]:
        return self.of(Fate.RESTART)

    @property
    def drops_state(self) -> list[PartChange]:
        return [part for part in self.parts if part.loses]


def compare(before: Network, after: Network) -> Change:
    """Compare the network that runs with the one that is to run."""
    streams = [*_streams(before, after)]
    boxes, same_boxes = _boxes(before, after)
    kept, copied = _heirs(after, boxes, same_boxes)
    outputs = [*_outputs(before, after, same_boxes)]
    parts = (*streams, *boxes, *outputs, *_settings(before.config, after.config))
    return Change(
        parts,
        {p.name: p.name for p in streams if p.fate in (Fate.KEPT, Fate.CHANGED)},
        kept,
        {p.name: p.name for p in outputs if p.fate in (Fate.KEPT, Fate.CHANGED)},
        same_boxes,
        copied,
    )


# -- streams ----------------------------------------------------------------------------------------------------------


def _streams(before: Network, after: Network) -> Iterator[PartChange]:
    old = {s.name: s for s in before.streams}
    for stream in after.streams:
        was = old.pop(stream.name, None)
        if was is None:
            yield PartChange("stream", stream.name, *_unless_tcp(stream.source, Fate.ADDED, ""))
        else:
            yield _stream(was, stream)
    for stream in old.values():
        yield PartChange("stream", stream.name, *_unless_tcp(stream.source, Fate.REMOVED, "senders are disconnected"))


def _stream(was: Stream, now: Stream) -> PartChange:
    anew = [
        *_differences({"schema": was.schema, "time": was.time_field}, {"schema": now.schema, "time": now.time_field})
    ]
    anew += _differences(_plain(was.source), _plain(now.source))
    if anew:
        fate, why = _unless_tcp(was.source, Fate.REBUILT, f"{'; '.join(anew)}: senders are disconnected")
        if fate is Fate.REBUILT:
            fate, why = _unless_tcp(now.source, fate, why)
        return PartChange("stream", now.name, fate, why)
    changed = [*_differences(_plain(was.options), _plain(now.options))]
    return PartChange("stream", now.name, Fate.CHANGED if changed else Fate.KEPT, "; ".join(changed))


def _unless_tcp(end: Any, fate: Fate, why: str) -> tuple[Fate, str]:
    """Return this fate for an end that is a socket or code; files and Spark are opened only at a start."""
    if end is None or isinstance(end, TcpSource | TcpSink):
        return fate, why
    what = "Spark" if isinstance(end, SparkSource | SparkSink) else "a file"
    return Fate.RESTART, f"{fate}, and {what} is opened only at a start"


# -- boxes ------------------------------------------------------------------------------------------------------------


def _boxes(before: Network, after: Network) -> tuple[list[PartChange], dict[str, str]]:
    """Return what happens to each box of the file, and the boxes before by those after, by the names they stand for."""
    names = {name for node in after.boxes for name in node.names}
    free = {b.name for b in before.boxes if names.isdisjoint(b.names)}
    same: dict[str, str] = {}
    parts: list[PartChange] = []
    for node in after.boxes:  # in topological order: the boxes before it have been found
        found = (before.find_box(name) for name in node.names)
        was = next((b for b in found if b is not None), None) or _renamed(before, after, node, free, same)
        if was is None:
            parts.append(PartChange("box", node.name, Fate.ADDED))
        else:
            free.discard(was.name)
            same[node.name] = was.name
            parts.append(_box(before, after, was, node, same))
        parts += [_other_name(before, was, node, name) for name in node.also]
    renamed = {part.was for part in parts}
    for was in before.boxes:
        if was.name in free:
            parts.append(PartChange("box", was.name, Fate.REMOVED, loses=_state_of(was)))
        gone = was.also if was.name in free else was.names
        parts += [_removed_name(was, name) for name in gone if name not in names and name not in renamed]
    return parts, same


def _other_name(before: Network, was: BoxNode | None, node: BoxNode, name: str) -> PartChange:
    """Return what happens to a box of the file that is one with another, which stands for both."""
    known = before.find_box(name)
    if known is None:
        return PartChange("box", name, Fate.ADDED, f"is equal to {node.name}: they are one box")
    if was is None or known.name != was.name:
        return PartChange("box", name, Fate.REMOVED, f"is equal to {node.name} now", loses=_state_of(known))
    return PartChange("box", name, Fate.KEPT)


def _removed_name(was: BoxNode, name: str) -> PartChange:
    return PartChange("box", name, Fate.REMOVED, "boxes that are equal go on" if len(was.names) > 1 else "")


def _heirs(after: Network, boxes: list[PartChange], same: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """Return the boxes that go on with a state, and those that get a copy because another box goes on with it."""
    going_on = {p.name for p in boxes if p.fate in (Fate.KEPT, Fate.CHANGED)}
    kept: dict[str, str] = {}
    copied: dict[str, str] = {}
    taken: set[str] = set()
    for node in sorted(after.boxes, key=lambda node: same.get(node.name) != node.name):  # those of the same name first
        if node.name in going_on and node.name in same:
            was = same[node.name]
            (copied if was in taken else kept)[node.name] = was
            taken.add(was)
    return kept, copied


def _renamed(before: Network, after: Network, node: BoxNode, free: set[str], same: Mapping[str, str]) -> BoxNode | None:
    """Return the box of before that is this one under another name: same definition, same inputs."""
    inputs = [_origin(after, after.arcs[a].source, same) for a in node.in_arcs]
    for was in before.boxes:
        if was.name not in free or was.kind != node.kind or _box_differences(before, after, was, node):
            continue
        if [_origin(before, before.arcs[a].source, {}) for a in was.in_arcs] == inputs:
            return was
    return None


def _origin(network: Network, source: PortRef, names: Mapping[str, str]) -> tuple[str, int]:
    if source.stream is not None:
        return network.streams[source.stream].name, -1
    assert source.box is not None
    name = network.boxes[source.box].name
    return names.get(name, name), source.port


def _box(before: Network, after: Network, was: BoxNode, now: BoxNode, same: Mapping[str, str]) -> PartChange:
    renamed = was.name if now.name not in was.names else ""
    if why := _box_differences(before, after, was, now):
        return PartChange("box", now.name, Fate.REBUILT, "; ".join(why), renamed, _state_of(was))
    hints = {"cost": was.cost_ns, "selectivity": was.selectivity}, {"cost": now.cost_ns, "selectivity": now.selectivity}
    changed = [*_differences(*hints), *_differences({"keep": _keep(before, was)}, {"keep": _keep(after, now)})]
    came = [_origin(before, before.arcs[a].source, {}) for a in was.in_arcs]
    if came != [_origin(after, after.arcs[a].source, same) for a in now.in_arcs] and not renamed:
        tails = [_origin(after, after.arcs[a].source, {}) for a in now.in_arcs]
        changed.append(f"reads {', '.join(name for name, _ in tails)}")
    return PartChange("box", now.name, Fate.CHANGED if changed else Fate.KEPT, "; ".join(changed), renamed)


def _keep(network: Network, node: BoxNode) -> list[tuple[str, int | None, int]] | None:
    """Return how much history each port of a box keeps; None when it keeps none."""
    kept = [(place.name, place.for_ns, place.size_bytes) for place in network.kept if place.source.box == node.number]
    return kept or None


def _box_differences(before: Network, after: Network, was: BoxNode, now: BoxNode) -> list[str]:
    """Return why a box cannot go on with the state of another; empty when it can."""
    if was.box is now.box:  # it was not bound again (``catalog/reuse``): nothing differs
        return []
    if was.kind != now.kind:
        return [f"kind {was.kind} -> {now.kind}"]
    found = [*_differences(_plain(was.box.parameters), _plain(now.box.parameters))]
    if len(was.in_arcs) != len(now.in_arcs):
        found.append(f"{len(was.in_arcs)} -> {len(now.in_arcs)} inputs")
    if not found and (was.in_schemas != now.in_schemas or was.out_schemas != now.out_schemas):
        found.append("its input has other fields")
    times = [[n.arcs[a].time_field for a in node.in_arcs] for n, node in ((before, was), (after, now))]
    if not found and times[0] != times[1]:
        found.append("its input has another event time")
    if not found and was.box.code_digest != now.box.code_digest:
        found.append("its Python code has changed")
    return found


def _state_of(node: BoxNode) -> str:
    """Say what a box remembers; empty for one that remembers nothing."""
    return f"the state of {node.kind}" if type(node.box).snapshot is not Box.snapshot else ""


# -- outputs ----------------------------------------------------------------------------------------------------------


def _outputs(before: Network, after: Network, same: Mapping[str, str]) -> Iterator[PartChange]:
    old = {o.name: o for o in before.outputs}
    for output in after.outputs:
        was = old.pop(output.name, None)
        if was is None:
            yield PartChange("output", output.name, *_unless_tcp(output.sink, Fate.ADDED, ""))
        else:
            yield _output(before, after, was, output, same)
    for output in old.values():
        yield PartChange("output", output.name, *_unless_tcp(output.sink, Fate.REMOVED, "readers are disconnected"))


def _output(before: Network, after: Network, was: Output, now: Output, same: Mapping[str, str]) -> PartChange:
    anew = [
        *_differences({"fields": was.schema}, {"fields": now.schema}),
        *_differences(_plain(was.sink), _plain(now.sink)),
    ]
    if anew:
        fate, why = _unless_tcp(was.sink, Fate.REBUILT, f"{'; '.join(anew)}: readers are disconnected")
        if fate is Fate.REBUILT:
            fate, why = _unless_tcp(now.sink, fate, why)
        return PartChange("output", now.name, fate, why)
    changed = ["qos"] if was.qos != now.qos else []
    if was.paused != now.paused:
        changed.append("paused" if now.paused else "resumed")
    tail = _origin(after, after.arcs[now.arc].source, same)
    if _origin(before, before.arcs[was.arc].source, {}) != tail:
        changed.append(f"reads {tail[0]}")
    return PartChange("output", now.name, Fate.CHANGED if changed else Fate.KEPT, "; ".join(changed))


# -- settings ---------------------------------------------------------------------------------------------------------


def _settings(before: Any, after: Any) -> Iterator[PartChange]:
    for section in SETTINGS:
        was, now = _plain(getattr(before, section)), _plain(getattr(after, section))
        for key in was:
            if was[key] != now[key]:
                name = f"{section}.{key}"
                is_live = section in LIVE_SECTIONS or name in LIVE_KEYS
                why = "is read at a start" if section == "spark" else f"{_short(was[key])} -> {_short(now[key])}"
                yield PartChange("setting", name, Fate.CHANGED if is_live else Fate.RESTART, why)


def _plain(model: Any) -> dict[str, Any]:
    """Return the keys of a part of the network file, as they are written, with their values."""
    if not isinstance(model, BaseModel):
        return {}
    fields = type(model).model_fields
    return {fields[name].alias or name: value for name, value in model.__dict__.items() if name in fields}


def _differences(was: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[str]:
    for key in dict.fromkeys((*was, *now)):
        if was.get(key) != now.get(key):
            yield f"{key} {_short(was.get(key))} -> {_short(now.get(key))}"


def _short(value: object) -> str:
    text = "none" if value is None else str(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
