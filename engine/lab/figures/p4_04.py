"""P4, figure 4: deadlines missed over k, for five lengths of the basic batch.

BTS runs with a scheduling batch of k basic batches. Longer batches need fewer scheduling steps, but they hold tasks
whose deadlines pass while the tasks wait for the others or run. The set-up is that of ``p4_deadlines.py`` at lambda
0.5, the load that figure 3 of P4 shows for these trials. k is tried far beyond the paper's best.
"""

from __future__ import annotations

from dataclasses import replace

from engine.lab.figures.figure import REAL, SIMULATED, Check, Figure, FigureData, FigureVerdict, Panel, PaperPoint
from engine.lab.figures.lab import Lab
from engine.lab.figures.p4_deadlines import READINGS, TABLE_1, UNPRINTED, run, setup_of

BEST = {0.02: 2.0, 0.01: 5.0}  # k, by the paper
FIGURE = Figure(
    title="Batch sizes",
    claim=(
        "One basic batch is not always the best scheduling batch, least of all when it is short (0.02 s: two are best, "
        "0.01 s: five); of the five lengths 0.1 s reaches the least SDMR."
    ),
    printed={**TABLE_1, "queries": "100", "selectivity": "0.5", "lambda": "0.5", "policy": "BTS"},
    unprinted=UNPRINTED,
    paper=tuple(
        PaperPoint(f"best k for basic batches of {unit:g} s", k, panel=0, is_x=True) for unit, k in BEST.items()
    ),
    findings=dict.fromkeys(
        (REAL, SIMULATED),
        "Short basic batches do want more of them, as the paper says. But the curves have no minimum at 2 or 5: more "
        "is better, or equal, "
        "up to where a batch takes all that waits. A scheduling batch takes what is there of k basic batches, so a "
        "large k does not make "
        "anybody wait; in overload the queue is long, and the cost of a step is shared by more tasks. A minimum would "
        "need batches that "
        "wait until all k are full, or plans that are long beside the deadlines, which 50 tuples of 25 us are not.",
    ),
)
UNITS_S = (0.01, 0.02, 0.04, 0.05, 0.1)
KS = (1, 2, 5, 12, 30, 80)


def measure(lab: Lab) -> FigureData:
    units = lab.choose(lab.by_engine((0.01, 0.1), UNITS_S), (0.01, 0.02, 0.1))
    ks = lab.choose(lab.by_engine((1, 2, 5, 20, 80), KS), (1, 2, 5, 30, 80))
    base = replace(setup_of(lab), policy="BTS", rate=0.5)
    panels = []
    for reading, overdue in READINGS.items():
        curves = {
            f"{unit:g} s": [(float(k), run(replace(base, overdue=overdue, unit_s=unit, k=k)).sdmr) for k in ks]
            for unit in units
        }
        panels.append(Panel("k", "SDMR", curves, log_x=True, title=reading))
    return FigureData(tuple(panels))


def verdict(measured: FigureData) -> FigureVerdict:
    checks = []
    ours: dict[str, float] = {}
    for number, reading in enumerate(READINGS):
        curves = {name: dict(curve) for name, curve in measured.panels[number].curves.items()}
        best = {name: min(curve, key=lambda k, c=curve: c[k]) for name, curve in curves.items()}  # type: ignore[misc]
        least = {name: min(curve.values()) for name, curve in curves.items()}
        short, long = next(iter(curves)), list(curves)[-1]
        lost = {name: curve[1] - least[name] for name, curve in curves.items()}  # by one basic batch
        checks += [
            Check(
                "short basic batches want more than one", best[short] > 1, f"{short}: {best[short]:g} are best", reading
            ),
            Check(
                "the shorter, the more",
                best[short] >= best[long] and lost[short] >= lost[long],
                ", ".join(f"{n}: {k:g}" for n, k in best.items()),
                reading,
            ),
            Check(
                "there is a best k before the largest",
                best[short] < max(curves[short]) and curves[short][max(curves[short])] > least[short] + 0.002,
                f"{short}: {best[short]:g} of up to {max(curves[short]):g}",
                reading,
            ),
            Check(
                "0.1 s reaches the least SDMR",
                least[long] <= min(least.values()) + 0.002,
                f"{least[long]:.3f}, the others {min(v for n, v in least.items() if n != long):.3f} at best",
                reading,
            ),
        ]
        for unit in BEST:
            ours.setdefault(f"best k for basic batches of {unit:g} s", best.get(f"{unit:g} s", best[short]))
    first = measured.panels[0].curves
    longest = dict(first[list(first)[-1]])
    return FigureVerdict(tuple(checks), "sdmr", min(longest.values()), longest[1], ours)
