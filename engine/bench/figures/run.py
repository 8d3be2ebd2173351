"""Running figures, and keeping what they gave: one JSON file for each, so that a report can be made in parts.

A record is plain data: what was measured and when. The verdict is not kept but drawn from it anew, so a page made of
stored records says what today's ``verdict`` says.
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

from engine.bench.figures import figure_names, load_figure
from engine.bench.figures.base import DIFFERS, Figure, Measured, Verdict, from_plain, to_plain
from engine.bench.figures.lab import Lab
from engine.bench.harness import kept
from engine.bench.report import Result


@dataclass(frozen=True)
class Record:
    name: str  # P0.5
    engine: str
    figure: Figure
    doc: str
    measured: Measured
    verdict: Verdict
    quick: bool
    seconds: float
    when: str
    machine: str

    @property
    def why(self) -> str:
        """What was seen, and where the claim does not hold, why not."""
        explained = self.figure.differs.get(self.engine, "") if self.verdict.word == DIFFERS else ""
        return f"{self.verdict.why}. {explained}" if explained else self.verdict.why

    def result(self) -> Result:
        """The line of ``--json``."""
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


def run_figure(name: str, engine: str, quick: bool, on_progress: Callable[[float], None] | None = None) -> Record:
    module = load_figure(name)
    lab = Lab(engine, quick)
    if on_progress is not None:
        lab.on_progress = on_progress
    machine, begun = machine_note(), perf_counter()
    measured = module.measure(lab)
    seconds = perf_counter() - begun
    when = datetime.now(UTC).isoformat(timespec="seconds")
    return _record(name, engine, measured, quick=quick, seconds=seconds, when=when, machine=machine)


def _record(name: str, engine: str, measured: Measured, **rest: Any) -> Record:
    module = load_figure(name)
    return Record(name, engine, module.FIGURE, module.__doc__, measured, module.verdict(measured), **rest)


def wanted(names: list[str], engine: str | None) -> list[tuple[str, str]]:
    """Figures and engines; ``all`` is every figure. Raises KeyError with the name that is none."""
    known = figure_names()
    if unknown := [n for n in names if n != "all" and n not in known]:
        raise KeyError(unknown[0])
    chosen = list(known) if "all" in names else names
    return [(n, e) for n in chosen for e in load_figure(n).FIGURE.engines if engine in (None, e)]


# -- kept -----------------------------------------------------------------------------------------------------------


def file_of(folder: Path, name: str, engine: str, suffix: str) -> Path:
    return folder / f"{name}-{engine}.{suffix}"


def save(folder: Path, record: Record) -> None:
    data = {
        "quick": record.quick,
        "seconds": record.seconds,
        "when": record.when,
        "machine": record.machine,
        "measured": to_plain(record.measured),
    }
    file_of(folder, record.name, record.engine, "json").write_bytes(orjson.dumps(data, option=orjson.OPT_INDENT_2))


def stored(folder: Path, name: str, engine: str) -> Record | None:
    """What an earlier run left."""
    path = file_of(folder, name, engine, "json")
    if not path.exists():
        return None
    return kept(path, lambda d: _record(name, engine, from_plain(d.pop("measured")), **d), "`bench figure` writes")
