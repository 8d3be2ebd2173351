"""Who may lose tuples without a plan: streams that overflow, and arcs on which tuples die of old age.

- *Overflow*: a stream with ``overload: shed`` is read also while memory is full, and what comes then is dropped and
  counted as unintended: a controller that looks ten times a second may come too late for a burst. Only where every
  queue behind it may lose something (``load_shedder/places``): else the stream waits, as one that blocks does.
- *Deadlines*: a tuple that will reach no output before its dead point, where the latency graph has fallen to 0, is not
  worth computing. Only on arcs that shed streams alone lead to, and with boxes behind them that work row by row: a join
  may make a fresh result of an old tuple, and a window is spoiled by one that is missing.
"""

from __future__ import annotations

from catalog.network import Network
from catalog.qos import QoSGraph
from engine.shed.values import outputs_behind
from load_shedder.places import legal_arcs, shed_arcs, what_lies_behind

DeadPoints = tuple[tuple[int, int], ...]
"""(output, ns after arrival): when a tuple is of no use to it any more."""


def overflowing_streams(network: Network) -> frozenset[int]:
    legal = legal_arcs(network, what_lies_behind(network))
    return frozenset(
        stream.number
        for stream in network.streams
        if stream.overload == "shed"
        and stream.arcs
        and all(legal[a] for a in stream.arcs if network.arcs[a].box is not None)
    )


def dead_points(network: Network) -> dict[int, DeadPoints]:
    """By arc with a queue: for each output behind it, when it is too late. Arcs where that is never are left out."""
    sheds, behind = shed_arcs(network), what_lies_behind(network)
    simple = _row_wise_behind(network)
    found: dict[int, DeadPoints] = {}
    for arc in network.arcs:
        if arc.box is None or not sheds[arc.number] or not simple[arc.number] or behind[arc.number].wrong:
            continue
        points = [(o, dead_ns(network.outputs[o].qos.latency)) for o in outputs_behind(network, arc)]
        if points and all(at is not None for _, at in points):
            found[arc.number] = tuple((o, at) for o, at in points if at is not None)
    return found


def dead_ns(latency: QoSGraph | None) -> int | None:
    """The delay from which on a tuple is worth nothing; None when it always keeps some worth."""
    if latency is None or latency.points[-1][1] > 0.0:
        return None
    return int(min(x for x, y in latency.points if y <= 0.0))


def _row_wise_behind(network: Network) -> list[bool]:
    simple = [True] * len(network.arcs)
    for node in reversed(network.boxes):
        mine = node.box.row_wise and all(simple[a] for arcs in node.out_arcs for a in arcs)
        for a in node.in_arcs:
            simple[a] = mine
    return simple
