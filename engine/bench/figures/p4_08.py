"""P4, figure 8: deadlines missed over lambda, 100 queries, every operator letting half of the tuples through.

The set-up is that of ``deadlines.py``. P4 has ATS 15 points below BTS and 30 below TAAT at lambda 0.5. Here the orders
are the same and the distances larger: BTS, which runs what is too late, falls off sharply once there is too much to do,
and TAAT, which pays for a step with every task, is full at a fifth of the rate. The paper also has BTS1 near BTS, which
is not judged here: it drops what is hopeless, and lies where ATS1 does.
"""

from __future__ import annotations

from engine.bench.figures.base import Figure, Measured, Verdict
from engine.bench.figures.deadline_panels import sdmr, sdmr_verdict
from engine.bench.figures.deadlines import FIXED, TABLE_1
from engine.bench.figures.lab import Lab

FIGURE = Figure(
    title="SDMR over lambda, fixed selectivity",
    claim=(
        "TAAT misses clearly more deadlines than BTS, BTS slightly more than ATS, and ATS clearly more than ATS1; ATS "
        "is near the ideal."
    ),
    engines=("simulated",),
    parameters={"queries": "100", "selectivity": "0.5", **TABLE_1},
)


def measure(lab: Lab) -> Measured:
    return sdmr(lab, 100, FIXED, quick=(0.6,))


def verdict(measured: Measured) -> Verdict:
    return sdmr_verdict(measured)
