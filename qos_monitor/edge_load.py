"""Measure the edge: what decoding, I/O, encoding and the log have to do, from the difference of two readings.

- ``decode``: the time that a row costs by the clock, times the rows that are offered, dropped or not. One thread
  decodes large reads, so a second of decoding a second is full. The clock counts waits for a core and for the GIL: they
  are what a row costs here and now.
- ``io``, ``log``: the CPU time of the thread. More than all of its time cannot be seen from inside; what it does not
  read in time shows in the sockets (``is_late``).
- ``encode``: the part of the workers' time that goes into deliveries. It is part of the workers' load as well.

Owner: the monitor thread.
"""

from __future__ import annotations

from math import exp

from catalog.edge_load import EdgeLoad, StreamEdge
from catalog.readings import Readings, StreamReading

BY_CPU = frozenset({"io", "log"})
RATE_TAU_S, COST_TAU_S = 0.2, 0.5
LATE_AT_LEAST_NS = 50_000_000
OVERDUE = 0.05  # of the rows decoded: with fewer overdue rows decoding is just full, as it should be under overload
ROWS_TO_LEARN = 100  # in a tick: fewer say nothing about the cost of a row


class EdgeMeter:
    """``wait_ns`` holds, by stream that may be shed at the edge, how long its rows may wait undecoded."""

    def __init__(self, wait_ns: dict[int, int]) -> None:
        self._wait_ns = wait_ns
        self._before: Readings | None = None
        self.load = EdgeLoad()

    def fold(self, now: Readings) -> EdgeLoad:
        before, self._before = self._before, now
        elapsed_ns = 0 if before is None else now.engine.now_ns - before.engine.now_ns
        if before is None or elapsed_ns <= 0 or len(before.streams) != len(now.streams):
            return self.load
        known = self.load.streams or tuple(StreamEdge() for _ in now.streams)
        streams = tuple(
            self._stream(number, was, *pair, elapsed_ns)
            for number, (was, pair) in enumerate(zip(known, zip(before.streams, now.streams, strict=True), strict=True))
        )
        resources = {"decode": sum(s.demand_ns for s in streams) / 1e9, "encode": _encoding(before, now, elapsed_ns)}
        busy = {r.name: r for r in before.resources}
        for resource in now.resources:
            if resource.name in BY_CPU and (was_busy := busy.get(resource.name)) is not None:
                used = (resource.busy_ns - was_busy.busy_ns) / (elapsed_ns * max(1, resource.threads))
                last = self.load.resources.get(resource.name, used)
                resources[resource.name] = last + _gain(elapsed_ns, COST_TAU_S) * (max(0.0, used) - last)
        self.load = EdgeLoad(now.engine.now_ns, streams, resources)
        return self.load

    def _stream(
        self, number: int, was: StreamEdge, before: StreamReading, now: StreamReading, elapsed_ns: int
    ) -> StreamEdge:
        offered = max(0, now.received - before.received) * 1e9 / elapsed_ns
        gone = sum(now.edge.dropped.values()) - sum(before.edge.dropped.values())
        decoded = now.received - before.received - gone
        spent_ns = now.edge.decode_ns - before.edge.decode_ns
        cost_ns = was.decode_ns
        if decoded >= ROWS_TO_LEARN and spent_ns > 0:
            each_ns = spent_ns / decoded
            cost_ns = each_ns if not cost_ns else cost_ns + _gain(elapsed_ns, COST_TAU_S) * (each_ns - cost_ns)
        wait_ns = self._wait_ns.get(number)
        is_late = False
        if wait_ns is not None:
            overdue = now.edge.dropped.get("overdue", 0) - before.edge.dropped.get("overdue", 0)
            behind_ns = max(now.edge.behind_ns, now.edge.waited_ns if now.edge.share >= 1.0 and decoded else 0)
            is_late = behind_ns > max(wait_ns, LATE_AT_LEAST_NS) or overdue > OVERDUE * max(decoded, 1)
        rate = was.offered_per_s + _gain(elapsed_ns, RATE_TAU_S) * (offered - was.offered_per_s)
        return StreamEdge(rate, cost_ns, wait_ns is not None, is_late)


def _encoding(before: Readings, now: Readings, elapsed_ns: int) -> float:
    spent_ns = sum(o.cost_ns for o in now.outputs) - sum(o.cost_ns for o in before.outputs)
    return max(0.0, spent_ns / (elapsed_ns * max(1, now.engine.workers or len(now.workers))))


def _gain(elapsed_ns: int, tau_s: float) -> float:
    return 1.0 - exp(-elapsed_ns / 1e9 / tau_s)
