"""P4, figure 13: as figure 10, with 300 queries."""

from __future__ import annotations

from engine.lab.figures.figure import Figure, FigureData, FigureVerdict
from engine.lab.figures.lab import Lab
from engine.lab.figures.p4_12 import RATES
from engine.lab.figures.p4_deadlines import RANDOM, TABLE_1, UNPRINTED
from engine.lab.figures.p4_panels import FINDINGS, sdmr, sdmr_verdict

FIGURE = Figure(
    title="SDMR over lambda, 300 queries, random selectivity",
    claim="As with fixed selectivity, and a little more is missed.",
    printed={**TABLE_1, "queries": "300", "selectivity": "drawn from [0.01, 1]"},
    unprinted=UNPRINTED,
    findings=FINDINGS,
)


def measure(lab: Lab) -> FigureData:
    return sdmr(lab, 300, RANDOM, RATES)


def verdict(measured: FigureData) -> FigureVerdict:
    return sdmr_verdict(measured)
