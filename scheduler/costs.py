"""Predict the cost of a sequence of box calls and the latency of its output, from the statistics (P0 section 4.1.2).

The model is that of the paper: a call costs its overhead plus a cost for each tuple, and its tuples come out one by one
while the call runs. All values are expected values: a box of selectivity 0.4 puts 0.4 tuples on the next queue.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from scheduler.facts import Facts


class Prediction(NamedTuple):
    total_ns: float  # until the last call has ended
    latency_ns: float  # mean, over the tuples that leave, from the start
    tuples_out: float
    calls: int


def predict(facts: Facts, sequence: Sequence[int], waiting: Mapping[int, float]) -> Prediction:
    """Predict a run of the boxes in this order. ``waiting``: the tuples that wait, by box."""
    network = facts.network
    members = frozenset(sequence)
    queue = dict(waiting)
    now_ns = 0.0
    out = late_ns = 0.0
    for box in sequence:
        tuples = queue.pop(box, 0.0)
        leaving = 0.0
        for port in network.boxes[box].out_arcs:
            for a in port:
                arc = network.arcs[a]
                made = tuples * facts.arc_selectivity[a]
                if arc.box in members and arc.box is not None:
                    queue[arc.box] = queue.get(arc.box, 0.0) + made
                else:
                    leaving += made
        out += leaving
        late_ns += leaving * (now_ns + facts.call_ns[box] + facts.tuple_ns[box] * (tuples + 1) / 2)
        now_ns += facts.call_ns[box] + facts.tuple_ns[box] * tuples
    return Prediction(now_ns, late_ns / out if out else 0.0, out, len(sequence))
