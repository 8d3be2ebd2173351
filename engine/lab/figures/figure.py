"""The parts of a figure: the paper's claim and numbers, the settings, the data of a run, and the checks on it."""

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
HOLDS, SHAPE, DIFFERS = "holds", "shape", "differs"
WORDS: Mapping[str, str] = {
    HOLDS: "the claim holds in at least 90 % of the runs, and our numbers lie near those that the paper prints",
    SHAPE: "the claim holds in at least 90 % of the runs; our numbers lie elsewhere than the paper's",
    DIFFERS: "the claim holds in fewer runs than that",
}

Curve = Sequence[tuple[float, float]]
"""Points (x, y) in the order of x."""

Value = float | str
"""Of a setting: a number, or a word where a setting is a choice."""


@dataclass(frozen=True)
class Unprinted:
    """A setting that the paper does not print: our default and the reason for it.

    The sweep takes it at half and at double, or at the ``others`` where these are no sensible values.
    """

    default: Value
    why: str
    others: tuple[Value, ...] = ()

    @property
    def swept(self) -> tuple[Value, ...]:
        if self.others or isinstance(self.default, str):
            return self.others
        half, double = self.default / 2, self.default * 2
        return (max(1, int(half)), int(double)) if isinstance(self.default, int) else (half, double)


class PaperPoint(NamedTuple):
    """A number that the paper prints, and where it is drawn: at ``x`` in a panel, as a level (``x`` is None), or as a
    place on the x axis (``is_x``)."""

    what: str
    value: float
    x: float | None = None
    panel: int | None = None  # None: it is compared and not drawn (a difference, a factor)
    is_x: bool = False
    within: float = 0.25  # of the value: our number lies near the paper's


@dataclass(frozen=True)
class Figure:
    """The paper's claim, and all settings of the experiment in one place."""

    title: str
    claim: str  # the paper's, in one or two sentences
    printed: Mapping[str, str]  # settings of the paper, used as printed
    unprinted: Mapping[str, Unprinted]  # settings that it does not print
    paper: tuple[PaperPoint, ...] = ()
    engines: tuple[str, ...] = (REAL, SIMULATED)
    findings: Mapping[str, str] = field(default_factory=dict)  # by engine: why the word is not "holds"
    erratum: str = ""  # an error in the paper that the experiment shows
    family: str = ""  # figures of one family share their runs, so they have the same settings

    def near(self, point: PaperPoint, ours: float) -> bool:
        return abs(ours - point.value) <= point.within * abs(point.value)


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
    dashed: tuple[str, ...] = ()  # curves that were not measured: closed forms, models
    bands: Mapping[str, Sequence[tuple[float, float]]] = field(
        default_factory=dict
    )  # of the mean: (low, high) by point


@dataclass(frozen=True)
class FigureData:
    """The data of a run: the panels to draw, and further numbers."""

    panels: tuple[Panel, ...]
    numbers: Mapping[str, float] = field(default_factory=dict)  # shown below the table; the name includes the unit

    def curve(self, name: str, panel: int = 0) -> dict[float, float]:
        return dict(self.panels[panel].curves[name])


class Check(NamedTuple):
    """One statement of the claim: whether it holds in a run, and a sentence with the measured number.

    A claim that can be read in two ways is checked in each ``reading``; it holds if it holds in one of them.
    """

    what: str
    ok: bool
    seen: str
    reading: str = ""


@dataclass(frozen=True)
class FigureVerdict:
    """The checks on one run, its numbers beside those of the paper (``ours``, by ``PaperPoint.what``), and the figure
    in one line: ``metric`` (its unit last), ``value`` and ``baseline``."""

    checks: tuple[Check, ...]
    metric: str
    value: float
    baseline: float | None = None
    ours: Mapping[str, float] = field(default_factory=dict)

    @property
    def holds(self) -> bool:
        readings = {c.reading for c in self.checks}
        return any(all(c.ok for c in self.checks if c.reading == reading) for reading in readings)


def to_plain(measured: FigureData) -> dict[str, Any]:
    """Convert to plain data for JSON; ``from_plain`` reverses it."""
    panels = [
        {
            **{k: getattr(p, k) for k in ("x", "y", "kind", "title", "log_x", "log_y")},
            "curves": {name: [list(point) for point in curve] for name, curve in p.curves.items()},
            "ticks": list(p.ticks),
            "dashed": list(p.dashed),
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
