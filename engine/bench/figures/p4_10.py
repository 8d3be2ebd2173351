"""P4, figure 10: as figure 8, with selectivities drawn from 0.01 to 1.

The paper prints SDMR at lambda 0.4: 5 % for ATS, 10 % for BTS, 40 % for TAAT. Where our load at 0.4 stands is below the
table.
"""

from __future__ import annotations

from engine.bench.figures.base import Figure, Measured, Verdict
from engine.bench.figures.deadline_panels import sdmr, sdmr_verdict
from engine.bench.figures.deadlines import RANDOM, TABLE_1
from engine.bench.figures.lab import Lab

FIGURE = Figure(
    title="SDMR over lambda, random selectivity",
    claim=(
        "As with fixed selectivity: TAAT misses most, then BTS, ATS and ATS1, with more between BTS and ATS; ATS is "
        "the nearest to the ideal (at lambda 0.4: ATS 5 %, BTS 10 %, TAAT 40 %)."
    ),
    engines=("simulated",),
    parameters={"queries": "100", "selectivity": "drawn from [0.01, 1]", **TABLE_1},
)


def measure(lab: Lab) -> Measured:
    return sdmr(lab, 100, RANDOM, quick=(0.45,))


def verdict(measured: Measured) -> Verdict:
    return sdmr_verdict(measured)
