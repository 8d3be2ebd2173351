"""Find the places: the arcs where tuples may be dropped without making an answer silently wrong.

An arc is *legal* when all three hold:

- Every stream that feeds it has ``overload: shed``. Behind a union with a stream that blocks, nothing is dropped.
- Every output that it leads to has a loss graph, or a preset that stands for one; or it is given up, because no plan
  can save it (``decide/incurable``).
- No box behind it answers a part of its input with a wrong answer (``Box.under_loss``). Where some of the boxes need
  whole windows, whole windows are dropped. Their span is then a common multiple of all windows behind the arc, and the
  event time must reach the boxes unchanged from the arc.

A legal arc is a *place* when dropping there can save something that dropping further up cannot: at a stream, where the
set of outputs touched shrinks (a split), behind a box that may lose nothing, or at the first arc where the value of a
tuple can be evaluated. Any other legal arc lies in the middle of a chain, and a drop there saves less work for the same
loss.

A place is ``semantic`` when one output alone lies behind it, the output states what a tuple is worth, and the fields of
that statement reach the output unchanged. Refused: semantic places before several outputs that agree on the worth. They
seldom agree, and the arcs behind the split are places of their own.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Container
from functools import reduce
from itertools import pairwise
from math import lcm
from typing import NamedTuple
from weakref import ref

from catalog.network import Arc, Network, Output
from catalog.qos import QoS
from load_shedder.shed_plan import DropPlace, Manner

LONGEST_SPAN_NS = 3_600 * 10**9
"""The longest common span of windows. Above it, nothing would come out for too long, so the arc is not legal."""


class Downstream(NamedTuple):
    """Everything behind one arc, as far as drops are concerned."""

    outputs: frozenset[int] = frozenset()
    wrong: bool = False  # some box there would answer wrongly if anything were missing
    span_ns: int = 0  # common span of the windows that may only be dropped whole; 0: there are none


def find_places(
    network: Network, semantic_arcs: Container[int] | None = None, given_up: Container[int] = ()
) -> tuple[DropPlace, ...]:
    """Return all places, sorted by arc. ``semantic_arcs`` are the arcs on which the worth of a tuple can be evaluated,
    ``given_up`` the outputs that may lose tuples without a loss graph.

    Without ``semantic_arcs`` only the value graphs are followed: ``prefer`` is an expression, and this module compiles
    none.
    """
    behind = find_downstream(network)
    legal = legal_arcs(network, behind, given_up)
    if semantic_arcs is None:
        valued = _valued_arcs(network, behind)
    else:
        valued = [a in semantic_arcs and len(b.outputs) == 1 for a, b in enumerate(behind)]
    return tuple(
        DropPlace(
            arc.number, _manner(behind[arc.number], valued[arc.number]),
            tuple(sorted(behind[arc.number].outputs)), behind[arc.number].span_ns,
        )
        for arc in network.arcs
        if legal[arc.number] and _saves_more(network, arc, behind, legal, valued)
    )  # fmt: skip


def find_downstream(network: Network) -> list[Downstream]:
    """Return, by arc, everything behind it. The answers for the last networks are kept: a change of the network asks
    six times, and a large one takes some milliseconds each time."""
    for known, answer in _asked:
        if known() is network:
            return list(answer)
    answer = _find_downstream(network)
    _asked.appendleft((ref(network), answer))
    return list(answer)


_asked: deque[tuple[ref[Network], list[Downstream]]] = deque(maxlen=4)


def _find_downstream(network: Network) -> list[Downstream]:
    found = [Downstream()] * len(network.arcs)
    for arc in network.arcs:
        if arc.output is not None:
            found[arc.number] = Downstream(frozenset((arc.output,)))
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
            found[a] = Downstream(outputs, wrong or span_ns > LONGEST_SPAN_NS, span_ns)
    return found


def outputs_behind(network: Network, arc: Arc) -> tuple[int, ...]:
    """Return the numbers of the outputs that tuples on this arc can reach."""
    return (arc.output,) if arc.output is not None else network.box_outputs[arc.box] if arc.box is not None else ()


def legal_arcs(network: Network, behind: list[Downstream], given_up: Container[int] = ()) -> list[bool]:
    """Return, by arc, whether anything may be dropped there."""
    sheds = shed_arcs(network)
    gives = [output.qos.shed_by is not None or output.number in given_up for output in network.outputs]
    return [
        ok and not b.wrong and bool(b.outputs) and all(gives[o] for o in b.outputs)
        for ok, b in zip(sheds, behind, strict=True)
    ]


def shed_arcs(network: Network) -> list[bool]:
    """Return, by arc, whether all streams that feed it have ``overload: shed``."""
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
    """Return the outputs whose loss graph is not concave: the shedder uses its hull instead."""
    return tuple(o for o in network.outputs if o.qos.shed_by is not None and not _is_concave(o.qos))


def _is_concave(qos: QoS) -> bool:
    graph = qos.shed_by
    assert graph is not None
    slopes = [graph.slope(x) for x, _ in graph.points[:-1]]
    return all(a >= b - 1e-12 for a, b in pairwise(slopes))


def _manner(behind: Downstream, is_valued: bool) -> Manner:
    return "windows" if behind.span_ns else "semantic" if is_valued else "random"


def _saves_more(network: Network, arc: Arc, behind: list[Downstream], legal: list[bool], valued: list[bool]) -> bool:
    """Return whether dropping here can save something that dropping on the arcs before it cannot."""
    if arc.source.box is None:
        return True
    before = network.boxes[arc.source.box].in_arcs
    if not all(legal[a] for a in before) or any(behind[a].outputs != behind[arc.number].outputs for a in before):
        return True
    return valued[arc.number] and not behind[arc.number].span_ns and not all(valued[a] for a in before)


def _valued_arcs(network: Network, behind: list[Downstream]) -> list[bool]:
    """Return, by arc, whether the value graph of the one output behind it can be evaluated there."""
    fields = [(o.qos.value_field,) if o.qos.value is not None else () for o in network.outputs]
    valued = [False] * len(network.arcs)

    def is_valued(arc: Arc) -> bool:
        [output] = behind[arc.number].outputs
        wanted = fields[output]
        if not wanted or not all(name in arc.schema for name in wanted):
            return False
        if arc.box is None:
            return True
        node = network.boxes[arc.box]
        after = [a for arcs in node.out_arcs for a in arcs if behind[a].outputs]
        return all(valued[a] for a in after) and all(node.box.keeps(name) for name in wanted)

    for arc in sorted(network.arcs, key=lambda a: len(network.boxes) if a.box is None else a.box, reverse=True):
        if len(behind[arc.number].outputs) == 1:
            valued[arc.number] = is_valued(arc)
    return valued


def _time_passes(network: Network, box: int, arc: Arc) -> bool:
    """Return whether tuples leave the box with the same event time that they have on this arc."""
    node = network.boxes[box]
    after = [network.arcs[a].time_field for arcs in node.out_arcs for a in arcs]
    if arc.time_field == "" or any(t != arc.time_field for t in after):
        return False
    return arc.time_field is None or bool(node.box.keeps(arc.time_field))
