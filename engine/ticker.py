"""What must happen when nothing arrives: silent streams' watermarks move on, boxes with time-outs are woken.

Called some ten times a second. It only puts empty trains on arcs, so a box never runs outside a plan: the scheduler
decides when, as for any train.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from engine.core import Engine
from storage.train import Train

IdleWatermark = Callable[[int], int | None]
"""Given the time, how far a silent stream's watermark may move; None while it is not silent."""


class Ticker:
    def __init__(
        self, engine: Engine, idle_watermarks: Sequence[IdleWatermark | None], admit: Callable[[int, Train], None]
    ) -> None:
        self._engine = engine
        self._admit = admit
        network = engine.network
        self._idle = [(s, idle) for s, idle in zip(network.streams, idle_watermarks, strict=True) if idle is not None]
        self._clocked = [node for node in network.boxes if node.box.needs_clock]

    def tick(self, now_ns: int) -> None:
        self._engine.tidy()
        for stream, idle in self._idle:
            watermark_ns = idle(now_ns)
            if watermark_ns is not None:
                self._admit(stream.number, Train.empty(stream.schema, watermark_ns))
        for node in self._clocked:
            arc = node.in_arcs[0]
            if not self._engine.storage.queues[arc].entries:  # what waits there will wake the box as well
                self._engine.routes.enqueue((arc,), Train.empty(node.in_schemas[0]))
