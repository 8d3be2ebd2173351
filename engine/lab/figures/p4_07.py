"""P4, figure 7: the cost of scheduling, over lambda.

Selectivity is 1. As in the paper, the figure plots the time spent in scheduling in a run of 10,000 tuples of each
stream: TAAT takes a step for each task, the others a step for each batch, and ATS also pays for its controller. A
dropped task costs no step, and neither does a task that has not been scheduled by the last deadline.
"""

from __future__ import annotations

from dataclasses import replace

from engine.lab.figures.figure import REAL, SIMULATED, Check, Figure, FigureData, FigureVerdict, Panel
from engine.lab.figures.lab import Lab
from engine.lab.figures.p4_deadlines import READINGS, TABLE_1, UNPRINTED, run, setup_of

FIGURE = Figure(
    title="System overhead",
    claim=(
        "TAAT spends far more on scheduling than the others; ATS slightly more than BTS, by its controller. All fall "
        "as lambda rises, when tasks are dropped."
    ),
    printed={**TABLE_1, "queries": "100", "selectivity": "1"},
    unprinted=UNPRINTED,
    findings={
        SIMULATED: "TAAT is far above in both readings. ATS is above BTS by its controller as long as both run the "
        "same batches, which is in "
        "the reading where overdue tasks are dropped. Where they are run, ATS lengthens its batches before the first "
        "deadline is missed and "
        "takes fewer steps: then it spends less than BTS, and the paper's theorem 1 says that it may.",
        REAL: "On the engine the controller's arithmetic is a microsecond in a step of some fifty, which is less than "
        "the runs scatter. TAAT is "
        "far above in both readings.",
    },
)
RATES = (0.1, 0.3, 0.6)
POLICIES = ("TAAT", "BTS", "ATS")


def measure(lab: Lab) -> FigureData:
    base = replace(setup_of(lab), selectivity=1.0)
    rates = lab.choose(RATES, (0.1, 0.6))
    panels = []
    for reading, overdue in READINGS.items():
        curves = {
            p: [(rate, run(replace(base, policy=p, rate=rate, overdue=overdue)).overhead_s) for rate in rates]
            for p in POLICIES
        }
        panels.append(Panel("lambda", "in scheduling, s", curves, log_y=True, title=reading))
    return FigureData(tuple(panels))


def verdict(measured: FigureData) -> FigureVerdict:
    checks = []
    for number, reading in enumerate(READINGS):
        taat, bts, ats = (measured.curve(p, number) for p in POLICIES)
        over = {x: ats[x] / bts[x] - 1 for x in bts}
        falls = [list(c.values()) == sorted(c.values(), reverse=True) for c in (taat, bts, ats)]
        checks += [
            Check(
                "TAAT spends far more",
                all(taat[x] > 3 * bts[x] for x in bts),
                f"{min(taat[x] / bts[x] for x in bts):.0f} times BTS at least",
                reading,
            ),
            Check(
                "ATS spends slightly more than BTS",
                all(0 < x < 0.5 for x in over.values()),
                ", ".join(f"{share:+.1%} at {x:g}" for x, share in over.items()),
                reading,
            ),
            Check(
                "all fall as lambda rises",
                all(falls),
                ", ".join(f"{p} {ok}" for p, ok in zip(POLICIES, falls)),
                reading,
            ),
        ]
    ats, bts = measured.curve("ATS"), measured.curve("BTS")
    return FigureVerdict(tuple(checks), "overhead_s", ats[min(ats)], bts[min(bts)])
