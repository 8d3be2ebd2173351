"""Where tuples may be dropped: the arcs after inputs and after splits, where no answer becomes wrong in silence.

An arc is legal when
- every stream that feeds it says ``overload: shed``: behind a union with a stream that blocks, nothing is dropped;
- every output that it leads to has a loss graph or a preset that stands for one;
- no box behind it gives a wrong answer for a part of its input (``Box.under_loss``). Where some of them need whole
  windows, whole windows are dropped, of a span that is a multiple of all of theirs, and only where the event time
  reaches them as it is on the arc.

Of the legal arcs only those are places from which more can be saved than from the arcs before them: at a stream,
where the set of outputs touched shrinks (a split), behind a box that may lose nothing, or where the value of a tuple
can be judged for the first time. Dropping later in a chain saves less for the same loss.

A place is ``semantic`` when one output alone lies behind it, that says what a tuple is worth, and the fields that it
says so by reach it as they are on the arc. (Refused: several outputs that agree. They seldom do, and then the arcs
behind the split are places of their own.)
"""

from __future__ import annotations

from collections.abc import Container
from functools import reduce
from itertools import pairwise
from math import lcm
from typing import NamedTuple

from catalog.network import Arc, Network, Output
from catalog.qos import QoS
from catalog.shed import Manner, Place

LONGEST_SPAN_NS = 3_600 * 10**9
"""Windows that only meet after more than this are not dropped together: nothing would come out for too long."""


class Behind(NamedTuple):
    """What lies behind an arc."""

    outputs: frozenset[int] = frozenset()
    wrong: bool = False  # a box there must not lose anything
    span_ns: int = 0  # of the windows that may only be lost whole; 0: there are none


def find_places(network: Network, semantic_arcs: Container[int] | None = None) -> tuple[Place, ...]:
    """All of them, by arc. ``semantic_arcs`` are those on which an output behind can say what a tuple is worth.

    Without them the value graphs are followed here; ``prefer`` is an expression, which only the engine can read.
    """
    behind = what_lies_behind(network)
    legal = legal_arcs(network, behind)
    if semantic_arcs is None:
        judges = _judging_arcs(network, behind)
    else:
        judges = [a in semantic_arcs and len(b.outputs) == 1 for a, b in enumerate(behind)]
    return tuple(
        Place(arc.number, _manner(behind[arc.number], judges[arc.number]), tuple(sorted(behind[arc.number].outputs)),
              behind[arc.number].span_ns)
        for arc in network.arcs
        if legal[arc.number] and _saves_more(network, arc, behind, legal, judges)
    )  # fmt: skip


def what_lies_behind(network: Network) -> list[Behind]:
    """By arc."""
    found = [Behind()] * len(network.arcs)
    for arc in network.arcs:
        if arc.output is not None:
            found[arc.number] = Behind(frozenset((arc.output,)))
    for node in reversed(network.boxes):  # numbers are topological
        after = [found[a] for arcs in node.out_arcs for a in arcs]
        outputs = frozenset[int]().union(*(b.outputs for b in after))
        spans = [b.span_ns for b in after if b.span_ns]
        lossless = any(b.wrong for b in after)
        for port, a in enumerate(node.in_arcs):
            under = node.box.under_loss(port)
            own = [under] if isinstance(under, int) else []
            wrong = lossless or under == "wrong" or (under == "approximate" and bool(spans))
            if spans and under == "subset":
                wrong = wrong or not _time_passes(network, node.number, network.arcs[a])
            span_ns = reduce(lcm, own + spans) if own or spans else 0
            found[a] = Behind(outputs, wrong or span_ns > LONGEST_SPAN_NS, span_ns)
    return found


def legal_arcs(network: Network, behind: list[Behind]) -> list[bool]:
    """By arc: whether anything may be dropped there."""
    sheds = shed_arcs(network)
    gives = [output.qos.shed_by is not None for output in network.outputs]
    return [
        ok and not b.wrong and bool(b.outputs) and all(gives[o] for o in b.outputs)
        for ok, b in zip(sheds, behind, strict=True)
    ]


def shed_arcs(network: Network) -> list[bool]:
    """By arc: whether all streams that feed it say ``overload: shed``."""
    boxes = [True] * len(network.boxes)
    arcs = [True] * len(network.arcs)
    for stream in network.streams:
        for a in stream.arcs:
            arcs[a] = stream.overload == "shed"
    for node in network.boxes:
        boxes[node.number] = all(arcs[a] for a in node.in_arcs)
        for ports in node.out_arcs:
            for a in ports:
                arcs[a] = boxes[node.number]
    return arcs


def hulled_outputs(network: Network) -> tuple[Output, ...]:
    """Outputs whose loss graph is not concave: the shedder goes by its hull."""
    return tuple(o for o in network.outputs if o.qos.shed_by is not None and not _is_concave(o.qos))


def _is_concave(qos: QoS) -> bool:
    graph = qos.shed_by
    assert graph is not None
    slopes = [graph.slope(x) for x, _ in graph.points[:-1]]
    return all(a >= b - 1e-12 for a, b in pairwise(slopes))


def _manner(behind: Behind, judges: bool) -> Manner:
    return "windows" if behind.span_ns else "semantic" if judges else "random"


def _saves_more(network: Network, arc: Arc, behind: list[Behind], legal: list[bool], judges: list[bool]) -> bool:
    if arc.source.box is None:
        return True
    before = network.boxes[arc.source.box].in_arcs
    if not all(legal[a] for a in before) or any(behind[a].outputs != behind[arc.number].outputs for a in before):
        return True
    return judges[arc.number] and not behind[arc.number].span_ns and not all(judges[a] for a in before)


def _judging_arcs(network: Network, behind: list[Behind]) -> list[bool]:
    """By arc: whether what a tuple is worth to the one output behind it can be seen there."""
    fields = [(o.qos.value_field,) if o.qos.value is not None else () for o in network.outputs]
    judges = [False] * len(network.arcs)

    def judge(arc: Arc) -> bool:
        [output] = behind[arc.number].outputs
        wanted = fields[output]
        if not wanted or not all(name in arc.schema for name in wanted):
            return False
        if arc.box is None:
            return True
        node = network.boxes[arc.box]
        after = [a for arcs in node.out_arcs for a in arcs if behind[a].outputs]
        return all(judges[a] for a in after) and all(node.box.keeps(name) for name in wanted)

    for arc in sorted(network.arcs, key=lambda a: len(network.boxes) if a.box is None else a.box, reverse=True):
        if len(behind[arc.number].outputs) == 1:
            judges[arc.number] = judge(arc)
    return judges


def _time_passes(network: Network, box: int, arc: Arc) -> bool:
    """Whether tuples leave the box with the event time that they have on this arc."""
    node = network.boxes[box]
    after = [network.arcs[a].time_field for arcs in node.out_arcs for a in arcs]
    if arc.time_field == "" or any(t != arc.time_field for t in after):
        return False
    return arc.time_field is None or bool(node.box.keeps(arc.time_field))
