"""Figures on the real engine go by processor time, so that a busy machine ends no run and moves no number."""

from __future__ import annotations

from dataclasses import replace
from itertools import count
from time import monotonic
from typing import Any

import pytest

from engine.lab.bench.harness import BenchError
from engine.lab.figures import real_engine
from engine.lab.figures.figure import REAL
from engine.lab.figures.p4_deadlines import DeadlineSetup
from engine.lab.figures.p4_real import run_real_tasks
from engine.lab.figures.real_engine import ProcessorClock, drive
from engine.run import executable
from engine.simulate.sketch import NetworkSketch


class SlowStandIn:
    """Something to run that is done after some wall time, of which it takes no processor time."""

    runtimes: Any = ()

    def __init__(self, seconds: float) -> None:
        sketch = NetworkSketch()
        sketch.output(sketch.box(sketch.stream(), cost_ns=1.0))
        self.network = sketch.network()
        self._done_s = monotonic() + seconds
        self.stopped = False

    def start(self) -> None: ...

    def is_quiet(self) -> bool:
        return monotonic() > self._done_s

    def stop(self) -> None:
        self.stopped = True


def test_the_time_of_other_processes_ends_no_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(real_engine, "AT_MOST_S", 0.4)
    engine = SlowStandIn(0.8)
    drive(engine, {}, ProcessorClock())
    assert engine.stopped


def test_an_engine_that_stands_still_ends_its_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(real_engine, "POLLING_AT_MOST_S", 0.02)
    engine = SlowStandIn(3_600)
    with pytest.raises(BenchError, match="not done"):
        drive(engine, {}, ProcessorClock())
    assert engine.stopped


def test_the_overhead_of_a_task_run_is_by_one_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine a box takes longer by the wall clock, by which the engine counts its cost. The overhead was the
    processor time less that, so it came out below zero; it is that of the engine outside its boxes."""
    wall_ns = count(step=10**9)  # each reading a second later: a wait for other processes
    monkeypatch.setattr(executable, "perf_counter_ns", lambda: next(wall_ns))
    setup = DeadlineSetup("BTS", rate=0.5, queries=2, run=2, engine=REAL, tuples=200)
    few = run_real_tasks(setup)
    many = run_real_tasks(replace(setup, policy="TAAT"))
    assert 0 < few.overhead_s < many.overhead_s
