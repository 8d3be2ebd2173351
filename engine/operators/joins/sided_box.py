"""A box with two sides that remembers the tuples of both by key: ``join`` and ``resample``."""

from __future__ import annotations

from engine.operators.boxes.keyed import KeyedBox
from engine.operators.expressions import Vector
from engine.operators.joins.held import JoinState
from engine.operators.joins.side import Side
from engine.operators.state.columns import Numbers
from engine.operators.state.keys import KeyTable
from storage.train import Train


class SidedBox(KeyedBox):
    """Its state is a ``JoinState``. ``bind`` sets the sides."""

    _sides: tuple[Side, Side]

    def key_of(self, port: int, train: Train) -> list[Vector]:
        side = self._sides[port]
        return side.key_of(side.kept(train))

    def key_fields(self, port: int) -> tuple[str | None, ...]:
        side = self._sides[port]
        plain = [e.node.field for e in side.key]
        return tuple(None if name is None else name.removeprefix(side.prefix) for name in plain)

    def times_of(self, port: int, train: Train) -> Numbers:
        side = self._sides[port]
        return side.times(side.kept(train))

    def keys_in(self, state: JoinState) -> KeyTable:
        return state.keys

    def last_ns(self, state: JoinState) -> Numbers:
        return state.last_ns()

    def is_empty(self, state: JoinState) -> bool:
        return state.is_empty
