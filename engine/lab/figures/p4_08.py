"""P4, figure 8: deadlines missed over lambda, 100 queries, every operator letting half of the tuples through.

The set-up is that of ``p4_deadlines.py``. P4 reports ATS 15 points below BTS and 30 below TAAT at lambda 0.5. Here the
order is the same and the distances are larger: BTS runs tasks that are too late already, so it degrades sharply in
overload; TAAT pays for a scheduling step with every task, so it saturates at a fifth of the rate. The paper also shows
BTS1 near BTS. That is not judged here: BTS1 drops hopeless tasks, and its curve lies at that of ATS1.
"""

from __future__ import annotations

from engine.lab.figures.figure import Figure, FigureData, FigureVerdict
from engine.lab.figures.lab import Lab
from engine.lab.figures.p4_deadlines import FIXED, TABLE_1
from engine.lab.figures.p4_panels import sdmr, sdmr_verdict

FIGURE = Figure(
    title="SDMR over lambda, fixed selectivity",
    claim=(
        "TAAT misses clearly more deadlines than BTS, BTS slightly more than ATS, and ATS clearly more than ATS1; ATS "
        "is near the ideal."
    ),
    engines=("simulated",),
    parameters={"queries": "100", "selectivity": "0.5", **TABLE_1},
)


def measure(lab: Lab) -> FigureData:
    return sdmr(lab, 100, FIXED, quick=(0.6,))


def verdict(measured: FigureData) -> FigureVerdict:
    return sdmr_verdict(measured)
