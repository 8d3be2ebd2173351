"""Taps: callables that see every train at one place. A place without a tap costs nothing.

Plans are compiled with the taps that exist. Inside a superbox trains bypass the queues, and a fused chain makes no
trains at all. So an arc with a tap is taken out of its chain, and the workers forget all compiled plans whenever a tap
comes or goes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from threading import Lock

from catalog.describe import TapPlace
from catalog.errors import AuroraError, ExpressionError
from catalog.network import Network, PortRef
from catalog.schema import Type
from engine.operators.expressions import Scope, compile_expression
from storage.train import Train

Watch = Callable[[Train], None]


class Taps:
    """Any thread may register a tap. The threads that move trains read the tables without a lock."""

    def __init__(self, network: Network, on_change: Callable[[], None], kept: Mapping[PortRef, Watch]) -> None:
        """``kept``: by port of a box, the history that sees its trains, for good."""
        self._network = network
        self.kept = kept
        self._lock = Lock()
        self.on_change = on_change
        self.arcs: dict[int, tuple[Watch, ...]] = {}  # from a box to a box
        self.streams: dict[int, tuple[Watch, ...]] = {}
        self.outputs: dict[int, tuple[Watch, ...]] = {}

    def register(self, place: TapPlace, watch: Watch) -> Callable[[], None]:
        """Call ``watch`` with every train that passes the place. Returns a callable that ends this."""
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

    def _table(self, place: TapPlace) -> tuple[dict[int, tuple[Watch, ...]], int]:
        if place.kind == "stream":
            return self.streams, place.number
        if place.kind == "output":
            return self.outputs, place.number
        source = self._network.arcs[place.number].source
        if source.stream is not None:  # the arc carries the stream's trains
            return self.streams, source.stream
        return self.arcs, place.number


class TapFilterError(AuroraError):
    """The expression of a tap is wrong."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message)
        self.hint = hint


def tap_filter(place: TapPlace, where: str) -> Callable[[Train], Train]:
    """Return a callable that keeps the tuples of a train for which the expression is true. Raises TapFilterError."""
    try:
        predicate = compile_expression(where, place.schema, expect=Type.BOOLEAN)
    except ExpressionError as error:
        raise TapFilterError(f"where: {error.message}", error.hint) from error

    def keep(train: Train) -> Train:
        mask = predicate.mask(Scope(train))
        return train if mask is None else train.where(mask)

    return keep


def offer(watches: tuple[Watch, ...], train: Train) -> None:
    for watch in watches:
        watch(train)
