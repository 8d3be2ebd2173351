"""P4, figure 4: deadlines missed over k, for five lengths of the basic batch.

BTS runs with a scheduling batch of k basic batches. Longer batches need fewer scheduling steps, but they hold tasks
whose deadlines pass while the tasks wait for the others or run. The set-up is that of ``p4_deadlines.py`` at lambda
0.5, the load that figure 3 of P4 shows for these trials. Points are means over two draws of queries and arrivals.

In the paper the best length of a scheduling batch is 0.04 to 0.1 s. Here it is longer: in heavy overload it is the
longest that is tried. A scheduling batch takes what is there of k basic batches, and waits for the first only.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

from engine.lab.figures.figure import Check, Figure, FigureData, FigureVerdict, Panel
from engine.lab.figures.lab import Lab
from engine.lab.figures.p4_deadlines import TABLE_1, DeadlineSetup, run
from engine.lab.figures.p4_panels import SEEDS, mean

FIGURE = Figure(
    title="Batch sizes",
    claim=(
        "One basic batch is not always the best scheduling batch, least of all when it is short (0.02 s: two are best, "
        "0.01 s: five); of the five lengths 0.1 s reaches the least SDMR."
    ),
    engines=("simulated",),
    parameters={"queries": "100", "selectivity": "0.5", "lambda": "0.5", "policy": "bts", **TABLE_1},
)

RATE = 0.5
UNITS_S = (0.01, 0.02, 0.04, 0.05, 0.1)
KS = (1, 2, 3, 5, 8, 12, 20)


def measure(lab: Lab) -> FigureData:
    units, ks = lab.choose(UNITS_S, (0.02, 0.1)), lab.choose(KS, (1, 5, 20))
    curves: dict[str, list[tuple[float, float]]] = {f"{unit:g} s": [] for unit in units}
    for number, unit in enumerate(units):
        for k in ks:
            lab.progress((number + k / ks[-1]) / len(units))
            setup = DeadlineSetup("BTS", RATE, unit_s=unit, k=k, simulated=lab.choose(50, 20))
            missed = [run(replace(setup, seed=seed)).sdmr for seed in lab.choose(SEEDS, (4,))]
            curves[f"{unit:g} s"].append((k, mean(missed)))
    return FigureData((Panel("k", "SDMR", curves),))


def verdict(measured: FigureData) -> FigureVerdict:
    curves = {name: dict(curve) for name, curve in measured.panels[0].curves.items()}
    best = {name: min(curve, key=lambda k, c=curve: c[k]) for name, curve in curves.items()}  # type: ignore[misc]
    least = {name: min(curve.values()) for name, curve in curves.items()}
    *shorter, longest = curves
    lost = [curve[1] - least[name] for name, curve in curves.items()]  # by one basic batch, against the best number
    return FigureVerdict(
        (
            Check(best[shorter[0]] > 1, f"basic batches of {shorter[0]} are best in batches of {best[shorter[0]]:g}"),
            Check(
                all(a > b for a, b in pairwise(lost)),
                "the shorter the batch, the more a single one misses than the best number of them: "
                + ", ".join(f"{n}: {x:.3f} (best {best[n]:g})" for n, x in zip(curves, lost, strict=True)),
            ),
            Check(
                least[longest] <= min(least.values()) + 0.005,
                f"{longest} reaches {least[longest]:.3f}, the others {min(least[n] for n in shorter):.3f} at best",
            ),
            Check(
                curves[longest][1] == min(curve[1] for curve in curves.values()),
                f"and with k = 1 it misses least as well: {curves[longest][1]:.3f}",
            ),
        ),
        "sdmr",
        least[longest],
        min(least[n] for n in shorter),
    )
