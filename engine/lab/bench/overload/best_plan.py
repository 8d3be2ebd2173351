"""The best result of any shedder: the road map's plan for a load, at the costs that the daemon has below its knee.

The plan uses all of the capacity, is in force from the first tuple on, and no tuple that it keeps is late. The distance
of a real shedder to it is the price of not knowing the future.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from catalog.loss import ValueCells
from catalog.network import Network
from engine.lab.bench.overload.due_results import ResultSums
from engine.run.preference import CompiledPreference
from load_shedder.decide.places import find_places, outputs_behind
from load_shedder.decide.road_map import draw_map
from load_shedder.decide.segments import ModelCosts
from load_shedder.decide.values import Valuations

CELLS = 64


class BestPlan:
    """``stats`` is the answer of /api/v1/stats, ``mix`` the share of each stream in arrivals; ``sums`` has worths."""

    def __init__(
        self, network: Network, stats: Mapping[str, Any], mix: Mapping[str, float], sums: Iterable[ResultSums]
    ) -> None:
        self._network, self._boxes = network, stats["boxes"]
        self._rates = [mix[s.name] for s in network.streams]
        judged = Valuations(network, CompiledPreference).semantic_arcs
        self._places = find_places(network, judged)
        found = list(sums)
        self._values = {a: v for a in judged if (v := _values(network, a, found)) is not None}

    def utility(self, load: float) -> float:
        """Compute the sum of utilities at ``load`` times the knee. Trains grow with it, so more tuples share a call."""
        ports = [list(b["tuples_out_by_port"]) or [b["tuples_out"]] for b in self._boxes]
        costs = ModelCosts(
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
            return 0.0  # no plan saves enough: in the end everything is late
        return len(self._network.outputs) - float(np.interp(saving_ns, road_map.saved_ns, road_map.loss))


def _values(network: Network, arc: int, sums: Iterable[ResultSums]) -> ValueCells | None:
    """Compute the worth of an arc's tuples from the results of the one output behind it."""
    outputs = outputs_behind(network, network.arcs[arc])
    if len(outputs) != 1:
        return None
    name = network.outputs[outputs[0]].name
    each = [worth for s in sums for worth in s.worths.get(name, ())]
    if not each:
        return None
    worths, counts = np.unique(np.round(np.concatenate(each) * CELLS) / CELLS, return_counts=True)
    return ValueCells(tuple((counts / counts.sum()).tolist()), tuple(worths.tolist()))
