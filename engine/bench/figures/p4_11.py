"""P4, figure 11: use of the processor over lambda, in the runs of figure 10."""

from __future__ import annotations

from engine.bench.figures.base import Figure, Measured, Verdict
from engine.bench.figures.deadline_panels import cpu, cpu_verdict
from engine.bench.figures.deadlines import RANDOM, TABLE_1
from engine.bench.figures.lab import Lab

FIGURE = Figure(
    title="Use of the processor over lambda, random selectivity",
    claim=("As with fixed selectivity: TAAT > ATS > BTS."),
    engines=("simulated",),
    parameters={"queries": "100", "selectivity": "drawn from [0.01, 1]", **TABLE_1},
)


def measure(lab: Lab) -> Measured:
    return cpu(lab, 100, RANDOM, quick=(0.2,))


def verdict(measured: Measured) -> Verdict:
    return cpu_verdict(measured)
