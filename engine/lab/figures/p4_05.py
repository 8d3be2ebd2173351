"""P4, figure 5: deadlines missed over Kp, the proportional part of the controller of ATS (``p4_factors.py``)."""

from __future__ import annotations

from engine.lab.figures.p4_factors import ControllerFactor

_KP = ControllerFactor("Kp", "proportional", (0.5, 1.0, 2.5, 10.0, 20.0), best=1.0)
FIGURE = _KP.figure(
    "The proportional factor Kp",
    "Kp = 1 misses the fewest deadlines; a smaller one moves k too seldom, a larger one too often.",
)
measure, verdict = _KP.measure, _KP.verdict
