"""The figures of the papers, a quick look at each in the simulator: the same answer every time, so it is held."""

from __future__ import annotations

import pytest

from engine.bench.figures import figure_names, load_figure
from engine.bench.figures.base import DIFFERS, HOLDS, SIMULATED
from engine.bench.figures.run import run_figure

ON_THE_SIMULATOR = [name for name in figure_names() if SIMULATED in load_figure(name).FIGURE.engines]


@pytest.mark.parametrize("name", ON_THE_SIMULATOR)
def test_a_quick_look_gives_the_verdict_of_the_report(name: str) -> None:
    record = run_figure(name, SIMULATED, quick=True)
    expected = DIFFERS if SIMULATED in record.figure.differs else HOLDS
    assert record.verdict.word == expected, record.why
