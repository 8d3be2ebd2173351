"""P4, figure 3: the arrival rate over time that the trials use, lambda 0.5.

The figure counts tuples in intervals of 0.1 s. The text says that the rate changes between 50 and 75 in 0.1 s. A
Poisson process of mean m varies by its root: of 60 intervals nine in ten lie within m plus or minus 1.6 sqrt(m).
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from engine.lab.figures.figure import SIMULATED, Check, Figure, FigureData, FigureVerdict, Panel, PaperPoint, Unprinted
from engine.lab.figures.lab import Lab
from engine.simulate.arrivals import poisson

LOW, HIGH = "lowest rate, tuples in 0.1 s", "highest rate, tuples in 0.1 s"
LAMBDA = 0.5
FIGURE = Figure(
    title="The arrival rate over time",
    claim="With exponential gaps of parameter 0.5 the rate varies very fast, between 50 and 75 tuples in 0.1 s.",
    engines=(SIMULATED,),
    printed={"lambda": "0.5", "gaps": "exponential", "interval": "0.1 s"},
    unprinted={
        "per_ms": Unprinted(1.0, "lambda is in tuples a ms: the paper prints no unit"),
        "seconds": Unprinted(6.0, "shown"),
    },
    paper=(PaperPoint(LOW, 50, panel=0), PaperPoint(HIGH, 75, panel=0)),
    findings={
        SIMULATED: "The spread is right: 25 tuples between the lowest and the highest of some sixty intervals is what "
        "a Poisson process of "
        "that rate has. The level is not: a mean of 62 in 0.1 s is lambda 0.62 a ms, or 1.6 ms between tuples. No "
        "unit of time makes "
        "the printed parameter 0.5 into 62, so we read lambda as tuples a millisecond and accept a fifth less than "
        "figure 3."
    },
)


def measure(lab: Lab) -> FigureData:
    length_ns = int(lab.number("seconds") * 1e9)
    random = np.random.default_rng(lab.seed)
    times = poisson(random, LAMBDA * lab.number("per_ms") * 1e3, length_ns)
    counts = np.bincount((times // 100_000_000).astype(int), minlength=length_ns // 100_000_000)
    curve = [(i / 10, float(c)) for i, c in enumerate(counts.tolist())]
    return FigureData((Panel("time, s", "tuples in 0.1 s", {"one stream": curve}),))


def verdict(measured: FigureData) -> FigureVerdict:
    counts = list(measured.curve("one stream").values())
    mean = sum(counts) / len(counts)
    low, high = float(np.quantile(counts, 0.03)), float(np.quantile(counts, 0.97))
    expected = 2 * 1.9 * mean**0.5
    moves = sum(abs(a - b) for a, b in pairwise(counts)) / (len(counts) - 1)
    return FigureVerdict(
        (
            Check("the rate varies from interval to interval", moves > 0.3 * mean**0.5, f"by {moves:.1f} on average"),
            Check(
                "as much as a Poisson process does",
                0.5 * expected < high - low < 1.6 * expected,
                f"{low:.0f} to {high:.0f} around {mean:.0f}",
            ),
        ),
        "mean_rate_per_100ms",
        mean,
        62.5,
        {LOW: low, HIGH: high},
    )
