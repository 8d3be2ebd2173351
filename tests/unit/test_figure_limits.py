"""A figure on the real engine gives up by processor time, so that a busy machine ends no run."""

from __future__ import annotations

from time import monotonic
from typing import Any

import pytest

from engine.lab.bench.harness import BenchError
from engine.lab.figures import real_engine
from engine.lab.figures.real_engine import ProcessorClock, drive
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
