"""The figures of the papers, each from one command: ``aurorad bench figure P0.5``.

A claim counts when it can be run. A figure is one small file here that reads like the paper's own description of the
experiment. Its file is found by its name: ``p0_05.py`` is figure 5 of P0, ``p1.py`` the claim of P1 as a whole. (P0 to
P4 are the papers of ``figure.PAPERS``.) To add a figure, write its file; nothing else is edited. The file has

- a docstring: the set-up of the paper, and which parts of it we scaled or chose, and why;
- ``FIGURE = Figure(title, claim, ...)``: the title, the paper's claim in its own terms, the engines that run it
  (``real``, ``simulated``), the parameters for people, and ``differs``: for an engine on which the claim is known not
  to hold, an explanation that a reader can check (shown only when the verdict is ``differs``);
- ``measure(lab) -> FigureData``: run the experiment and return panels of curves. The lab (``lab.py``) runs a network on
  arrivals, ``lab.run(network, trains, policy=..., settings=...)``, on the real engine or in the simulator, and returns
  the same ``LabRun`` for both: latency, utility, slowdown, parts of the overhead. So most figures are written once and
  run on both. ``lab.choose(full, quick)`` returns the value for the report or for the short run of the tests (about a
  second in the simulator). ``lab.repeat({name: function})`` lets contenders take turns and returns the best round of
  each, because a real machine runs other processes too. ``lab.progress(share)`` moves the progress bar;
- ``verdict(measured) -> FigureVerdict``: a pure function of the data. It lists checks, each a sentence with the number
  measured, and a headline (metric, value, baseline) for the JSON line. The claim holds if every check does. A threshold
  is that of the paper's text, with room for noise, and is never moved to make a run pass.

Shared files: ``p0_testbed.py`` (networks and arrivals of P0 5.1), ``p2_systems.py`` and ``p2_closed_forms.py``,
``p4_deadlines.py``, ``p4_panels.py`` and ``p4_controller.py``, ``thread_per_box.py`` (the baseline of P0 3). ``lab.py``
and ``real_engine.py`` run experiments, ``record.py`` runs figures and keeps the data as JSON, ``terminal.py`` prints
them, ``plot.py`` plots them (matplotlib: the extra ``plots``), ``page.py`` makes the HTML report.

Compare shapes and ratios, never absolute times. Simulated runs give the same answer every time, so the tests check the
quick verdicts of simulated figures; those of real ones appear only in the report.
"""

from __future__ import annotations

import importlib
import pkgutil
import re
from functools import cache
from types import ModuleType
from typing import Protocol, cast

from engine.lab.figures.figure import Figure, FigureData, FigureVerdict
from engine.lab.figures.lab import Lab

_FILE = re.compile(r"p(\d)(?:_(\d+))?")


class FigureModule(Protocol):
    """What the file of a figure defines."""

    FIGURE: Figure
    __doc__: str

    def measure(self, lab: Lab) -> FigureData: ...

    def verdict(self, measured: FigureData) -> FigureVerdict: ...


@cache
def figure_names() -> dict[str, str]:
    """Map every figure (``P0.5``) to its module, in the order of the papers."""
    found = {}
    for info in pkgutil.iter_modules(__path__):
        if match := _FILE.fullmatch(info.name):
            paper, number = match[1], match[2]
            found[int(paper), int(number or 0)] = (f"P{paper}.{int(number)}" if number else f"P{paper}", info.name)
    return {name: module for _, (name, module) in sorted(found.items())}


def load_figure(name: str) -> FigureModule:
    """Import the module of a figure. Raises KeyError."""
    module: ModuleType = importlib.import_module(f"{__name__}.{figure_names()[name]}")
    return cast(FigureModule, module)
