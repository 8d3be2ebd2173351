"""P4, figure 12: as figure 8, with 300 queries.

The load is three times as high, and there are three times as many batches to schedule.
"""

from __future__ import annotations

from engine.lab.figures.figure import Figure, FigureData, FigureVerdict, PaperPoint
from engine.lab.figures.lab import Lab
from engine.lab.figures.p4_deadlines import FIXED, TABLE_1, UNPRINTED
from engine.lab.figures.p4_panels import FINDINGS, at, sdmr, sdmr_verdict

TAAT, BTS = "SDMR of TAAT less that of ATS", "SDMR of BTS less that of ATS"
RATES = (0.1, 0.3, 0.5)
FIGURE = Figure(
    title="SDMR over lambda, 300 queries, fixed selectivity",
    claim="ATS is the nearest to the ideal and TAAT the furthest: ATS 15 to 20 points below TAAT, 5 to 15 below BTS.",
    printed={**TABLE_1, "queries": "300", "selectivity": "0.5"},
    unprinted=UNPRINTED,
    paper=(PaperPoint(TAAT, 0.175), PaperPoint(BTS, 0.10, within=0.5)),
    findings=FINDINGS,
)


def measure(lab: Lab) -> FigureData:
    return sdmr(lab, 300, FIXED, RATES)


def verdict(measured: FigureData) -> FigureVerdict:
    ats = at(measured, "ATS", 0.5)
    return sdmr_verdict(measured, {TAAT: at(measured, "TAAT", 0.5) - ats, BTS: at(measured, "BTS", 0.5) - ats})
