"""The vocabulary of loss: the words about dropped tuples that several packages must agree on.

Load shedding lives in ``load_shedder``. Only these types stand here, because packages that never import each other use
them:

- ``UnderLoss`` is a property of a box: ``catalog/network`` declares it, the boxes answer it, the load shedder obeys it.
- ``DropReason`` labels the counters of an arc: the load shedder counts, ``qos_monitor`` exports.
- ``ValueCells`` describe the worth of the tuples on an arc: the load shedder measures them while it drops by value, and
  ``qos_monitor`` weighs the delivered share with them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

UnderLoss = Literal["subset", "approximate", "wrong"] | int
"""The answer of a box when a part of its input is missing (``Box.under_loss``).

- ``subset``: a part of the complete answer; every row in it is right.
- a number: whole windows of this many ns are right when none of their tuples is missing.
- ``approximate``: an answer that states which share of its input it saw.
- ``wrong``: a wrong answer. Nothing may be dropped before such a box.
"""

DropReason = Literal["shed", "semantic", "window", "expired", "overflow", "damaged"]
"""Why a tuple was dropped on an arc.

- ``shed``, ``semantic``, ``window``: by a shed plan, at random, by value or with its whole window.
- ``expired``: it could not reach any output before its deadline.
- ``overflow``: memory ran out before a plan took effect.
- ``damaged``: it was spilled and could not be read back.
"""

DROP_REASONS: tuple[DropReason, ...] = ("shed", "semantic", "window", "expired", "overflow", "damaged")

UNINTENDED: frozenset[DropReason] = frozenset({"overflow", "damaged"})
"""The reasons that no plan decided. A healthy daemon counts none of them."""


@dataclass(frozen=True, slots=True)
class ValueCells:
    """The worth of the tuples on an arc to the output behind it: a histogram, its cells in order of rising worth."""

    shares: tuple[float, ...]  # of the tuples; they add up to 1
    worths: tuple[float, ...]  # utility of a tuple, 0 to 1, strictly rising

    def carried(self, kept: float) -> float:
        """Return the share of the total worth that is left when ``kept`` of the tuples stay and the least worth go."""
        total = sum(s * w for s, w in zip(self.shares, self.worths, strict=True))
        if total <= 0:
            return kept
        lost, to_drop = 0.0, 1.0 - kept
        for share, worth in zip(self.shares, self.worths, strict=True):
            dropped = min(share, max(to_drop, 0.0))
            lost, to_drop = lost + dropped * worth, to_drop - dropped
        return max(0.0, 1.0 - lost / total)
