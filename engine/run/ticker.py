"""The ticker moves the watermarks of silent streams and wakes boxes with time-outs: time passes without tuples too.

The monitor calls ``tick`` ten times a second, unless nothing waits for time to pass
(``engine/daemon/monitor/doze``). The ticker only admits empty trains, so a box never runs outside a plan: the
scheduler decides when, as for any train.
"""

from __future__ import annotations

from engine.run.core import Engine
from router.boundary import TIME
from router.event_time import EventTime
from storage.train import Train


class Ticker:
    def __init__(self, engine: Engine, event_time: EventTime) -> None:
        self._engine = engine
        network, idle_watermarks = engine.network, event_time.idle_watermarks
        self._idle = [(s, idle) for s, idle in zip(network.streams, idle_watermarks, strict=True) if idle is not None]
        self._clocked = [node for node in network.boxes if node.box.needs_clock]

    def tick(self, now_ns: int) -> None:
        """Admit a new watermark for each silent stream, and an empty train for each box that needs the clock."""
        for stream, idle in self._idle:
            watermark_ns = idle(now_ns)
            if watermark_ns is not None:
                self._engine.ingress.admit(stream.number, Train.empty(stream.schema, watermark_ns), TIME)
        for node in self._clocked:
            arc = node.in_arcs[0]
            if not self._engine.storage.queues[arc].entries:  # otherwise the train that waits there wakes the box
                self._engine.routes.enqueue((arc,), Train.empty(node.in_schemas[0]))
