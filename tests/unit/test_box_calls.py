"""What a box call leaves in the counters, seen while it runs: all of it or nothing."""

from __future__ import annotations

from time import sleep

from engine.run.core import Engine
from engine.simulate.samples import make_train
from engine.simulate.sketch import SCHEMA, NetworkSketch


def test_a_long_call_counts_when_it_has_ended_with_what_it_cost() -> None:
    """Else whoever looks in the middle, as the monitor does ten times a second, would take the box for free."""
    sketch = NetworkSketch()
    sketch.output(sketch.box(sketch.stream(), cost_ns=2_000_000.0))
    engine = Engine(sketch.network(), [lambda train: None], workers=1)
    engine.start()
    seen = []
    try:
        assert engine.ingress.admit(0, make_train(SCHEMA, 40, seed=0))
        while not seen or seen[-1].calls == 0:
            seen.append(engine.readings.boxes()[0])
            sleep(0.005)
        assert engine.drain(30.0)
    finally:
        engine.stop()
    assert len(seen) > 5, "the call took eighty milliseconds"
    # The counters are written one after another: only the last look may have come in between.
    assert all((r.calls, r.tuples_in, r.cost_ns) == (0, 0, 0) for r in seen[:-1])
    done = engine.readings.boxes()[0]
    assert (done.calls, done.tuples_in, done.tuples_out) == (1, 40, 40) and done.cost_ns >= 40_000_000
