"""P4, figure 6: deadlines missed over Ki, the integral part of the controller of ATS (``p4_factors.py``)."""

from __future__ import annotations

from engine.lab.figures.p4_factors import ControllerFactor

_KI = ControllerFactor("Ki", "integral", (1.0, 5.0, 10.0, 15.0, 20.0), best=10.0)
FIGURE = _KI.figure(
    "The integral factor Ki",
    "Ki = 10 misses the fewest deadlines; a smaller one moves k too little, a larger one too much.",
)
measure, verdict = _KI.measure, _KI.verdict
