"""What is kept of a figure: one JSON file for each engine with the data of every run, so that a report can be made in
parts.

A stored record has the settings and the data of its runs. It has no verdict: that is computed again from the data, so a
page of stored records shows the verdicts of the present code.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any

import orjson

from engine.lab.bench.harness import read_kept
from engine.lab.bench.report import Result, significant
from engine.lab.figures import figure_names, load_figure
from engine.lab.figures.figure import HOLDS, Figure, FigureData, from_plain, to_plain
from engine.lab.figures.outcome import FigureRun, Mean, Outcome, judge, mean_data
from engine.lab.figures.sweep import Variation, planned

BREAKS_AT_MOST = 5  # places that a sentence lists


@dataclass(frozen=True)
class FigureRecord:
    name: str  # P0.5
    engine: str
    figure: Figure
    doc: str
    runs: tuple[FigureRun, ...]
    quick: bool
    seconds: float
    when: str
    machine: str

    @cached_property
    def outcome(self) -> Outcome:
        return judge(self.figure, self.runs)

    @cached_property
    def measured(self) -> FigureData:
        """The mean over the seeds at our settings."""
        return mean_data([r.measured for r in self.runs if not r.variation.changed])

    @property
    def finding(self) -> str:
        """The explanation of a claim that is not reproduced as printed."""
        return self.figure.findings.get(self.engine, "") if self.outcome.word != HOLDS else ""

    @property
    def why(self) -> str:
        """Join the statements, the broken ones first, and the explanation."""
        told = sorted(self.outcome.statements, key=lambda s: s.held / s.of)
        parts = [
            f"{s.reading + ': ' if s.reading else ''}{s.what}: {s.held} of {s.of}"
            + (f", not at {'; '.join(s.broken[:BREAKS_AT_MOST])}" if s.broken else f" ({s.seen})")
            for s in told
        ]
        return ". ".join([*parts, self.finding] if self.finding else parts)

    @property
    def missing(self) -> list[Variation]:
        """List the planned runs that are not there yet."""
        done = [(r.variation.seed, dict(r.variation.changed)) for r in self.runs]
        return [v for v in planned(self.figure, self.engine, self.quick) if (v.seed, dict(v.changed)) not in done]

    def result(self) -> Result:
        """Make the line of ``--json``."""
        outcome, figure = self.outcome, self.figure
        extra = {
            "figure": self.name,
            "engine": self.engine,
            "verdict": outcome.word,
            "held": outcome.held,
            "variations": outcome.variations,
            "seeds": outcome.seeds,
            "seeds_held": outcome.seeds_held,
            "interval": [significant(outcome.value.low), significant(outcome.value.high)],
            "statements": [{**s._asdict(), "broken": list(s.broken)} for s in outcome.statements],
            "paper": [
                {
                    "what": p.what,
                    "paper": p.value,
                    "ours": _plain(outcome.ours[p.what]),
                    "near": outcome.is_near[p.what],
                }
                for p in figure.paper
            ],
            "curves": [{n: [list(p) for p in c] for n, c in panel.curves.items()} for panel in self.measured.panels],
            "unprinted": {name: setting.default for name, setting in figure.unprinted.items()},
            "quick": self.quick,
            "seconds": significant(self.seconds, 3),
            "why": self.why,
            "claim": figure.claim,
        }
        baseline = self.runs[0].verdict.baseline
        return Result("figure", self.name, self.runs[0].verdict.metric, outcome.value.value, baseline, extra=extra)


def _plain(mean: Mean) -> list[float | None]:
    return [significant(mean.value), significant(mean.low), significant(mean.high)]


def machine_note() -> str:
    load = os.getloadavg()[0]
    return f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}, load average {load:.1f}"


def new_record(name: str, engine: str, quick: bool) -> FigureRecord:
    """Make a record without runs."""
    when = datetime.now(UTC).isoformat(timespec="seconds")
    module = load_figure(name)
    return FigureRecord(name, engine, module.FIGURE, module.__doc__, (), quick, 0.0, when, machine_note())


def with_run(record: FigureRecord, variation: Variation, measured: FigureData, seconds: float) -> FigureRecord:
    run = FigureRun(variation, measured, load_figure(record.name).verdict(measured))
    return replace(record, runs=(*record.runs, run), seconds=record.seconds + seconds)


def wanted(names: list[str], engine: str | None) -> list[tuple[str, str]]:
    """List (figure, engine) for these names; ``all`` is every figure. Raises KeyError with an unknown name."""
    known = figure_names()
    if unknown := [n for n in names if n != "all" and n not in known]:
        raise KeyError(unknown[0])
    chosen = list(known) if "all" in names else names
    return [(n, e) for n in chosen for e in load_figure(n).FIGURE.engines if engine in (None, e)]


def counts(records: Sequence[FigureRecord]) -> dict[str, int]:
    """Count the words."""
    words = [r.outcome.word for r in records]
    return {word: words.count(word) for word in dict.fromkeys(words)}


# -- kept -----------------------------------------------------------------------------------------------------------


def file_of(folder: Path, name: str, engine: str, suffix: str) -> Path:
    return folder / f"{name}-{engine}.{suffix}"


def save(folder: Path, record: FigureRecord) -> None:
    data = {
        **{key: getattr(record, key) for key in ("quick", "seconds", "when", "machine")},
        "runs": [
            {"seed": r.variation.seed, "changed": dict(r.variation.changed), "measured": to_plain(r.measured)}
            for r in record.runs
        ],
    }
    path = file_of(folder, record.name, record.engine, "json")
    path.with_suffix(".part").write_bytes(orjson.dumps(data))
    path.with_suffix(".part").replace(path)


def stored(folder: Path, name: str, engine: str) -> FigureRecord | None:
    """Read the record of an earlier run, which may lack some of its runs; None if there is none."""
    path = file_of(folder, name, engine, "json")
    if not path.exists():
        return None
    return read_kept(path, lambda data: _record(name, engine, data), "`bench figure` writes")


def _record(name: str, engine: str, data: dict[str, Any]) -> FigureRecord:
    record = replace(new_record(name, engine, data["quick"]), when=data["when"], machine=data["machine"])
    for run in data["runs"]:
        record = with_run(record, Variation(run["seed"], run["changed"]), from_plain(run["measured"]), 0.0)
    return replace(record, seconds=data["seconds"])
