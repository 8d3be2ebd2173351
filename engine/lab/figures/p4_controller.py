"""The experiment of figures 5 and 6 of P4: ATS over one factor of its controller, at the load of figure 3.

P4 chooses the factors by trial: Kp first, then Ki with Kp = 1. Here the other factor has the paper's value. Figure 3
shows the load of these trials: lambda 0.5. The work at that load depends on the queries, which are random: points are
means over several draws.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from engine.lab.figures.figure import Check, Figure, FigureData, FigureVerdict, Panel
from engine.lab.figures.lab import Lab
from engine.lab.figures.p4_deadlines import TABLE_1, DeadlineSetup, load, run

RATE = 0.5
SEEDS = tuple(range(1, 9))
PARAMETERS: Mapping[str, str] = {
    "queries": "100, drawn 8 times",
    "selectivity": "0.5",
    "lambda": f"{RATE:g}",
    "policy": "ats",
    **TABLE_1,
}


@dataclass(frozen=True)
class ControllerFactor:
    """Kp or Ki: its name in the paper and in ``DeadlineSetup``, the values that the paper tries, and its choice."""

    name: str
    field: str
    values: tuple[float, ...]
    best: float

    def figure(self, title: str, claim: str) -> Figure:
        return Figure(title=title, claim=claim, engines=("simulated",), parameters=PARAMETERS)

    def measure(self, lab: Lab) -> FigureData:
        """Measure SDMR by the factor: the mean over the draws, and each draw."""
        setups = [
            DeadlineSetup("ATS", RATE, seed=seed, simulated=lab.choose(50, 20)) for seed in lab.choose(SEEDS, (1,))
        ]
        mean: list[tuple[float, float]] = []
        draws: dict[str, list[tuple[float, float]]] = {}
        for number, value in enumerate(self.values):
            lab.progress(number / len(self.values))
            changed: dict[str, Any] = {self.field: value}
            missed = {s.seed: run(replace(s, **changed)).sdmr for s in setups}
            for seed, share in missed.items():
                draws.setdefault(f"draw {seed}", []).append((value, share))
            mean.append((value, sum(missed.values()) / len(missed)))
        loads = {f"load of the operators in draw {s.seed}": load(s) for s in setups}
        panels = (
            Panel(self.name, "SDMR", {"mean": mean}, title="mean of all draws", log_x=True),
            Panel(self.name, "SDMR", draws, title="each draw", log_x=True),
        )
        return FigureData(panels, loads)

    def verdict(self, measured: FigureData) -> FigureVerdict:
        """Check that the best value is the paper's or one beside it."""
        curve = measured.curve("mean")
        values = sorted(curve)
        ours = min(values, key=lambda x: curve[x])
        beside = abs(values.index(ours) - values.index(self.best))
        above = {x: (curve[x] - curve[ours]) * 100 for x in values}
        seen = f"least at {self.name} = {ours:g} ({curve[ours]:.4f}); points above that: " + ", ".join(
            f"{above[x]:.2f} at {x:g}" for x in values if x != ours
        )
        return FigureVerdict((Check(beside <= 1, seen),), "sdmr", curve[self.best], curve[ours])
