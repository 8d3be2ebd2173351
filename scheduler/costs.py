"""What a sequence of box calls will take and how late its output will be, by the statistics (P0 section 4.1.2).

The model of the paper: a call costs its overhead and so much a tuple; the tuples that leave come out one by one while
the call runs. Expected values throughout: a box of selectivity 0.4 puts 0.4 tuples on the next queue.
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
    """Run the boxes of ``sequence`` in this order, with this many tuples waiting for each."""
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
