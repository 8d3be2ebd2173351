"""P4, section 4.2: the same with arrivals of a Zipf distribution.

The paper omits these runs: the results are "roughly the same". The gaps between tuples follow a truncated Zipf
distribution: most are short, a few are very long.
"""

from __future__ import annotations

from dataclasses import replace

from engine.lab.figures.figure import Check, Figure, FigureData, FigureVerdict
from engine.lab.figures.lab import Lab
from engine.lab.figures.p4_08 import RATES
from engine.lab.figures.p4_deadlines import FIXED, TABLE_1, UNPRINTED, run
from engine.lab.figures.p4_panels import FINDINGS, points, sdmr

FIGURE = Figure(
    title="SDMR over lambda, Zipf arrivals",
    claim="With arrivals of a Zipf distribution the results are roughly those of Poisson arrivals.",
    printed={**TABLE_1, "queries": "100", "selectivity": "0.5", "arrivals": "gaps of a Zipf distribution"},
    unprinted=UNPRINTED,
    findings=FINDINGS,
)
ROUGHLY = 0.1  # of SDMR


def measure(lab: Lab) -> FigureData:
    found = sdmr(lab, 100, FIXED, RATES, "zipf")
    setups = points(lab, 100, FIXED, RATES)
    poisson = {p: [(s.rate, run(replace(s, policy=p)).sdmr) for s in setups] for p in ("TAAT", "BTS", "ATS")}
    first = replace(
        found.panels[0], curves={**found.panels[0].curves, **{f"{p}, Poisson": c for p, c in poisson.items()}}
    )
    return FigureData((first, *found.panels[1:]), found.numbers)


def verdict(measured: FigureData) -> FigureVerdict:
    off = {
        p: max(abs(y - measured.curve(f"{p}, Poisson")[x]) for x, y in measured.curve(p).items())
        for p in ("TAAT", "BTS", "ATS")
    }
    same = Check(
        "SDMR is roughly that of Poisson arrivals",
        max(off.values()) <= ROUGHLY,
        ", ".join(f"{p} within {x * 100:.1f} points" for p, x in off.items()),
    )
    ats = measured.curve("ATS")
    last = max(ats)
    return FigureVerdict((same,), f"sdmr_at_{last:g}", ats[last], measured.curve("ATS, Poisson")[last])
