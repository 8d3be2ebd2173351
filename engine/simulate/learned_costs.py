"""Costs and selectivities that a running daemon has learned, for a simulation of its network (``--from-stats``)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from catalog.errors import AuroraError
from catalog.network import Network
from catalog.stats import Statistics
from engine.run.declared_costs import declared_costs

TRUSTED_CALLS = 4.0  # times the declared cost of a call: a learned one above it is charged to the tuples


class CostsError(AuroraError):
    """The daemon's statistics do not fit the network."""


def learned_costs(network: Network, stats: Mapping[str, Any], source: str) -> Statistics:
    """Read the answer of ``/api/v1/stats``. Boxes are matched by name; ``source`` names the daemon in errors."""
    statistics = declared_costs(network)
    known = {b.get("name"): b for b in stats.get("boxes", ())}
    missing = [b.name for b in network.boxes if b.name not in known]
    if missing:
        raise CostsError(f"the daemon at {source} runs another network: it has no box {', '.join(missing[:3])}")
    for node in network.boxes:
        box, number = known[node.name], node.number
        if not box.get("calls"):
            continue  # it never ran: the declared cost is the better guess
        train = max(1.0, box["mean_train_tuples"])
        # Trains of about one length do not show which part of a cost is the call's: the sum at that length is sure.
        call_ns = min(box["cost_per_call_ns"], TRUSTED_CALLS * float(statistics.cost_per_call_ns[number]))
        whole_ns = box["cost_per_tuple_ns"] + box["cost_per_call_ns"] / train
        statistics.cost_per_call_ns[number] = call_ns
        statistics.cost_per_tuple_ns[number] = whole_ns - call_ns / train
        statistics.train_tuples[number] = train
        by_port = np.array(box.get("tuples_out_by_port") or [1.0], np.float64)
        start, stop = int(statistics.port_start[number]), int(statistics.port_start[number + 1])
        shares = by_port / by_port.sum() if by_port.sum() else np.full(stop - start, 1 / (stop - start))
        statistics.selectivity[number] = box["selectivity"]
        statistics.port_selectivity[start:stop] = box["selectivity"] * shares
    rates = {s.get("name"): float(s.get("rate_per_s") or 0.0) for s in stats.get("streams", ())}
    for stream in network.streams:
        statistics.rate_per_s[stream.number] = rates.get(stream.name, 0.0)
    return statistics
