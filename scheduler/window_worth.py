"""A box with windows is ready only when a window's worth of tuples waits (P3), as far as no result comes later by it.

P3 ("Putting It All Together"): "note that for a box to be schedulable, its queue must at least contain its window's
worth of tuples". Fewer, longer trains are the aim there. A box here takes tuples into its window one by one, so running
it early gives the same results with more calls. With ``scheduler: {window_worth: true}`` such a box waits until

- the watermarks on its queue pass the end of a window: then there is a result to compute,
- or a whole train waits, by the train rule ``auto``: so the work at the end of a window stays within its bound,
- or memory is short,
- or nothing else is to do: in an engine at rest the rule has no effect.

Windows by count and sessions, results on every change, timeouts, a reader of late tuples, and boxes behind that need
event time exclude a box from the rule: there a tuple or a watermark may have an effect before the end of a window.
"""

from __future__ import annotations

from catalog.network import BoxNode, Network
from storage.train import NO_WATERMARK


class WindowWorth:
    """The watermarks on the queues of boxes with windows. Owner: the scheduler's state."""

    def __init__(self, network: Network) -> None:
        grids = {node.number: grid for node in network.boxes if (grid := grid_of(network, node)) is not None}
        self._grids = grids  # by box: from one end of a window to the next, and where the ends lie
        self._came_ns = dict.fromkeys(grids, NO_WATERMARK)  # the highest watermark on the queue so far
        self._taken_ns = dict.fromkeys(grids, NO_WATERMARK)  # the highest that a plan has taken

    def __contains__(self, box: int) -> bool:
        return box in self._grids

    def came(self, box: int, watermark_ns: int) -> None:
        self._came_ns[box] = max(self._came_ns[box], watermark_ns)

    def taken(self, box: int, watermark_ns: int) -> None:
        self._taken_ns[box] = max(self._taken_ns[box], watermark_ns)

    def is_there(self, box: int) -> bool:
        """Return whether the watermarks on the queue of a box pass the end of a window. True before the first one was
        taken: a restored window may end anywhere."""
        advance_ns, phase_ns = self._grids[box]
        taken_ns = self._taken_ns[box]
        if taken_ns == NO_WATERMARK:
            return True
        return (self._came_ns[box] - phase_ns) // advance_ns > (taken_ns - phase_ns) // advance_ns


def grid_of(network: Network, node: BoxNode) -> tuple[int, int] | None:
    """Return the grid of the ends of a box's windows, if nothing but such an end has an effect; else None."""
    is_seen = any(network.arcs[a].timed for arcs in node.out_arcs for a in arcs) or any(node.out_arcs[1:])
    grid: tuple[int, int] | None = None if is_seen or len(node.in_arcs) > 1 else node.box.window_ends_ns()
    return grid
