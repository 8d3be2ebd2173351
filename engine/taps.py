"""Who watches which arc. A place that nobody watches costs nothing: plans are compiled with the taps that exist.

Inside a superbox trains bypass queues and fused chains make no trains at all; so a watched arc is taken out of the
chain while it is watched, and the compiled plans are forgotten whenever a tap comes or goes.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock

from catalog.describe import Place
from catalog.network import Network
from storage.train import Train

Watch = Callable[[Train], None]


class Taps:
    """Any thread may register; the threads that move trains read."""

    def __init__(self, network: Network, on_change: Callable[[], None] = lambda: None) -> None:
        self._network = network
        self._lock = Lock()
        self.on_change = on_change
        self.arcs: dict[int, tuple[Watch, ...]] = {}  # from a box to a box
        self.streams: dict[int, tuple[Watch, ...]] = {}
        self.outputs: dict[int, tuple[Watch, ...]] = {}

    def register(self, place: Place, watch: Watch) -> Callable[[], None]:
        """Call ``watch`` with every train that passes the place; how to stop that."""
        where, number = self._table(place)
        with self._lock:
            where[number] = (*where.get(number, ()), watch)
        self.on_change()

        def unregister() -> None:
            with self._lock:
                left = tuple(w for w in where[number] if w is not watch)
                if left:
                    where[number] = left
                else:
                    del where[number]
            self.on_change()

        return unregister

    def _table(self, place: Place) -> tuple[dict[int, tuple[Watch, ...]], int]:
        if place.kind == "stream":
            return self.streams, place.number
        if place.kind == "output":
            return self.outputs, place.number
        source = self._network.arcs[place.number].source
        if source.stream is not None:  # the arc carries what the stream does
            return self.streams, source.stream
        return self.arcs, place.number


def offer(watches: tuple[Watch, ...], train: Train) -> None:
    for watch in watches:
        watch(train)
