"""What a user should know before the first overload: where ``overload: shed`` cannot keep its promise.

- A stream that says ``overload: shed`` and of which nothing may be dropped; and where of all that shed together so
  little may be dropped that twice the load could not be cured, those that are to blame; with the outputs and boxes that
  stand in the way.
- A loss graph that is not concave: the shedder goes by its hull, and may promise more than the graph keeps.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from catalog.network import Network, Stream
from catalog.shed import Place
from catalog.stats import Statistics
from load_shedder.places import Behind, find_places, hulled_outputs, what_lies_behind
from load_shedder.road_map import draw_map
from load_shedder.segments import Costs

CURABLE = 0.5  # of the work of a stream: twice the load needs half of it to be shed
NAMED_AT_MOST = 3


class Warned(NamedTuple):
    path: tuple[str, ...]  # in the network file
    message: str
    hint: str


def shed_warnings(network: Network, statistics: Statistics) -> list[Warned]:
    """``statistics`` as far as they are known before anything ran: declared costs. Rates are taken as alike."""
    sheds = [s for s in network.streams if s.overload == "shed" and s.arcs]
    if not sheds:
        return []
    places, behind = find_places(network), what_lies_behind(network)
    least = CURABLE if _curable(network, places, statistics, sheds) < CURABLE else 0.0
    warned = []
    for stream in sheds:
        part = _curable(network, places, statistics, [stream])
        if part < least or part <= 0:
            so = "nothing of it may be dropped" if part <= 0 else f"at most {part:.0%} of its work can be shed"
            at = ("streams", stream.name, "overload")
            warned.append(Warned(at, f"overload: shed, but {so}", _obstacles(network, stream, behind)))
    touched = {o for s in sheds for a in s.arcs for o in behind[a].outputs}
    return warned + [
        Warned(
            ("outputs", output.name, "qos"),
            "the loss graph is not concave: the load shedder goes by its hull and may promise more than it keeps",
            "let each piece be steeper than the one at a higher share",
        )
        for output in hulled_outputs(network)
        if output.number in touched
    ]


def _curable(network: Network, places: Sequence[Place], statistics: Statistics, streams: Sequence[Stream]) -> float:
    """The share of the work of these streams that can be shed; 1 when they cause none."""
    costs = Costs.of(statistics)
    rates = [1.0 if s in streams else 0.0 for s in network.streams]
    found = draw_map(
        network, places, Costs(costs.box_ns, costs.port_selectivity, costs.port_start, costs.output_ns, rates)
    )
    return found.most_ns / found.load_ns if found.load_ns > 0 else 1.0


def _obstacles(network: Network, stream: Stream, behind: list[Behind]) -> str:
    """Outputs without a loss graph and boxes that may lose nothing, behind this stream."""
    touched = sorted({o for a in stream.arcs for o in behind[a].outputs})
    strict = [network.outputs[o].name for o in touched if network.outputs[o].qos.shed_by is None]
    if strict:
        return f"give {_list(strict)} a loss graph or lossy: without one an output loses nothing"
    reached = {b for a in stream.arcs if (b := network.arcs[a].box) is not None}
    for node in network.boxes:
        if node.number in reached:
            reached |= set(network.fed[node.number])
    lossless = [
        n.name
        for n in network.boxes
        if n.number in reached and any(n.box.under_loss(port) == "wrong" for port in range(len(n.in_arcs)))
    ]
    if lossless:
        return f"{_list(lossless)} would give a wrong answer for a part of the input"
    return "what it has to itself costs little; let the streams that it meets shed too"


def _list(names: list[str]) -> str:
    shown = ", ".join(f"'{name}'" for name in names[:NAMED_AT_MOST])
    return shown + (f" and {len(names) - NAMED_AT_MOST} more" if len(names) > NAMED_AT_MOST else "")
