"""P2, figure 6: the memory of a shared output when one reader has priority over the other.

A stream is copied to two segments O1 and O2. Chain runs the steeper one, O1, whenever a tuple waits for it. A tuple is
kept until both have taken it, so memory is that of the second queue: E(L) E(W) = lambda E(W2)^2, over the same for one
service without priorities. Equation 2 gives the ratio by the load of O1, r = E(B1)/E(B2) and the coefficient of
variation of the service times.

Two systems are simulated: one with independent Poisson arrivals of the same rate at both queues, as the equation
assumes, and one with true copies, as figure 5 of the paper draws it. There the second copy also waits for its own twin,
which the equation leaves out: the curves *copies* are far above it, and follow the form that counts the twin
(``p2_closed_forms.copied_wait``). So equation 2 is a lower bound of the cost of SOS, which strengthens the paper's
point. (By equation 2 alone the ratio would fall below 1 at small loads.)
"""

from __future__ import annotations

from engine.lab.figures.figure import Check, Figure, FigureData, FigureVerdict, Panel
from engine.lab.figures.lab import Lab
from engine.lab.figures.p2_closed_forms import base_wait, copied_wait, memory_ratio
from engine.lab.figures.p2_systems import shared_output

FIGURE = Figure(
    title="Memory of a shared output: Chain against one synchronized service",
    claim=(
        "Equation 2 gives the ratio of memory; it rises dramatically when the utilization of the operator that goes "
        "first is high."
    ),
    engines=("simulated",),
    parameters={
        "network": "one stream, O1 and O2 on it; O1 first",
        "E(B1) / E(B2)": "1 and 4",
        "coefficient of variation": "0 (fixed) and 1 (exponential)",
        "arrivals": "Poisson",
        "policy": "chain, one tuple at a time",
        "overheads": "none",
    },
)

Loads = dict[float, tuple[float, ...]]
LOADS: Loads = {1.0: (0.1, 0.2, 0.3, 0.35), 4.0: (0.2, 0.4, 0.56)}  # of O1, by r; O2 comes on top
TUPLES = {0.0: 12_000, 1.0: 40_000}  # by the coefficient of variation
NEAR = 0.2
POINTS = tuple(x / 40 for x in range(1, 27))


def measure(lab: Lab) -> FigureData:
    few: Loads = {1.0: (0.2,), 4.0: (0.4,)}
    loads = lab.choose(LOADS, few)
    tuples = lab.choose(TUPLES, {0.0: 4_000})  # without variation fewer tuples suffice
    cases = [(ratio, variation) for ratio in loads for variation in tuples]
    apart: dict[str, list[tuple[float, float]]] = {}
    copies: dict[str, list[tuple[float, float]]] = {}
    for number, (ratio, variation) in enumerate(cases):
        name = case(ratio, variation)
        at = [load for load in POINTS if load * (1 + 1 / ratio) < 0.9]
        apart[f"equation 2, {name}"] = [(x, memory_ratio(x, ratio, variation)) for x in at]
        copies[f"with the twin, {name}"] = [(x, twin_ratio(x, ratio, variation)) for x in at]
        apart[f"simulated, {name}"] = []
        copies[f"copies, {name}"] = []
        for load in loads[ratio]:
            lab.progress(number / len(cases))
            # O2 takes a unit, O1 as many as the ratio says.
            seen = shared_output(load / ratio, ratio, 1.0, variation, tuples[variation])
            apart[f"simulated, {name}"].append((load, (seen.apart / seen.base) ** 2))
            copies[f"copies, {name}"].append((load, (seen.copied / seen.base) ** 2))
    dashed = tuple(n for n in (*apart, *copies) if not n.startswith(("simulated", "copies")))
    panels = (
        Panel("load of O1", "memory, over that of one service", apart, title="arrivals apart", dashed=dashed),
        Panel("load of O1", "memory, over that of one service", copies, title="copies", dashed=dashed, log_y=True),
    )
    return FigureData(panels)


def case(ratio: float, variation: float) -> str:
    return f"r {ratio:g}, c {variation:g}"


def twin_ratio(load: float, ratio: float, variation: float) -> float:
    system = (load / ratio, ratio, 1.0, variation)
    return (copied_wait(*system) / base_wait(*system)) ** 2


def verdict(measured: FigureData) -> FigureVerdict:
    """Compare with the closed forms at the simulated points."""
    off, twin_off, rises, above = [], [], [], []
    for ratio in LOADS:
        for variation in TUPLES:
            name = case(ratio, variation)
            if f"simulated, {name}" not in measured.panels[0].curves:
                continue
            seen, copied = measured.curve(f"simulated, {name}"), measured.curve(f"copies, {name}", 1)
            off += [abs(y / memory_ratio(x, ratio, variation) - 1) for x, y in seen.items()]
            twin_off += [abs(y / twin_ratio(x, ratio, variation) - 1) for x, y in copied.items()]
            rises += [after > before for before, after in zip(list(seen.values())[:-1], list(seen.values())[1:])]
            above += [copied[x] / seen[x] for x in seen]
    last = max(measured.panels[0].curves["simulated, r 4, c 0"])
    return FigureVerdict(
        (
            Check(max(off) <= NEAR, f"simulation and equation 2 differ by {max(off):.1%} at most (arrivals apart)"),
            Check(all(rises), "the ratio rises with the load of O1"),
            Check(
                max(twin_off) <= NEAR,
                f"true copies follow the form that counts the twin within {max(twin_off):.1%}, "
                f"{min(above):.1f} to {max(above):.1f} times equation 2",
            ),
        ),
        "memory_ratio",
        last[1],
        memory_ratio(last[0], 4.0, 0.0),
    )
