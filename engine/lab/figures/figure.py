"""The parts of a figure: its description, the measured data, and the verdict."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

PAPERS: Mapping[str, str] = {
    "P0": "Operator Scheduling in a Data Stream Manager (Carney et al., VLDB 2003)",
    "P1": "Efficient Scheduling of Heterogeneous Continuous Queries (Sharaf et al., VLDB 2006)",
    "P2": "VPipe: Virtual Pipelining for Scheduling of DAG Stream Query Plans (Wang, Gupta, Mehta)",
    "P3": "Aurora: trains and priorities",
    "P4": "Stream Task Scheduling Method for Deadline-Sensitive Applications (Yu et al., Journal of Software 2007)",
}

REAL, SIMULATED = "real", "simulated"
HOLDS, DIFFERS = "holds", "differs"

Curve = Sequence[tuple[float, float]]
"""Points (x, y) in the order of x."""


@dataclass(frozen=True)
class Figure:
    """The paper's claim, and how we ran the experiment."""

    title: str
    claim: str  # the paper's, in one or two sentences
    engines: tuple[str, ...] = (REAL, SIMULATED)
    parameters: Mapping[str, str] = field(default_factory=dict)  # of the experiment, in words
    differs: Mapping[str, str] = field(default_factory=dict)  # by engine: why the claim does not hold


@dataclass(frozen=True)
class Panel:
    """One pair of axes. Bars stand at 0, 1, 2 ..., named by ``ticks``; stacked, the curves add up."""

    x: str
    y: str  # with its unit
    curves: Mapping[str, Curve]
    kind: str = "lines"  # lines | bars | stacked
    title: str = ""
    log_x: bool = False
    log_y: bool = False
    ticks: tuple[str, ...] = ()
    dashed: tuple[str, ...] = ()  # curves that were not measured: closed forms, numbers of the paper
    marks: Mapping[str, float] = field(default_factory=dict)  # horizontal lines: numbers that the paper prints
    marks_x: Mapping[str, float] = field(default_factory=dict)  # vertical ones


@dataclass(frozen=True)
class FigureData:
    """The data of a run: the panels to draw, and further numbers."""

    panels: tuple[Panel, ...]
    numbers: Mapping[str, float] = field(default_factory=dict)  # shown below the table; the name includes the unit

    def curve(self, name: str, panel: int = 0) -> dict[float, float]:
        return dict(self.panels[panel].curves[name])


class Check(NamedTuple):
    """One statement of the claim: whether it holds, and a sentence with the measured number."""

    ok: bool
    seen: str


@dataclass(frozen=True)
class FigureVerdict:
    """The checks, and the figure in one line: ``metric`` (its unit last), ``value`` and ``baseline``."""

    checks: tuple[Check, ...]
    metric: str
    value: float
    baseline: float | None = None

    @property
    def word(self) -> str:
        return HOLDS if all(c.ok for c in self.checks) else DIFFERS

    @property
    def why(self) -> str:
        """Join the sentences of the checks; the failed ones come first."""
        against = [f"NOT: {c.seen}" for c in self.checks if not c.ok]
        return "; ".join([*against, *(c.seen for c in self.checks if c.ok)])


def to_plain(measured: FigureData) -> dict[str, Any]:
    """Convert to plain data for JSON; ``from_plain`` reverses it."""
    panels = [
        {
            **{k: getattr(p, k) for k in ("x", "y", "kind", "title", "log_x", "log_y")},
            "curves": {name: [list(point) for point in curve] for name, curve in p.curves.items()},
            "ticks": list(p.ticks),
            "dashed": list(p.dashed),
            "marks": dict(p.marks),
            "marks_x": dict(p.marks_x),
        }
        for p in measured.panels
    ]
    return {"panels": panels, "numbers": dict(measured.numbers)}


def from_plain(data: Mapping[str, Any]) -> FigureData:
    panels = tuple(
        Panel(
            **{
                **p,
                "curves": {name: [(x, y) for x, y in curve] for name, curve in p["curves"].items()},
                "ticks": tuple(p["ticks"]),
                "dashed": tuple(p["dashed"]),
            }
        )
        for p in data["panels"]
    )
    return FigureData(panels, data["numbers"])
