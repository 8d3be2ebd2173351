"""The experiment of figures 5 and 6 of P4: ATS over one factor of its controller, at the load of figure 3 (lambda 0.5).

P4 chooses the factors by trial: Kp first, then Ki with Kp = 1. Here the other factor has the paper's value.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from engine.lab.figures.figure import REAL, SIMULATED, Check, Figure, FigureData, FigureVerdict, Panel, PaperPoint
from engine.lab.figures.lab import Lab
from engine.lab.figures.p4_deadlines import READINGS, TABLE_1, UNPRINTED, load, run, setup_of

FLAT = 0.001  # of SDMR: a curve that varies by less has no minimum


@dataclass(frozen=True)
class ControllerFactor:
    """Kp or Ki: its name in the paper and in ``DeadlineSetup``, the values that the paper tries, and its choice."""

    name: str
    field: str
    values: tuple[float, ...]
    best: float

    def figure(self, title: str, claim: str) -> Figure:
        return Figure(
            title=title,
            claim=claim,
            printed={**TABLE_1, "queries": "100", "selectivity": "0.5", "lambda": "0.5", "policy": "ATS"},
            unprinted=UNPRINTED,
            paper=(PaperPoint(f"best {self.name}", self.best, panel=0, is_x=True, within=0.01),),
            findings={
                SIMULATED: "The curve is nearly flat. SDMR of the whole run is at most 1, and its change from one "
                "execution to the next is a thousandth of that. With Ki = 10 the integral part takes k to 1 as soon as "
                "a tenth of all tasks is missed, and keeps it there; the proportional part is rounded away. Which "
                f"{self.name} is best is then decided by a few tasks in a thousand, and differs from draw to draw. "
                "(The paper itself says that both depend on the stream.)",
                REAL: f"On the engine SDMR moves by some ten points from one {self.name} to the next, without any "
                "order: the best one differs from seed to seed. Chance moves it as far: ATS with Kp = 1 and Ki = 10 "
                "came to 0.54, 0.58 and 0.58 in three runs of seed 1, and to 0.27, 0.30 and 0.41 in three of seed 2. "
                "The load is near one, so the cost of a step in a run decides how many tasks it misses.",
            },
        )

    def measure(self, lab: Lab) -> FigureData:
        base = replace(setup_of(lab), policy="ATS", rate=0.5)
        curves: dict[str, list[tuple[float, float]]] = {}
        for reading, overdue in READINGS.items():
            changed: list[dict[str, Any]] = [{self.field: value} for value in self.values]
            curves[reading] = [
                (value, run(replace(base, overdue=overdue, **change)).sdmr)
                for value, change in zip(self.values, changed, strict=True)
            ]
        return FigureData((Panel(self.name, "SDMR", curves, log_x=True),), {"load of the operators": load(base)})

    def verdict(self, measured: FigureData) -> FigureVerdict:
        """Check that the best value is the paper's, and that there is a best one at all."""
        checks = []
        for reading in READINGS:
            curve = measured.curve(reading)
            ours = min(curve, key=lambda x: curve[x])
            spread = max(curve.values()) - min(curve.values())
            checks += [
                Check(
                    f"{self.name} = {self.best:g} misses the fewest",
                    ours == self.best,
                    f"the best is {ours:g}",
                    reading,
                ),
                Check(f"{self.name} matters", spread > FLAT, f"SDMR varies by {spread * 100:.2f} points", reading),
            ]
        curve = measured.curve(next(iter(READINGS)))
        ours = min(curve, key=lambda x: curve[x])
        return FigureVerdict(tuple(checks), "sdmr", curve[self.best], curve[ours], {f"best {self.name}": ours})
