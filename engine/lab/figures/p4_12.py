"""P4, figure 12: as figure 8, with 300 queries.

The load is three times as high, and there are three times as many batches to schedule.
"""

from __future__ import annotations

from engine.lab.figures.figure import Figure, FigureData, FigureVerdict
from engine.lab.figures.lab import Lab
from engine.lab.figures.p4_deadlines import FIXED, TABLE_1
from engine.lab.figures.p4_panels import sdmr, sdmr_verdict

FIGURE = Figure(
    title="SDMR over lambda, 300 queries, fixed selectivity",
    claim=("ATS is the nearest to the ideal and TAAT the furthest: ATS 15 to 20 points below TAAT, 5 to 15 below BTS."),
    engines=("simulated",),
    parameters={"queries": "300", "selectivity": "0.5", **TABLE_1},
)


def measure(lab: Lab) -> FigureData:
    return sdmr(lab, 300, FIXED, quick=(0.2,))


def verdict(measured: FigureData) -> FigureVerdict:
    return sdmr_verdict(measured)
