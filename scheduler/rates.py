"""Output rates of boxes, where segments may share boxes: HR, HNR and BSD rank by them (P1).

A segment is the path from a box to an output. Its rate is its output over its work, S/C: S counts the tuples that come
out for one that goes in, and C is the expected work that this tuple causes. A weight for each output turns the rate
into that of HNR (1/T) or BSD (1/T^2).

If all branches behind a shared box counted, the poorest would drag its rate down. So the branches are ranked by their
own rate and added greedily while the rate of the whole does not fall. The rich branches are the reason to run the box;
the tuples of the poor branches run when their own turn comes.

A segment that leads through a join has the selectivity of its side of the join (P1 section 5, of which our excerpt
prints only the announcement: "multi-stream queries with time-based sliding window join operators"). A tuple meets the
tuples in the window of the other side, so its selectivity is s_J times the occupancy of that window, rate times length
(``join_selectivities``). Once both sides were measured, the measured values count.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

from catalog.network import Network


def output_rates(
    network: Network,
    cost_ns: Sequence[float],
    arc_selectivity: Sequence[float],
    weights: Sequence[float],
    input_factor: Sequence[float],
) -> list[float]:
    """Return by arc the weighted tuples out for a nanosecond of work that a tuple on it causes, over the branches that
    raise this rate.

    ``input_factor``, by arc: the selectivity for its tuples over the mean selectivity of its box.
    """
    gain = [0.0] * len(network.arcs)  # weighted tuples out for one tuple in, over the branches chosen
    work = [0.0] * len(network.arcs)  # their work, in nanoseconds
    for node in reversed(network.boxes):
        branches: list[tuple[float, float]] = []
        for a in chain.from_iterable(node.out_arcs):
            arc, share = network.arcs[a], arc_selectivity[a]
            if arc.output is not None:
                branches.append((share * weights[arc.output], 0.0))
            elif arc.box is not None:
                branches.append((share * gain[a], share * work[a]))
        cost = max(cost_ns[node.number], 1e-9)
        for a in node.in_arcs:
            factor = input_factor[a]
            gain[a], work[a] = best_branches(cost, [(g * factor, w * factor) for g, w in branches])
    return [g / w if w else 0.0 for g, w in zip(gain, work, strict=True)]


def best_branches(shared: float, branches: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Return gain and work of a shared cost together with the branches (gain, work) that raise its rate."""
    gain, work = 0.0, shared
    for more, extra in sorted(branches, key=lambda b: b[0] / b[1] if b[1] > 0 else float("inf"), reverse=True):
        if (gain + more) * work >= gain * (work + extra):
            gain, work = gain + more, work + extra
    return gain, work


def join_selectivities(
    selectivity: float, rates: tuple[float, float], met_ns: tuple[float, float]
) -> tuple[float, float] | None:
    """Return the selectivity of each side of a join, from its mean one and the occupancies of its windows.

    A left tuple finds occ_R = rate_R * V_R right ones, where V_R is the time for which they stay (``met_ns[0]``), and
    gives s_J occ_R results; a right tuple gives s_J occ_L. s_J follows from the mean: s (rate_L + rate_R) results a
    second are s_J (rate_L occ_R + rate_R occ_L). None while a side has no rate.
    """
    left, right = rates
    occupancy = right * met_ns[0], left * met_ns[1]  # found by a left tuple, by a right one
    pairs = left * occupancy[0] + right * occupancy[1]
    if pairs <= 0:
        return None
    per_pair = selectivity * (left + right) / pairs
    return per_pair * occupancy[0], per_pair * occupancy[1]
