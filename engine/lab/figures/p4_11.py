"""P4, figure 11: use of the processor over lambda, in the runs of figure 10."""

from __future__ import annotations

from engine.lab.figures.figure import Figure, FigureData, FigureVerdict
from engine.lab.figures.lab import Lab
from engine.lab.figures.p4_09 import FINDINGS
from engine.lab.figures.p4_10 import RATES
from engine.lab.figures.p4_deadlines import RANDOM, TABLE_1, UNPRINTED
from engine.lab.figures.p4_panels import cpu, cpu_verdict

FIGURE = Figure(
    title="Use of the processor over lambda, random selectivity",
    claim="As with fixed selectivity: TAAT > ATS > BTS.",
    printed={**TABLE_1, "queries": "100", "selectivity": "drawn from [0.01, 1]"},
    unprinted=UNPRINTED,
    findings=FINDINGS,
    family="P4.random",
)


def measure(lab: Lab) -> FigureData:
    return cpu(lab, 100, RANDOM, RATES if not lab.short else (0.1, 0.2))


def verdict(measured: FigureData) -> FigureVerdict:
    return cpu_verdict(measured)
