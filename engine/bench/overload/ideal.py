"""The best that any shedder could do: the road map's plan for a load, at what a tuple costs the daemon below its knee.

All of the capacity is used, the plan is in force from the first tuple on, and nothing that is kept is late. What a real
one lacks of that is what it pays for not knowing what comes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from catalog.network import Network
from catalog.shed import Values
from engine.bench.overload.expect import Sums
from engine.shed.values import Judges, outputs_behind
from load_shedder.places import find_places
from load_shedder.road_map import draw_map
from load_shedder.segments import Costs

CELLS = 64


class Ideal:
    """``stats`` is what the daemon answers; ``mix`` the share of each stream in what comes; ``sums`` know worths."""

    def __init__(
        self, network: Network, stats: Mapping[str, Any], mix: Mapping[str, float], sums: Iterable[Sums]
    ) -> None:
        self._network, self._boxes = network, stats["boxes"]
        self._rates = [mix[s.name] for s in network.streams]
        judged = Judges(network).semantic_arcs
        self._places = find_places(network, judged)
        found = list(sums)
        self._values = {a: v for a in judged if (v := _values(network, a, found)) is not None}

    def utility(self, load: float) -> float:
        """At so many times the knee. Trains grow with the load, and the cost of a call is shared by more tuples."""
        ports = [list(b["tuples_out_by_port"]) or [b["tuples_out"]] for b in self._boxes]
        costs = Costs(
            box_ns=[
                b["cost_per_tuple_ns"] + b["cost_per_call_ns"] / max(1.0, b["mean_train_tuples"] * load)
                for b in self._boxes
            ],
            port_selectivity=[
                out / max(1, b["tuples_in"]) for b, each in zip(self._boxes, ports, strict=True) for out in each
            ],
            port_start=np.cumsum([0, *map(len, ports)]).tolist(),
            output_ns=[0.0] * len(self._network.outputs),
            rate_per_s=self._rates,
        )
        road_map = draw_map(self._network, self._places, costs, values=self._values)
        saving_ns = max(0.0, 1.0 - 1.0 / load) * road_map.load_ns
        if saving_ns > road_map.most_ns:
            return 0.0  # no plan is enough: in the end everything is late
        return len(self._network.outputs) - float(np.interp(saving_ns, road_map.saved_ns, road_map.loss))


def _values(network: Network, arc: int, sums: Iterable[Sums]) -> Values | None:
    """What tuples on an arc are worth, from what comes out of the one output behind it."""
    outputs = outputs_behind(network, network.arcs[arc])
    if len(outputs) != 1:
        return None
    name = network.outputs[outputs[0]].name
    each = [worth for s in sums for worth in s.worths.get(name, ())]
    if not each:
        return None
    worths, counts = np.unique(np.round(np.concatenate(each) * CELLS) / CELLS, return_counts=True)
    return Values(tuple((counts / counts.sum()).tolist()), tuple(worths.tolist()))
