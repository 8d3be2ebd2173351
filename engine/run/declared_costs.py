"""What boxes cost before anything has been measured: the declarations of the network file, else defaults by kind.

A box declares its cost with ``cost`` and its selectivity with ``selectivity``. For a box without a declared cost,
``Box.typical_cost_ns`` is the cost of its kind, measured by ``engine/simulate/measure_costs`` on simple expressions on
a machine with 2 cores. That gives the order of magnitude. A daemon that has run the network for a minute knows better
(``aurorad simulate --from-stats``).

`aurorad validate` warns by these costs where an overload cannot be cured, and a simulation starts from them.
"""

from __future__ import annotations

from catalog.network import Network
from catalog.stats import Statistics


def declared_costs(network: Network) -> Statistics:
    """Read the declared costs and selectivities of a network; a box that declares no cost has that of its kind."""
    statistics = Statistics(network)
    for node in network.boxes:
        call_ns, tuple_ns = node.box.typical_cost_ns
        parameters = getattr(node.box, "parameters", None)
        if node.cost_ns is None:
            tuple_ns += float(getattr(parameters, "cost", 0))
        statistics.cost_per_call_ns[node.number] = call_ns + float(getattr(parameters, "call_cost", 0))
        statistics.cost_per_tuple_ns[node.number] = tuple_ns if node.cost_ns is None else node.cost_ns
        given = getattr(parameters, "selectivity", None)
        if node.selectivity is None and given is not None:
            set_selectivity(statistics, node.number, float(given))
    return statistics


def unknown_selectivities(network: Network) -> list[str]:
    """Name the boxes that drop some of their tuples and declare no selectivity: they count as passing every tuple."""
    silent = [node for node in network.boxes if node.selectivity is None and node.box.is_selective]
    return [node.name for node in silent if getattr(getattr(node.box, "parameters", None), "selectivity", None) is None]


def set_selectivity(statistics: Statistics, box: int, selectivity: float) -> None:
    """Set the selectivity of a box, shared evenly by its ports."""
    start, stop = int(statistics.port_start[box]), int(statistics.port_start[box + 1])
    statistics.selectivity[box] = selectivity
    statistics.port_selectivity[start:stop] = selectivity / (stop - start)
