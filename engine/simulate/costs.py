"""What boxes cost in a simulation: declared in the network file, taken from a running daemon, or measured.

Where nothing is known of a box its kind decides: ``KIND_COSTS`` holds what boxes of that kind cost on a 2-core machine,
measured by ``calibrate.py`` on simple expressions. Good for an order of magnitude; a daemon that has run the network
for a minute knows better (``--from-stats``).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from catalog.errors import AuroraError
from catalog.network import Network
from catalog.stats import Statistics

KIND_COSTS: Mapping[str, tuple[float, float]] = {
    # kind: ns a call, ns a tuple
    "filter": (12_000.0, 4.0),
    "map": (15_000.0, 3.0),
    "case": (25_000.0, 15.0),
    "union": (5_000.0, 1.0),
    "universal": (4_000.0, 0.0),
    "aggregate": (80_000.0, 30.0),
    "join": (100_000.0, 150.0),
    "bsort": (70_000.0, 500.0),
    "dedup": (90_000.0, 60.0),
    "latest": (120_000.0, 60.0),
    "resample": (100_000.0, 150.0),
    "python": (20_000.0, 100.0),
}
OTHER_COST = (20_000.0, 20.0)
CHOOSING = ("filter", "case", "join", "dedup", "aggregate", "top")


class CostsError(AuroraError):
    """A daemon whose statistics do not fit the network."""


def declared(network: Network) -> Statistics:
    """From the network file: ``cost`` and ``selectivity`` of a box, or those of its kind."""
    statistics = Statistics(network)
    for node in network.boxes:
        call_ns, tuple_ns = KIND_COSTS.get(node.kind, OTHER_COST)
        parameters = getattr(node.box, "parameters", None)
        if node.kind in ("universal", "union") and node.cost_ns is None:
            tuple_ns += float(getattr(parameters, "cost", 0))
        statistics.cost_per_call_ns[node.number] = call_ns + float(getattr(parameters, "call_cost", 0))
        statistics.cost_per_tuple_ns[node.number] = tuple_ns if node.cost_ns is None else node.cost_ns
        given = getattr(parameters, "selectivity", None)
        if node.selectivity is None and given is not None:
            set_selectivity(statistics, node.number, float(given))
    return statistics


def unknown_selectivities(network: Network) -> list[str]:
    """Boxes that choose among tuples, and nothing in the file says how many they let through."""
    known = [node for node in network.boxes if node.selectivity is None and node.kind in CHOOSING]
    return [node.name for node in known if getattr(getattr(node.box, "parameters", None), "selectivity", None) is None]


def set_selectivity(statistics: Statistics, box: int, selectivity: float) -> None:
    """Of a box, shared evenly by its ports."""
    start, stop = int(statistics.port_start[box]), int(statistics.port_start[box + 1])
    statistics.selectivity[box] = selectivity
    statistics.port_selectivity[start:stop] = selectivity / (stop - start)


def from_stats(network: Network, stats: Mapping[str, Any], source: str) -> Statistics:
    """What a running daemon has learned (``/api/v1/stats``). Boxes are matched by name."""
    statistics = declared(network)
    known = {b.get("name"): b for b in stats.get("boxes", ())}
    missing = [b.name for b in network.boxes if b.name not in known]
    if missing:
        raise CostsError(f"the daemon at {source} runs another network: it has no box {', '.join(missing[:3])}")
    for node in network.boxes:
        box, number = known[node.name], node.number
        if not box.get("calls"):
            continue  # never ran: what the file says is the better guess
        statistics.cost_per_call_ns[number] = box["cost_per_call_ns"]
        statistics.cost_per_tuple_ns[number] = box["cost_per_tuple_ns"]
        statistics.train_tuples[number] = max(1.0, box["mean_train_tuples"])
        by_port = np.array(box.get("tuples_out_by_port") or [1.0], np.float64)
        start, stop = int(statistics.port_start[number]), int(statistics.port_start[number + 1])
        shares = by_port / by_port.sum() if by_port.sum() else np.full(stop - start, 1 / (stop - start))
        statistics.selectivity[number] = box["selectivity"]
        statistics.port_selectivity[start:stop] = box["selectivity"] * shares
    rates = {s.get("name"): float(s.get("rate_per_s") or 0.0) for s in stats.get("streams", ())}
    for stream in network.streams:
        statistics.rate_per_s[stream.number] = rates.get(stream.name, 0.0)
    return statistics
