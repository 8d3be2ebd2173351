"""P4, figure 8: deadlines missed over lambda, 100 queries, every operator letting half of the tuples through.

The set-up is that of ``p4_deadlines.py``, in both readings of who drops overdue tasks.
"""

from __future__ import annotations

from engine.lab.figures.figure import Figure, FigureData, FigureVerdict, PaperPoint
from engine.lab.figures.lab import Lab
from engine.lab.figures.p4_deadlines import FIXED, TABLE_1, UNPRINTED
from engine.lab.figures.p4_panels import FINDINGS, at, sdmr, sdmr_verdict

TAAT, BTS = "SDMR of TAAT less that of ATS, lambda 0.5", "SDMR of BTS less that of ATS, lambda 0.5"
RATES = (0.2, 0.5, 0.8)
FIGURE = Figure(
    title="SDMR over lambda, fixed selectivity",
    claim=(
        "TAAT misses clearly more deadlines than BTS, BTS slightly more than ATS, and ATS clearly more than ATS1; ATS "
        "is near the ideal. At lambda 0.5 ATS is 30 points below TAAT and 15 below BTS."
    ),
    printed={**TABLE_1, "queries": "100", "selectivity": "0.5"},
    unprinted=UNPRINTED,
    paper=(PaperPoint(TAAT, 0.30), PaperPoint(BTS, 0.15)),
    findings=FINDINGS,
    family="P4.fixed",
)


def measure(lab: Lab) -> FigureData:
    return sdmr(lab, 100, FIXED, RATES)


def verdict(measured: FigureData) -> FigureVerdict:
    ats = at(measured, "ATS", 0.5)
    return sdmr_verdict(measured, {TAAT: at(measured, "TAAT", 0.5) - ats, BTS: at(measured, "BTS", 0.5) - ats})
