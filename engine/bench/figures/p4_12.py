"""P4, figure 12: as figure 8, with 300 queries.

Three times the load from the start, and three times as many batches to schedule.
"""

from __future__ import annotations

from engine.bench.figures.base import Figure, Measured, Verdict
from engine.bench.figures.deadline_panels import sdmr, sdmr_verdict
from engine.bench.figures.deadlines import FIXED, TABLE_1
from engine.bench.figures.lab import Lab

FIGURE = Figure(
    title="SDMR over lambda, 300 queries, fixed selectivity",
    claim=("ATS is the nearest to the ideal and TAAT the furthest: ATS 15 to 20 points below TAAT, 5 to 15 below BTS."),
    engines=("simulated",),
    parameters={"queries": "300", "selectivity": "0.5", **TABLE_1},
)


def measure(lab: Lab) -> Measured:
    return sdmr(lab, 300, FIXED, quick=(0.2,))


def verdict(measured: Measured) -> Verdict:
    return sdmr_verdict(measured)
