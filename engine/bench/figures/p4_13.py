"""P4, figure 13: as figure 10, with 300 queries."""

from __future__ import annotations

from engine.bench.figures.base import Figure, Measured, Verdict
from engine.bench.figures.deadline_panels import sdmr, sdmr_verdict
from engine.bench.figures.deadlines import RANDOM, TABLE_1
from engine.bench.figures.lab import Lab

FIGURE = Figure(
    title="SDMR over lambda, 300 queries, random selectivity",
    claim=("As with fixed selectivity, and a little more is missed."),
    engines=("simulated",),
    parameters={"queries": "300", "selectivity": "drawn from [0.01, 1]", **TABLE_1},
)


def measure(lab: Lab) -> Measured:
    return sdmr(lab, 300, RANDOM, quick=(0.15,))


def verdict(measured: Measured) -> Verdict:
    return sdmr_verdict(measured)
