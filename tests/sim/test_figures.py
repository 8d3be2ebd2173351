"""A short run of each figure in the simulator gives the same answer every time, so what it shows is checked."""

from __future__ import annotations

import pytest

from engine.lab.figures import load_figure
from engine.lab.figures.figure import REAL, SIMULATED
from engine.lab.figures.runner import measure
from engine.lab.figures.sweep import Variation

HOLD = ("P0.3", "P0.5", "P0.6", "P0.7", "P0.8", "P0.depth", "P0.spanner", "P1", "P2.11", "P2.fan-in", "P4.3")
DIFFER = ("P0.9", "P0.11", "P4.5", "P4.12")
"""Claims at our settings, for seed 1. The others take longer; ``bench figure`` runs them. A claim that does not hold
has a finding that explains it."""


@pytest.mark.parametrize("name", [*HOLD, *DIFFER])
def test_a_short_run_gives_the_verdict_of_the_report(name: str) -> None:
    module = load_figure(name)
    verdict = module.verdict(measure(name, SIMULATED, True, Variation(1)))
    assert verdict.holds == (name in HOLD), [check for check in verdict.checks if not check.ok]
    assert set(verdict.ours) == {point.what for point in module.FIGURE.paper}
    assert name in HOLD or module.FIGURE.findings[SIMULATED]


@pytest.mark.parametrize("name", ["P0.7", "P0.14"])
def test_the_real_engine_gives_the_same_panels(name: str) -> None:
    """The verdict on the real engine depends on the machine's other load, so only the report shows it."""
    measured = measure(name, REAL, True, Variation(1))
    assert load_figure(name).verdict(measured).checks
    for panel in measured.panels:
        assert all(len(curve) > 1 and all(y >= 0 for _, y in curve) for curve in panel.curves.values())
    if SIMULATED in load_figure(name).FIGURE.engines:
        simulated = measure(name, SIMULATED, True, Variation(1))
        assert [set(p.curves) for p in measured.panels] == [set(p.curves) for p in simulated.panels]
