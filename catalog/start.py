"""Where an output with a ``start`` takes up history: the arcs by which tuples enter its own boxes.

Going back from the output, each arc begins at a stream, at a box of this query alone, or at a box that other queries
use as well. History is read at the first kept place on the way. The boxes between that place and the output must be the
query's own: a box that others use would show them old tuples again.

    trades (kept) -> large (own) -> sums (own) -> totals       the arc trades->large
    trades (kept) -> large (shared) -> sums (own) -> totals    refused: keep the history of large as well
    trades -> large (kept, shared) -> sums (own) -> totals     the arc large->sums
"""

from __future__ import annotations

from catalog.errors import AuroraError
from catalog.network import Arc, Network, Output


class NoHistoryError(AuroraError):
    """A query cannot start in the past: a place that it reads keeps no history."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message)
        self.hint = hint


def start_arcs(network: Network, output: Output) -> tuple[Arc, ...]:
    """Return the arcs by which history enters the boxes of an output. Raises NoHistoryError."""
    found: dict[int, Arc] = {}
    ahead = [output.arc]
    while ahead:
        arc = network.arcs[ahead.pop()]
        source = arc.source
        if source in network.kept_sources:
            found[arc.number] = arc
        elif source.box is None:
            name = network.streams[source.stream or 0].name
            raise NoHistoryError(f"the stream '{name}' keeps no history", f"write keep: {{for: 24h}} on '{name}'")
        elif network.box_outputs[source.box] != (output.number,):
            name = network.boxes[source.box].name
            raise NoHistoryError(
                f"the box '{name}' is shared with other outputs and keeps no history",
                f"write keep: {{for: 24h}} on '{name}', or give this output a box of its own",
            )
        else:
            ahead += network.boxes[source.box].in_arcs
    return tuple(found[number] for number in sorted(found))
