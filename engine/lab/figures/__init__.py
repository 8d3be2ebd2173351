"""The figures of the papers, each from one command: ``aurorad bench figure P0.5``.

A claim counts when it can be run, and when it does not hang on settings that nobody printed. A figure is one small file
here that reads like the paper's own description of the experiment. Its file is found by its name: ``p0_05.py`` is
figure 5 of P0, ``p1.py`` the claim of P1 as a whole, ``p0_claim_depth.py`` a claim of the text (``P0.depth``). (P0 to
P4 are the papers of ``figure.PAPERS``.) To add a figure, write its file; nothing else is edited. The file has

- a docstring: the set-up of the paper, and how we run it;
- ``FIGURE = Figure(...)``: the paper's claim in its own terms; ``printed``, the settings of the paper, used as printed;
  ``unprinted``, those that it does not print, each with our default and the reason; ``paper``, the numbers that it
  prints, which are drawn into our plots; ``findings``, by engine an explanation that a reader can check, shown where
  the claim is not reproduced; ``erratum``, an error of the paper that the experiment shows;
- ``measure(lab) -> FigureData``: run the experiment once, with the seed and the settings of the lab
  (``lab.number(name)``), and return panels of curves. ``lab.run(network, trains, policy=..., settings=...)`` runs on
  the real engine or in the simulator and returns the same ``LabRun`` for both. ``lab.choose(full, short)`` returns the
  value for our settings or for the sweep and the tests (about a second in the simulator);
- ``verdict(measured) -> FigureVerdict``: a pure function of the data. It lists the statements of the claim, each with
  whether it holds and a sentence with the number measured; our numbers beside the paper's (``ours``); and a headline
  (metric, value, baseline). A threshold is that of the paper's text and is never moved to make a run pass.

A claim is judged by many runs (``sweep.py``, ``outcome.py``). The simulator runs five seeds at our settings, and a
sweep of the unprinted settings: each alone at half and at double, then several at once, at least twenty runs. The real
engine runs five seeds. The word is ``holds`` if the claim holds in 90 % of the runs and our numbers lie within a
quarter of the paper's, ``shape`` if only the numbers lie elsewhere, and ``differs`` otherwise. No baseline is weaker
than the paper's.

``lab.py`` and ``real_engine.py`` run experiments, ``runner.py`` runs figures in processes, ``record.py`` keeps their
data as JSON, ``terminal.py`` prints them, ``plot.py`` plots them (matplotlib: the extra ``plots``), ``page.py`` makes
the HTML report. Shared files: ``p0_testbed.py`` (networks and arrivals of P0 5.1), ``thread_per_box.py`` (the baseline
of P0 3), ``p2_systems.py`` and ``p2_closed_forms.py``, ``p4_deadlines.py`` and ``p4_panels.py``.

Compare shapes and ratios, never absolute times. Simulated runs give the same answer every time, so tests check their
words; those of real ones appear only in the report.
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

_FILE = re.compile(r"p(\d)(?:_(\d+)|_claim_(\w+))?")


class FigureModule(Protocol):
    """What the file of a figure defines."""

    FIGURE: Figure
    __doc__: str

    def measure(self, lab: Lab) -> FigureData: ...

    def verdict(self, measured: FigureData) -> FigureVerdict: ...


@cache
def figure_names() -> dict[str, str]:
    """Map every figure (``P0.5``) to its module, in the order of the papers; claims of the text come last."""
    found = {}
    for info in pkgutil.iter_modules(__path__):
        if match := _FILE.fullmatch(info.name):
            paper, number, words = match[1], int(match[2] or 0), (match[3] or "").replace("_", "-")
            last = words or (str(number) if number else "")
            found[paper, bool(words), number, words] = (f"P{paper}.{last}" if last else f"P{paper}", info.name)
    return {name: module for _, (name, module) in sorted(found.items())}


def load_figure(name: str) -> FigureModule:
    """Import the module of a figure. Raises KeyError."""
    module: ModuleType = importlib.import_module(f"{__name__}.{figure_names()[name]}")
    return cast(FigureModule, module)
