"""A quick run of each figure in the simulator gives the same answer every time, so its verdict is checked."""

from __future__ import annotations

import pytest

from engine.lab.figures import figure_names, load_figure
from engine.lab.figures.figure import DIFFERS, HOLDS, REAL, SIMULATED
from engine.lab.figures.record import run_figure

ON_THE_SIMULATOR = [name for name in figure_names() if SIMULATED in load_figure(name).FIGURE.engines]


@pytest.mark.parametrize("name", ON_THE_SIMULATOR)
def test_a_quick_look_gives_the_verdict_of_the_report(name: str) -> None:
    record = run_figure(name, SIMULATED, quick=True)
    expected = DIFFERS if SIMULATED in record.figure.differs else HOLDS
    assert record.verdict.word == expected, record.why


@pytest.mark.parametrize("name", ["P0.7", "P0.14"])
def test_the_real_engine_gives_the_same_panels(name: str) -> None:
    """The verdict on the real engine depends on the machine's other load, so only the report shows it."""
    record = run_figure(name, REAL, quick=True)
    assert record.verdict.word in (HOLDS, DIFFERS)
    for panel in record.measured.panels:
        assert all(len(curve) > 1 and all(y >= 0 for _, y in curve) for curve in panel.curves.values())
    if SIMULATED in record.figure.engines:
        simulated = run_figure(name, SIMULATED, quick=True)
        assert [set(p.curves) for p in record.measured.panels] == [set(p.curves) for p in simulated.measured.panels]
