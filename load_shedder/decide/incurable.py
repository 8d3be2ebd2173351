"""Outputs that no plan can save: they get what is left, and do not take the others down with them.

An output without a loss graph may lose nothing. When all that may be dropped is dropped and the work is still too much,
or when one unit on its way is full and nothing before it may be dropped, the output cannot be saved: its tuples only
become later and later. From then on it is *given up*: worth as much as the share of its tuples that it gets. The road
map then weighs it like any other output, so it keeps as much as that costs the others least.

Giving up needs evidence that users feel: results of the output have been late for ``AFTER_S`` while it could not be
saved. The output may lose nothing again when no plan has dropped any of it for ``BACK_S``.

Pure: time comes in.
"""

from __future__ import annotations

from dataclasses import dataclass, field

AFTER_S = 0.4
BACK_S = 3.0


@dataclass(frozen=True, slots=True)
class GivenUp:
    outputs: frozenset[int] = frozenset()
    suspected: dict[int, int] = field(default_factory=dict)  # by output: since when it is late and cannot be saved
    needed: dict[int, int] = field(default_factory=dict)  # by output given up: when that was last necessary


def give_up(before: GivenUp, hopeless: frozenset[int], dropped: frozenset[int], now_ns: int) -> GivenUp:
    """Return the outputs given up from now on. ``hopeless`` are late now and cannot be saved; the plan in force drops
    tuples of the outputs in ``dropped``."""
    suspected = {o: before.suspected.get(o, now_ns) for o in hopeless - before.outputs}
    lost = {o for o, since_ns in suspected.items() if now_ns - since_ns >= AFTER_S * 1e9}
    needed = {o: now_ns if o in dropped or o in hopeless else at_ns for o, at_ns in before.needed.items()}
    needed |= dict.fromkeys(lost, now_ns)
    needed = {o: at_ns for o, at_ns in needed.items() if now_ns - at_ns < BACK_S * 1e9}
    return GivenUp(frozenset(needed), {o: t for o, t in suspected.items() if o not in lost}, needed)
