"""Warn before the first overload: where ``overload: shed`` in the network file cannot keep its promise.

- A stream has ``overload: shed``, but none of its tuples may be dropped. Or the shedding streams together cannot save
  half of their work, so that twice the load could not be cured; then each stream that falls short is named, with the
  outputs and boxes that stand in the way.
- A loss graph is not concave: the shedder uses its hull, and may promise more than the graph keeps.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from catalog.load import LoadModel
from catalog.network import Network, Stream
from catalog.stats import Statistics
from load_shedder.decide.places import Downstream, find_downstream, find_places, hulled_outputs
from load_shedder.decide.road_map import draw_map
from load_shedder.decide.segments import ModelCosts
from load_shedder.shed_plan import DropPlace

CURABLE = 0.5  # of the work of a stream: at twice the load, half of the work must be shed
NAMED_AT_MOST = 3


class ShedWarning(NamedTuple):
    path: tuple[str, ...]  # in the network file
    message: str
    hint: str


def shed_warnings(network: Network, statistics: Statistics) -> list[ShedWarning]:
    """Return the warnings for this network. ``statistics`` hold the declared costs; all rates are taken as equal."""
    sheds = [s for s in network.streams if s.overload == "shed" and s.arcs]
    if not sheds:
        return []
    places, behind = find_places(network), find_downstream(network)
    least = CURABLE if _curable(network, places, statistics, sheds) < CURABLE else 0.0
    warned = []
    for stream in sheds:
        part = _curable(network, places, statistics, [stream])
        if part < least or part <= 0:
            limit = "none of its tuples may be dropped" if part <= 0 else f"at most {part:.0%} of its work can be shed"
            at = ("streams", stream.name, "overload")
            hint = _obstacles(network, stream, behind, _output_parts(network, statistics))
            warned.append(ShedWarning(at, f"overload: shed, but {limit}", hint))
    touched = {o for s in sheds for a in s.arcs for o in behind[a].outputs}
    return warned + [
        ShedWarning(
            ("outputs", output.name, "qos"),
            "the loss graph is not concave: the load shedder uses its hull and may promise more than it keeps",
            "make each piece steeper than the next one at a higher share",
        )
        for output in hulled_outputs(network)
        if output.number in touched
    ]


def _curable(network: Network, places: Sequence[DropPlace], statistics: Statistics, streams: Sequence[Stream]) -> float:
    """Return the share of the work of these streams that can be shed; 1 when they cause no work."""
    costs = ModelCosts.of(statistics)
    rates = [1.0 if s in streams else 0.0 for s in network.streams]
    found = draw_map(
        network, places, ModelCosts(costs.box_ns, costs.port_selectivity, costs.port_start, costs.output_ns, rates)
    )
    return found.most_ns / found.load_ns if found.load_ns > 0 else 1.0


def _output_parts(network: Network, statistics: Statistics) -> list[float]:
    """Return, by output, the share of all work that the boxes before it do, at equal rates of all streams."""
    costs = ModelCosts.of(statistics)
    model = LoadModel(network)
    flow = model.flow(np.ones(len(network.streams)), np.asarray(costs.port_selectivity))
    work = flow.boxes * np.asarray(costs.box_ns)
    total = float(work.sum())
    parts = [0.0] * len(network.outputs)
    for node in network.boxes:
        for output in network.box_outputs[node.number]:
            parts[output] += float(work[node.number]) / total if total > 0 else 0.0
    return parts


def _obstacles(network: Network, stream: Stream, behind: list[Downstream], parts: Sequence[float]) -> str:
    """Name what stands in the way behind this stream: outputs without a loss graph, boxes that may lose nothing.
    ``parts`` is by output the share of the work before it."""
    touched = sorted({o for a in stream.arcs for o in behind[a].outputs})
    strict = [network.outputs[o].name for o in touched if network.outputs[o].qos.shed_by is None]
    if strict:
        advice = f"give {_list(strict)} a loss graph or lossy: an output without one may lose nothing"
        dearest = max((o for o in touched if network.outputs[o].qos.shed_by is None), key=lambda o: parts[o])
        if parts[dearest] <= CURABLE:
            return advice
        part, name = parts[dearest], network.outputs[dearest].name
        why = f"'{name}' needs {part:.0%} of the work, so from {1 / part:.1f} times the knee on no plan saves it"
        return f"{advice}; {why}"
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
        return f"{_list(lossless)} would answer wrongly if tuples were missing"
    return "the boxes that it alone feeds cost little: set overload: shed on the streams that share its other boxes"


def _list(names: list[str]) -> str:
    shown = ", ".join(f"'{name}'" for name in names[:NAMED_AT_MOST])
    return shown + (f" and {len(names) - NAMED_AT_MOST} more" if len(names) > NAMED_AT_MOST else "")
