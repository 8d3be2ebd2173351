"""A box whose state falls apart by key: what the engine asks of it to keep its state within a limit.

``engine/operators/bounded`` divides such a state by the hash of the key, moves parts of it to disk and back, and evicts
keys. It knows nothing of windows or joins: it asks for the questions below, and for ``snapshot_of`` and ``restore``.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

from pydantic import Field as Parameter

from engine.operators.bounded.limits import StateLimits
from engine.operators.bounded.waiting import NEVER_NS
from engine.operators.boxes.base import Box, BoxParameters
from engine.operators.expressions import Vector
from engine.operators.state.columns import Numbers
from engine.operators.state.keys import KeyTable
from storage.train import Mask, Train


class KeyedParameters(BoxParameters):
    """Parameters of a box with a state by key."""

    state: StateLimits = Parameter(
        default_factory=StateLimits, description="limits of what the box remembers in memory, and what happens at them"
    )


class KeyedBox(Box):
    """All questions are asked after ``bind``."""

    is_divisible = True  # results of one key depend on tuples of this key only, and on no time of day
    emits_at_once = False  # a tuple may give a result when it comes, and not only when the watermark moves
    goes_by_train = False  # what comes out depends on how tuples are divided into trains, or on the watermark of each

    @abstractmethod
    def key_of(self, port: int, train: Train) -> list[Vector]:
        """Return the key of each tuple, in the types of ``keys_in``."""

    def key_fields(self, port: int) -> tuple[str | None, ...]:
        """Return the fields of an input that are the key, in the order of ``key_of``; None where it is computed."""
        return tuple(dict.fromkeys(self.parameters.by))

    def key_names(self, port: int) -> tuple[str | None, ...]:
        """Return under which name an output has each part of the key, unchanged; None where it has not."""
        return self.key_fields(0)

    @abstractmethod
    def times_of(self, port: int, train: Train) -> Numbers:
        """Return the event time of each tuple."""

    @abstractmethod
    def keys_in(self, state: Any) -> KeyTable:
        """Return the keys of a state."""

    @abstractmethod
    def snapshot_of(self, state: Any, chosen: Mask | None) -> Any:
        """Return the state of the chosen keys as plain data; None stands for all.

        ``chosen`` goes by the number of a key. Its last element stands for rows without a key (number -1).
        """

    @abstractmethod
    def last_ns(self, state: Any) -> Numbers:
        """Return the event time at which each key was last seen, by its number."""

    def is_empty(self, state: Any) -> bool:
        """Tell whether a new state would be as good."""
        return not self.keys_in(state).count

    def due_ns(self, state: Any) -> int:
        """Return the lowest watermark at which the state may give a result by itself. Too low costs only time."""
        return NEVER_NS

    def first_due_ns(self, low_ns: int) -> int:
        """Return the same for a state of nothing but a tuple of this event time."""
        return NEVER_NS

    def snapshot(self, state: Any) -> Any:
        return self.snapshot_of(state, None)
