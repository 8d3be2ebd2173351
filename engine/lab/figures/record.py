"""Run figures and keep their data: one JSON file for each, so that a report can be made in parts.

A stored record has the data and the time of the run. It has no verdict: that is computed again from the data, so a page
of stored records shows the verdicts of the present code.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from time import perf_counter
from typing import Any

import orjson

from engine.lab.bench.harness import read_kept
from engine.lab.bench.report import Result
from engine.lab.figures import figure_names, load_figure
from engine.lab.figures.figure import DIFFERS, Figure, FigureData, FigureVerdict, from_plain, to_plain
from engine.lab.figures.lab import Lab


@dataclass(frozen=True)
class FigureRecord:
    name: str  # P0.5
    engine: str
    figure: Figure
    doc: str
    measured: FigureData
    verdict: FigureVerdict
    quick: bool
    seconds: float
    when: str
    machine: str

    @property
    def why(self) -> str:
        """Join the checks and, if the claim does not hold, the explanation."""
        explained = self.figure.differs.get(self.engine, "") if self.verdict.word == DIFFERS else ""
        return f"{self.verdict.why}. {explained}" if explained else self.verdict.why

    def result(self) -> Result:
        """Make the line of ``--json``."""
        extra = {
            "figure": self.name,
            "engine": self.engine,
            "verdict": self.verdict.word,
            "why": self.why,
            "claim": self.figure.claim,
        }
        verdict = self.verdict
        return Result("figure", self.name, verdict.metric, verdict.value, verdict.baseline, extra=extra)


def machine_note() -> str:
    load = os.getloadavg()[0]
    return f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}, load average {load:.1f}"


def run_figure(name: str, engine: str, quick: bool, on_progress: Callable[[float], None] | None = None) -> FigureRecord:
    module = load_figure(name)
    lab = Lab(engine, quick)
    if on_progress is not None:
        lab.on_progress = on_progress
    machine, begun = machine_note(), perf_counter()
    measured = module.measure(lab)
    seconds = perf_counter() - begun
    when = datetime.now(UTC).isoformat(timespec="seconds")
    return _record(name, engine, measured, quick=quick, seconds=seconds, when=when, machine=machine)


def _record(name: str, engine: str, measured: FigureData, **rest: Any) -> FigureRecord:
    module = load_figure(name)
    return FigureRecord(name, engine, module.FIGURE, module.__doc__, measured, module.verdict(measured), **rest)


def wanted(names: list[str], engine: str | None) -> list[tuple[str, str]]:
    """List (figure, engine) for these names; ``all`` is every figure. Raises KeyError with an unknown name."""
    known = figure_names()
    if unknown := [n for n in names if n != "all" and n not in known]:
        raise KeyError(unknown[0])
    chosen = list(known) if "all" in names else names
    return [(n, e) for n in chosen for e in load_figure(n).FIGURE.engines if engine in (None, e)]


# -- kept -----------------------------------------------------------------------------------------------------------


def file_of(folder: Path, name: str, engine: str, suffix: str) -> Path:
    return folder / f"{name}-{engine}.{suffix}"


def save(folder: Path, record: FigureRecord) -> None:
    data = {
        "quick": record.quick,
        "seconds": record.seconds,
        "when": record.when,
        "machine": record.machine,
        "measured": to_plain(record.measured),
    }
    file_of(folder, record.name, record.engine, "json").write_bytes(orjson.dumps(data, option=orjson.OPT_INDENT_2))


def stored(folder: Path, name: str, engine: str) -> FigureRecord | None:
    """Read the record of an earlier run; None if there is none."""
    path = file_of(folder, name, engine, "json")
    if not path.exists():
        return None
    return read_kept(path, lambda d: _record(name, engine, from_plain(d.pop("measured")), **d), "`bench figure` writes")
