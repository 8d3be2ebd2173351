"""P4, figure 10: as figure 8, with selectivities drawn from 0.01 to 1.

The paper prints SDMR at lambda 0.4: 5 % for ATS, 10 % for BTS, 40 % for TAAT. Our load at 0.4 is printed below the
table.
"""

from __future__ import annotations

from engine.lab.figures.figure import Figure, FigureData, FigureVerdict
from engine.lab.figures.lab import Lab
from engine.lab.figures.p4_deadlines import RANDOM, TABLE_1
from engine.lab.figures.p4_panels import sdmr, sdmr_verdict

FIGURE = Figure(
    title="SDMR over lambda, random selectivity",
    claim=(
        "As with fixed selectivity: TAAT misses most, then BTS, ATS and ATS1, with more between BTS and ATS; ATS is "
        "the nearest to the ideal (at lambda 0.4: ATS 5 %, BTS 10 %, TAAT 40 %)."
    ),
    engines=("simulated",),
    parameters={"queries": "100", "selectivity": "drawn from [0.01, 1]", **TABLE_1},
)


def measure(lab: Lab) -> FigureData:
    return sdmr(lab, 100, RANDOM, quick=(0.45,))


def verdict(measured: FigureData) -> FigureVerdict:
    return sdmr_verdict(measured)
