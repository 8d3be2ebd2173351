"""P4, figure 9: use of the processor over lambda, in the runs of figure 8.

TAAT pays for a scheduling step with every task and saturates first. ATS is slightly above BTS because of its
controller.
"""

from __future__ import annotations

from engine.lab.figures.figure import Figure, FigureData, FigureVerdict
from engine.lab.figures.lab import Lab
from engine.lab.figures.p4_deadlines import FIXED, TABLE_1
from engine.lab.figures.p4_panels import cpu, cpu_verdict

FIGURE = Figure(
    title="Use of the processor over lambda, fixed selectivity",
    claim=("TAAT uses the processor most, by its overhead; ATS slightly more than BTS, for it does more at a step."),
    engines=("simulated",),
    parameters={"queries": "100", "selectivity": "0.5", **TABLE_1},
)


def measure(lab: Lab) -> FigureData:
    return cpu(lab, 100, FIXED, quick=(0.2,))


def verdict(measured: FigureData) -> FigureVerdict:
    return cpu_verdict(measured)
