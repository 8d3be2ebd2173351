"""P4, figure 10: as figure 8, with selectivities drawn from 0.01 to 1. The paper prints SDMR at lambda 0.4."""

from __future__ import annotations

from engine.lab.figures.figure import Figure, FigureData, FigureVerdict, PaperPoint
from engine.lab.figures.lab import Lab
from engine.lab.figures.p4_deadlines import RANDOM, TABLE_1, UNPRINTED
from engine.lab.figures.p4_panels import FINDINGS, at, sdmr, sdmr_verdict

PAPER = {"ATS": 0.05, "BTS": 0.10, "TAAT": 0.40}  # at lambda 0.4
RATES = (0.2, 0.4, 0.8)
FIGURE = Figure(
    title="SDMR over lambda, random selectivity",
    claim=(
        "As with fixed selectivity: TAAT misses most, then BTS, ATS and ATS1, with more between BTS and ATS; ATS is "
        "the nearest to the ideal (at lambda 0.4: ATS 5 %, BTS 10 %, TAAT 40 %)."
    ),
    printed={**TABLE_1, "queries": "100", "selectivity": "drawn from [0.01, 1]"},
    unprinted=UNPRINTED,
    paper=tuple(
        PaperPoint(f"SDMR of {policy} at lambda 0.4", share, x=0.4, panel=0) for policy, share in PAPER.items()
    ),
    findings=FINDINGS,
    family="P4.random",
)


def measure(lab: Lab) -> FigureData:
    return sdmr(lab, 100, RANDOM, RATES)


def verdict(measured: FigureData) -> FigureVerdict:
    return sdmr_verdict(measured, {f"SDMR of {policy} at lambda 0.4": at(measured, policy, 0.4) for policy in PAPER})
