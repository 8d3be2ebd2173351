"""A plan's input stays in the account of the storage until the plan has ended (P3)."""

from __future__ import annotations

from threading import Event

import numpy as np

from engine.run.core import Engine
from engine.simulate.sketch import SCHEMA, NetworkSketch
from scheduler.state import SchedulerSettings
from storage.train import Train, constant_ns


def test_the_edge_has_no_room_while_a_plan_holds_the_budget() -> None:
    sketch = NetworkSketch()
    sketch.output(sketch.box(sketch.stream(), cost_ns=0))
    entered, leave = Event(), Event()

    def outlet(train: Train) -> None:
        entered.set()
        assert leave.wait(60)

    columns = (np.arange(100), np.zeros(100))
    train = Train(SCHEMA, columns, constant_ns(0, 100))
    settings = SchedulerSettings(idle_fast_path=False)
    engine = Engine(sketch.network(), [outlet], workers=1, memory_bytes=train.nbytes, settings=settings)
    engine.start()
    try:
        assert engine.ingress.admit(0, train)
        assert entered.wait(60), "the plan runs"
        storage = engine.storage
        assert (storage.used_bytes, storage.pinned_bytes) == (train.nbytes, train.nbytes)
        assert storage.queues[0].tuples == 0 and not storage.has_room
        leave.set()
        assert engine.drain(60)
        assert (storage.used_bytes, storage.pinned_bytes) == (0, 0) and storage.has_room
    finally:
        leave.set()
        engine.stop()
