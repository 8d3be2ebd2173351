"""Output rates of boxes, where segments may share boxes: HR, HNR and BSD rank by them (P1).

A segment is the path from a box to an output. Its rate is its output over its work, S/C: S counts the tuples that come
out for one that goes in, and C is the expected work that this tuple causes. A weight for each output turns the rate
into that of HNR (1/T) or BSD (1/T^2).

If all branches behind a shared box counted, the poorest would drag its rate down. So the branches are ranked by their
own rate and added greedily while the rate of the whole does not fall. The rich branches are the reason to run the box;
the tuples of the poor branches run when their own turn comes.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

from catalog.network import Network


def output_rates(
    network: Network, cost_ns: Sequence[float], arc_selectivity: Sequence[float], weights: Sequence[float]
) -> list[float]:
    """Return by box the weighted tuples out for a nanosecond of work, over the branches that raise this rate."""
    gain = [0.0] * len(network.boxes)  # weighted tuples out for one tuple in, over the branches chosen
    work = [0.0] * len(network.boxes)  # their work, in nanoseconds
    for node in reversed(network.boxes):
        branches: list[tuple[float, float]] = []
        for a in chain.from_iterable(node.out_arcs):
            arc, share = network.arcs[a], arc_selectivity[a]
            if arc.output is not None:
                branches.append((share * weights[arc.output], 0.0))
            elif arc.box is not None:
                branches.append((share * gain[arc.box], share * work[arc.box]))
        gain[node.number], work[node.number] = best_branches(max(cost_ns[node.number], 1e-9), branches)
    return [g / w for g, w in zip(gain, work, strict=True)]


def best_branches(shared: float, branches: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Return gain and work of a shared cost together with the branches (gain, work) that raise its rate."""
    gain, work = 0.0, shared
    for more, extra in sorted(branches, key=lambda b: b[0] / b[1] if b[1] > 0 else float("inf"), reverse=True):
        if (gain + more) * work >= gain * (work + extra):
            gain, work = gain + more, work + extra
    return gain, work
