"""P4, figure 9: use of the processor over lambda, in the runs of figure 8.

TAAT pays for a scheduling step with every task and saturates first.
"""

from __future__ import annotations

from engine.lab.figures.figure import REAL, SIMULATED, Figure, FigureData, FigureVerdict
from engine.lab.figures.lab import Lab
from engine.lab.figures.p4_08 import RATES
from engine.lab.figures.p4_deadlines import FIXED, TABLE_1, UNPRINTED
from engine.lab.figures.p4_panels import cpu, cpu_verdict

FINDINGS = {
    SIMULATED: "As in figure 7: ATS uses more than BTS by its controller where both run the same batches, and less "
    "where its batches are longer.",
    REAL: "On the engine TAAT uses the processor most, in every seed. ATS and BTS are within some points of each "
    "other, and which of them uses more changes from seed to seed: a microsecond of control in a step of fifty is "
    "less than the runs scatter.",
}
FIGURE = Figure(
    title="Use of the processor over lambda, fixed selectivity",
    claim="TAAT uses the processor most, by its overhead; ATS slightly more than BTS, for it does more at a step.",
    printed={**TABLE_1, "queries": "100", "selectivity": "0.5"},
    unprinted=UNPRINTED,
    findings=FINDINGS,
    family="P4.fixed",
)


def measure(lab: Lab) -> FigureData:
    return cpu(lab, 100, FIXED, RATES if not lab.short else (0.1, 0.2))


def verdict(measured: FigureData) -> FigureVerdict:
    return cpu_verdict(measured)
