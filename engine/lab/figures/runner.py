"""Run figures: simulated runs in several processes, real ones alone and one after the other.

Figures of one family share their runs: one task measures all of them, so that a cached simulation serves each.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple

from engine.lab.figures import load_figure
from engine.lab.figures.figure import SIMULATED, FigureData, from_plain, to_plain
from engine.lab.figures.lab import Lab
from engine.lab.figures.record import FigureRecord, new_record, save, stored, with_run
from engine.lab.figures.sweep import Variation, planned
from engine.lab.processes import die_with_parent

Progress = Callable[[str, int, int], None]
"""Takes what runs, how many runs are done and how many there are."""


class Task(NamedTuple):
    """One run of one or more figures of a family."""

    names: tuple[str, ...]
    engine: str
    quick: bool
    variation: Variation


def run_task(task: Task) -> tuple[list[dict[str, Any]], float]:
    """Measure in this process; return plain data, which crosses processes, by figure."""
    begun = perf_counter()
    found = [to_plain(measure(name, task.engine, task.quick, task.variation)) for name in task.names]
    return found, perf_counter() - begun


def measure(name: str, engine: str, quick: bool, variation: Variation) -> FigureData:
    """Run a figure once. The sweep and a quick look use the short form of the experiment."""
    module = load_figure(name)
    defaults = {key: setting.default for key, setting in module.FIGURE.unprinted.items()}
    short = quick or bool(variation.changed)
    return module.measure(Lab(engine, short, variation.seed, {**defaults, **variation.changed}))


def run_figure(name: str, engine: str, quick: bool) -> FigureRecord:
    """Run all of a figure in this process."""
    record = new_record(name, engine, quick)
    for variation in planned(record.figure, engine, quick):
        begun = perf_counter()
        measured = measure(name, engine, quick, variation)
        record = with_run(record, variation, measured, perf_counter() - begun)
    return record


@dataclass
class FigureRunner:
    """``folder`` keeps the runs as they end, so that an interrupted report goes on where it was."""

    quick: bool
    folder: Path | None = None
    reuse: bool = False
    processes: int = field(default_factory=lambda: os.cpu_count() or 1)
    on_progress: Progress = lambda what, done, of: None

    def records(self, chosen: Sequence[tuple[str, str]]) -> Iterator[FigureRecord]:
        """Run the figures; yield each as soon as all its runs are there, the simulated ones first."""
        families: dict[tuple[str, str], list[FigureRecord]] = {}
        for name, engine in sorted(chosen, key=lambda c: c[1] != SIMULATED):
            record = self._begun(name, engine)
            families.setdefault((engine, record.figure.family or name), []).append(record)
        simulated = {key: f for key, f in families.items() if key[0] == SIMULATED}
        yield from self._simulated(list(simulated.values()))
        for key, family in families.items():
            if key not in simulated:
                yield from self._real(family)

    def _begun(self, name: str, engine: str) -> FigureRecord:
        kept = stored(self.folder, name, engine) if self.reuse and self.folder is not None else None
        return kept if kept is not None and kept.quick <= self.quick else new_record(name, engine, self.quick)

    def _simulated(self, families: Sequence[list[FigureRecord]]) -> Iterator[FigureRecord]:
        tasks = [_tasks(family) for family in families]
        total, done = sum(map(len, tasks)), 0
        if self.processes <= 1 or total <= 1:
            for family in families:
                yield from self._real(family)
            return
        with ProcessPoolExecutor(self.processes, mp_context=get_context("spawn"), initializer=die_with_parent) as pool:
            futures: list[list[Future[Any]]] = [[pool.submit(run_task, t) for t in of_family] for of_family in tasks]
            try:
                for family, of_family, running in zip(families, tasks, futures, strict=True):
                    records = family
                    for task, future in zip(of_family, running, strict=True):
                        records = _add(records, task, *future.result())
                        done += 1
                        self._keep(records)
                        self.on_progress(f"{'/'.join(task.names)} simulated", done, total)
                    yield from records
            finally:
                pool.shutdown(cancel_futures=True)

    def _real(self, family: list[FigureRecord]) -> Iterator[FigureRecord]:
        tasks = _tasks(family)
        for number, task in enumerate(tasks):
            self.on_progress(f"{'/'.join(task.names)} {task.engine}", number, len(tasks))
            family = _add(family, task, *run_task(task))
            self._keep(family)
        yield from family

    def _keep(self, records: Sequence[FigureRecord]) -> None:
        if self.folder is not None:
            for record in records:
                save(self.folder, record)


def _tasks(family: Sequence[FigureRecord]) -> list[Task]:
    """List the runs that are missing, one task for all figures that miss the same."""
    by_run: dict[tuple[int, str], tuple[Variation, list[str]]] = {}
    for record in family:
        for variation in record.missing:
            by_run.setdefault((variation.seed, variation.words()), (variation, []))[1].append(record.name)
    first = family[0]
    return [Task(tuple(names), first.engine, first.quick, variation) for variation, names in by_run.values()]


def _add(
    records: Sequence[FigureRecord], task: Task, found: Sequence[dict[str, Any]], seconds: float
) -> list[FigureRecord]:
    by_name = dict(zip(task.names, found, strict=True))
    share = seconds / len(by_name)
    return [
        with_run(r, task.variation, from_plain(by_name[r.name]), share) if r.name in by_name else r for r in records
    ]
