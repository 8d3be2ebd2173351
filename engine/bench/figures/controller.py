"""What figures 5 and 6 of P4 share: ATS over one factor of its controller."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from engine.bench.figures.base import Check, Measured, Panel, Verdict
from engine.bench.figures.deadlines import Setup, run
from engine.bench.figures.lab import Lab

RATES = (0.55, 0.6, 0.7, 0.8)
SEEDS = (1, 2)


def over_factor(lab: Lab, factor: str, values: tuple[float, ...]) -> Measured:
    """SDMR by the factor: the mean over loads and draws, and each load by itself."""
    rates, seeds = lab.choose(RATES, (0.6,)), lab.choose(SEEDS, (1,))
    curves: dict[str, list[tuple[float, float]]] = {name: [] for name in (*(f"lambda {r:g}" for r in rates), "mean")}
    for number, value in enumerate(values):
        lab.progress(number / len(values))
        found = []
        for rate in rates:
            base = Setup("ATS", rate, simulated=lab.choose(50, 10), long_s=lab.choose(6.0, 4.0))
            changed: dict[str, Any] = {factor: value}
            missed = [run(replace(base, seed=seed, **changed)).sdmr for seed in seeds]
            found.append(sum(missed) / len(missed))
            curves[f"lambda {rate:g}"].append((value, found[-1]))
        curves["mean"].append((value, sum(found) / len(found)))
    return Measured((Panel(factor, "SDMR", curves, log_x=True),))


def verdict_near(measured: Measured, best: float) -> Verdict:
    """Near: the paper's value, or one beside it."""
    curve = measured.curve("mean")
    factors = sorted(curve)
    ours = min(factors, key=lambda x: curve[x])
    beside = abs(factors.index(ours) - factors.index(best))
    return Verdict(
        (
            Check(
                beside <= 1,
                f"least at {ours:g} ({curve[ours]:.3f}); at {best:g} {curve[best]:.3f}, at the ends "
                f"{curve[factors[0]]:.3f} and {curve[factors[-1]]:.3f}",
            ),
        ),
        "sdmr",
        curve[best],
        curve[ours],
    )
