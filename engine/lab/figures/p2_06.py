"""P2, figure 6: the memory of a shared output when one reader has priority over the other.

A stream is copied to two segments O1 and O2. Chain runs the steeper one, O1, whenever a tuple waits for it. A tuple is
kept until both have taken it, so memory is that of the second queue: E(L) E(W) = lambda E(W2)^2, over the same for one
service without priorities. Equation 2 gives the ratio by the load of O1, r = E(B1)/E(B2) and the coefficient of
variation of the service times.

Two systems are run: one with independent Poisson arrivals of the same rate at both queues, as the equation assumes, and
one with true copies, as figure 5 of the paper draws it. There the second copy also waits for its own twin, which the
equation leaves out: the curves *copies* are far above it, and follow the form that counts the twin
(``p2_closed_forms.copied_wait``).
"""

from __future__ import annotations

from engine.lab.figures.figure import (
    REAL,
    SIMULATED,
    Check,
    Figure,
    FigureData,
    FigureVerdict,
    Panel,
    PaperPoint,
    Unprinted,
)
from engine.lab.figures.lab import Lab
from engine.lab.figures.p2_closed_forms import base_wait, copied_wait, memory_ratio
from engine.lab.figures.p2_systems import shared_output

AGREES = "memory, measured over equation 2"
FIGURE = Figure(
    title="Memory of a shared output: Chain against one synchronized service",
    claim=(
        "Equation 2 gives the ratio of memory; it rises dramatically when the utilization of the operator that goes "
        "first is high."
    ),
    printed={
        "network": "one stream, O1 and O2 on it; O1 first",
        "arrivals": "Poisson",
        "policy": "chain, one tuple at a time",
        "service times": "of any distribution",
    },
    unprinted={
        "ratio": Unprinted(2.0, "E(B1) / E(B2): the first operator is the larger one where its load matters"),
        "variation": Unprinted(
            0.5, "coefficient of variation of both services, between fixed and exponential", (0.0, 1.0)
        ),
        "low": Unprinted(0.2, "the lowest load of O1 that is shown"),
        "tuples": Unprinted(12_000, "of a run"),
    },
    paper=(PaperPoint(AGREES, 1.0),),
    findings=dict.fromkeys(
        (REAL, SIMULATED),
        "The ratio rises with the load of O1 as equation 2 says. Memory is the square of a waiting time, so a tenth "
        "more wait is a "
        "fifth more memory: short runs scatter by that much at high load, and on the engine the cost of a step "
        "counts, too.",
    ),
    erratum=(
        "Equation 2 takes the two copies of a tuple for independent arrivals. They come at the same moment, and the "
        "copy in the "
        "second queue also waits for its twin in the first: E(W2) = (E(W1) + E(B1)) / (1 - rho1 - rho2). With that "
        "the form follows "
        "the experiment on true copies; equation 2 itself is a lower bound, some times too small. The paper's point "
        "becomes stronger."
    ),
)
SHARES = (0.0, 0.4, 0.7, 1.0)  # of the way from the lowest load to the highest, at which all is loaded by 0.8
POINTS = 24


def measure(lab: Lab) -> FigureData:
    ratio, variation, low = lab.number("ratio"), lab.number("variation"), lab.number("low")
    tuples = round(lab.number("tuples") * lab.choose(lab.by_engine(0.08, 1.0), 0.4))
    high = lab.by_engine(0.65, 0.8) / (1 + 1 / ratio)  # on the engine a step takes time, too
    loads = [low + share * (high - low) for share in lab.choose(lab.by_engine((0.0, 0.5, 1.0), SHARES), (0.0, 1.0))]
    points = [low + i / POINTS * (high - low) for i in range(POINTS + 1)]
    apart, copies = [], []
    for load in loads:
        unit = lab.by_engine(3.0, 1.0)  # of O2; on the engine it must be long beside a step
        seen = shared_output(lab, load / ratio / unit, ratio * unit, unit, variation, tuples)
        apart.append((load, (seen.apart / seen.base) ** 2))
        copies.append((load, (seen.copied / seen.base) ** 2))
    equation, twin = "equation 2", "with the twin"
    panels = (
        Panel(
            "load of O1",
            "memory, over that of one service",
            {"measured": apart, equation: [(x, memory_ratio(x, ratio, variation)) for x in points]},
            title="arrivals apart, as the equation assumes",
            dashed=(equation,),
        ),
        Panel(
            "load of O1",
            "memory, over that of one service",
            {
                "copies": copies,
                twin: [(x, twin_ratio(x, ratio, variation)) for x in points],
                equation: [(x, memory_ratio(x, ratio, variation)) for x in points],
            },
            title="copies, as the paper draws it",
            dashed=(equation, twin),
            log_y=True,
        ),
    )
    return FigureData(panels, {"r": ratio, "coefficient of variation": variation})


def twin_ratio(load: float, ratio: float, variation: float) -> float:
    system = (load / ratio, ratio, 1.0, variation)
    return (copied_wait(*system) / base_wait(*system)) ** 2


def verdict(measured: FigureData) -> FigureVerdict:
    """Compare with the closed forms at the measured points."""
    ratio, variation = measured.numbers["r"], measured.numbers["coefficient of variation"]
    seen, copied = measured.curve("measured"), measured.curve("copies", 1)
    times = [y / memory_ratio(x, ratio, variation) for x, y in seen.items()]
    twins = [y / twin_ratio(x, ratio, variation) for x, y in copied.items()]
    values, last = list(seen.values()), max(seen)
    mean = sum(times) / len(times)
    return FigureVerdict(
        (
            Check(
                "memory follows equation 2",
                all(0.75 <= t <= 1.33 for t in times),
                f"{min(times):.2f} to {max(times):.2f} of it",
            ),
            Check(
                "it rises with the load of O1", values == sorted(values), f"from {values[0]:.2f} to {values[-1]:.2f}"
            ),
            Check(
                "true copies follow the form with the twin",
                all(0.7 <= t <= 1.43 for t in twins),
                f"{min(twins):.2f} to {max(twins):.2f} of it, {copied[last] / seen[last]:.1f} times equation 2",
            ),
        ),
        "memory_ratio",
        seen[last],
        memory_ratio(last, ratio, variation),
        {AGREES: mean},
    )
