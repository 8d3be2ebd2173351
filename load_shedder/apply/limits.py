"""Two limits that drop tuples without a plan: streams that overflow, and arcs on which tuples expire.

- *Overflow*: a stream with ``overload: shed`` is read even while memory is full. Its tuples are then dropped and
  counted as unintended: the controller runs ten times a second, which may be too late for a burst. This holds only
  where every queue behind the stream may lose tuples (``decide/places``). Any other stream waits, like one that blocks.
- *Expiry*: a tuple that cannot reach any output before its dead point, where the latency graph has fallen to 0, is not
  worth computing. While the plan in force sheds an output, its tuples expire earlier, at ``WORTH`` of their utility:
  the worker that serves an old tuple does not serve a new one, which is worth more and is dropped instead. This holds
  only on arcs that are fed by shedding streams alone, and only when all boxes behind them work row by row: a join may
  make a fresh result of an old tuple, and a missing tuple spoils a window. While the plan sheds all outputs behind an
  inner join with a band, tuples expire before it too, later by the band: what waits there longer finds partners that
  have waited as long, and all of their pairs would expire behind the join, after its work.
"""

from __future__ import annotations

from collections.abc import Container

import numpy as np

from catalog.network import BoxNode, Network
from catalog.qos import QoSGraph
from load_shedder.decide.places import find_downstream, legal_arcs, outputs_behind, shed_arcs

WORTH = 0.9  # of the utility of a new tuple
EDGE_LEAST_NS, EDGE_WAIT_NS = 15_000_000, 250_000_000  # the least and the most that a row may wait undecoded

DeadPoints = tuple[tuple[int, int], ...]
"""(output, ns after arrival): the age from which on a tuple is worth nothing to the output."""


def overflowing_streams(network: Network) -> frozenset[int]:
    """Return the streams that drop tuples when memory is full, instead of waiting."""
    legal = legal_arcs(network, find_downstream(network))
    return frozenset(
        stream.number
        for stream in network.streams
        if stream.overload == "shed"
        and stream.arcs
        and all(legal[a] for a in stream.arcs if network.arcs[a].box is not None)
    )


def edge_waits_ns(network: Network) -> dict[int, int]:
    """Return the streams of which rows may be dropped undecoded, and how long their rows may wait for the decoder.

    Undecoded rows have no event time, so nothing behind such a stream may need whole windows or all of its input. An
    output without a loss graph does not forbid it: when the edge is full, no other drop could save the output.
    """
    behind = find_downstream(network)
    found = {}
    for stream in network.streams:
        if stream.overload != "shed" or not stream.arcs:
            continue
        if any(behind[a].wrong or behind[a].span_ns for a in stream.arcs):
            continue
        outputs = frozenset[int]().union(*(behind[a].outputs for a in stream.arcs))
        deadlines = [d for o in outputs if (d := network.outputs[o].qos.deadline_ns) is not None]
        found[stream.number] = min(max(min(deadlines, default=4 * EDGE_WAIT_NS) // 4, EDGE_LEAST_NS), EDGE_WAIT_NS)
    return found


class Expiry:
    """Where tuples expire, and when. Immutable."""

    def __init__(self, network: Network) -> None:
        sheds, behind = shed_arcs(network), find_downstream(network)
        bands = _bands_behind(network)
        dead = [dead_ns(o.qos.latency) for o in network.outputs]
        self._worth = [worth_ns(o.qos.latency) for o in network.outputs]
        self._arcs: dict[int, DeadPoints] = {}
        self._band_ns: dict[int, int] = {}  # by arc before a join
        for arc in network.arcs:
            band_ns = bands[arc.number]
            if arc.box is None or not sheds[arc.number] or band_ns is None or behind[arc.number].wrong:
                continue
            points = [(o, dead[o]) for o in outputs_behind(network, arc)]
            if points and all(at is not None for _, at in points):
                self._arcs[arc.number] = tuple((o, at) for o, at in points if at is not None)
                if band_ns:
                    self._band_ns[arc.number] = band_ns

    def points(self, shed: Container[int] = ()) -> dict[int, DeadPoints]:
        """Return, by arc with a queue, when its tuples expire for the outputs behind it. Left out: arcs where nothing
        expires. ``shed`` are the outputs of which the plan in force drops tuples."""
        worth, bands = self._worth, self._band_ns
        return {
            arc: tuple((o, (min(at_ns, worth[o]) if o in shed else at_ns) + bands.get(arc, 0)) for o, at_ns in points)
            for arc, points in self._arcs.items()
            if arc not in bands or all(o in shed for o, _ in points)
        }


def dead_ns(latency: QoSGraph | None) -> int | None:
    """Return the delay from which on a tuple is worth nothing; None when it always keeps some worth."""
    if latency is None or latency.points[-1][1] > 0.0:
        return None
    return int(min(x for x, y in latency.points if y <= 0.0))


def worth_ns(latency: QoSGraph | None) -> int:
    """Return the delay at which a tuple has lost so much that a new one is better served."""
    if latency is None or latency.points[-1][1] >= WORTH * latency.points[0][1]:
        return 2**62
    # The graph never rises, so its points from last to first have rising utilities.
    xs, ys = latency.xs[::-1], latency.ys[::-1]
    return int(np.interp(WORTH * latency.points[0][1], ys, xs))


def _bands_behind(network: Network) -> list[int | None]:
    """Return, by arc, the bands of the joins behind it, in ns: 0 where all boxes work row by row, None where another
    box lies behind it."""
    bands: list[int | None] = [0] * len(network.arcs)
    for node in reversed(network.boxes):
        own = 0 if node.box.row_wise else _band_ns(node)
        after = [bands[a] for arcs in node.out_arcs for a in arcs]
        known = [ns for ns in after if ns is not None]
        mine = None if own is None or len(known) < len(after) else own + max(known, default=0)
        for a in node.in_arcs:
            bands[a] = mine
    return bands


def _band_ns(node: BoxNode) -> int | None:
    if node.kind != "join" or any(node.box.under_loss(port) != "subset" for port in range(len(node.in_arcs))):
        return None
    met_ns: tuple[int, int] | None = node.box.met_ns()
    return None if met_ns is None or sum(met_ns) <= 1 else max(met_ns)
