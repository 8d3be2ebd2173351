"""The figures of the papers, each from one command: ``aurorad bench figure P0.5``.

A claim counts when it can be run. A figure is one small file here that reads like the paper's own description of the
experiment, found by its name: ``p0_05.py`` is figure 5 of P0, ``p1.py`` the claim of P1 as a whole. (P0 to P4 are the
papers of ``base.PAPERS``.) Nothing else is edited for a new one. It has

- a docstring: the set-up as the paper has it, and what of it is scaled or chosen by us, and why;
- ``FIGURE = Figure(title, claim, ...)``: the title, the paper's claim in its own terms, on which engines it runs
  (``real``, ``simulated``), the parameters as people would name them, and ``differs``: for an engine on which the claim
  is known not to hold, an explanation that someone could check (shown only when the verdict is ``differs``);
- ``measure(lab) -> Measured``: runs the experiment and gives what is plotted: panels of curves. The lab
  (``lab.py``) runs a network on arrivals, ``lab.run(network, trains, policy=..., settings=...)``, on the real engine in
  real time or in the simulator, and gives the same ``Outcome`` for both: latency, utility, slowdown, where the time
  went. So most figures are written once and run on both. ``lab.choose(full, quick)`` picks between the report and the
  look that the tests take (in the simulator about a second); ``lab.repeat({name: function})`` lets contenders take
  turns and gives the best round of each, because a real machine has neighbours; ``lab.progress(share)`` moves the bar;
- ``verdict(measured) -> Verdict``: a pure function of what was measured. It lists checks, each a sentence with the
  number that was seen, and a headline (metric, value, baseline) for the JSON line. The claim holds when every check
  does. A threshold is what the paper's text says, with room for noise, and is never moved to make a run pass.

``testbed.py`` draws the networks of P0 5.1 (trees of universal boxes, load as a share of capacity). ``run.py`` runs
figures and keeps what they gave as JSON, ``text.py`` prints it, ``draw.py`` plots it (matplotlib: the extra ``plots``),
``page.py`` makes the report.

Compare shapes and ratios, never absolute times. Simulated runs give the same answer every time, so tests hold their
quick verdicts; real ones are held only in the report.
"""

from __future__ import annotations

import importlib
import pkgutil
import re
from functools import cache
from types import ModuleType
from typing import Protocol, cast

from engine.bench.figures.base import Figure, Measured, Verdict
from engine.bench.figures.lab import Lab

_FILE = re.compile(r"p(\d)(?:_(\d+))?")


class FigureModule(Protocol):
    """What a file of this folder has."""

    FIGURE: Figure
    __doc__: str

    def measure(self, lab: Lab) -> Measured: ...

    def verdict(self, measured: Measured) -> Verdict: ...


@cache
def figure_names() -> dict[str, str]:
    """Every figure by its name (``P0.5``), and its module, in the order of the papers."""
    found = {}
    for info in pkgutil.iter_modules(__path__):
        if match := _FILE.fullmatch(info.name):
            paper, number = match[1], match[2]
            found[int(paper), int(number or 0)] = (f"P{paper}.{int(number)}" if number else f"P{paper}", info.name)
    return {name: module for _, (name, module) in sorted(found.items())}


def load_figure(name: str) -> FigureModule:
    """The module of a figure. Raises KeyError."""
    module: ModuleType = importlib.import_module(f"{__name__}.{figure_names()[name]}")
    return cast(FigureModule, module)
