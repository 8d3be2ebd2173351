"""P4, figure 9: use of the processor over lambda, in the runs of figure 8.

A task at a time pays for a scheduling step with every task, and is the first to have no time left. ATS is above BTS by
its controller, which is little.
"""

from __future__ import annotations

from engine.bench.figures.base import Figure, Measured, Verdict
from engine.bench.figures.deadline_panels import cpu, cpu_verdict
from engine.bench.figures.deadlines import FIXED, TABLE_1
from engine.bench.figures.lab import Lab

FIGURE = Figure(
    title="Use of the processor over lambda, fixed selectivity",
    claim=("TAAT uses the processor most, by its overhead; ATS slightly more than BTS, for it does more at a step."),
    engines=("simulated",),
    parameters={"queries": "100", "selectivity": "0.5", **TABLE_1},
)


def measure(lab: Lab) -> Measured:
    return cpu(lab, 100, FIXED, quick=(0.2,))


def verdict(measured: Measured) -> Verdict:
    return cpu_verdict(measured)
