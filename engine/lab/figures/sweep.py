"""The runs by which a claim is judged: five seeds at our settings, and a sweep of all settings that are not printed.

The sweep has every such setting alone at half and at double. Runs with several settings moved at once, drawn once and
for all, make it at least twenty. Each of its runs has a seed of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import cycle, islice
from random import Random
from typing import NamedTuple

from engine.lab.figures.figure import REAL, Figure, Value

SEEDS, FEW_SEEDS = 5, 1
VARIATIONS, FEW_VARIATIONS = 20, 4


class Variation(NamedTuple):
    """One run: its seed, and the settings that are not at their default."""

    seed: int
    changed: Mapping[str, Value] = {}

    def words(self) -> str:
        named = [
            f"{name} {value:g}" if not isinstance(value, str) else f"{name} {value}"
            for name, value in self.changed.items()
        ]
        return ", ".join(named) or f"seed {self.seed}"


def planned(figure: Figure, engine: str, quick: bool) -> list[Variation]:
    """List the runs of a figure. The sweep runs in the simulator."""
    declared = [Variation(seed) for seed in range(1, (FEW_SEEDS if quick else SEEDS) + 1)]
    if engine == REAL or not figure.unprinted:
        return declared
    found = sweep(figure)
    return declared + (found[:: len(found) // FEW_VARIATIONS][:FEW_VARIATIONS] if quick else found)


def sweep(figure: Figure, at_least: int = VARIATIONS) -> list[Variation]:
    """List each unprinted setting alone at its other values, then corners until there are enough."""
    seen: list[dict[str, Value]] = [{name: v} for name, setting in figure.unprinted.items() for v in setting.swept]
    for corner in _corners(figure):
        if len(seen) >= at_least:
            break
        if corner not in seen and corner:
            seen.append(corner)
    seen += list(islice(cycle(seen), max(0, at_least - len(seen))))  # few settings: the same ones with other seeds
    return [Variation(SEEDS + 1 + number, changed) for number, changed in enumerate(seen)]


def _corners(figure: Figure) -> Iterator[dict[str, Value]]:
    """Draw settings, each at its default or at another value. The draw ends where a figure has too few corners."""
    random = Random(22)
    for _ in range(1_000):
        drawn = {name: random.choice((s.default, *s.swept)) for name, s in figure.unprinted.items()}
        yield {name: value for name, value in drawn.items() if value != figure.unprinted[name].default}
