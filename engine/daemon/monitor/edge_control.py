"""The control of the edge, one turn for each tick of the monitor: measure, decide, set the shares.

Owner: the monitor thread. ``reading`` may be called from any thread.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence

from catalog.edge_load import EdgeLoad
from catalog.network import Network
from catalog.readings import Readings, ResourceReading, WorkerReading
from load_shedder.apply.limits import edge_waits_ns
from load_shedder.decide.edge import StreamShare, edge_news, steer_edge
from load_shedder.decide.places import find_downstream
from qos_monitor.edge_load import EdgeMeter
from router.server import SourcePort

log = logging.getLogger("aurorad.overload")

THREADS = {"aurorad-io": "io", "aurorad-log": "log"}
"""Threads whose CPU time is a load of its own, by the beginning of their names."""


class EdgeControl:
    """``encode_ns`` returns the time spent delivering so far."""

    def __init__(self, network: Network, ports: Sequence[SourcePort], encode_ns: Callable[[], int]) -> None:
        self._encode_ns = encode_ns
        self._names = [s.name for s in network.streams]
        self._ports = ports
        self._meter = EdgeMeter(edge_waits_ns(network))
        behind = find_downstream(network)
        self._strict = [
            any(network.outputs[o].qos.shed_by is None for a in s.arcs for o in behind[a].outputs)
            for s in network.streams
        ]
        self._outputs = [frozenset(o for a in s.arcs for o in behind[a].outputs) for s in network.streams]
        self._shares: tuple[StreamShare, ...] = ()

    @property
    def load(self) -> EdgeLoad:
        return self._meter.load

    @property
    def drops_nothing(self) -> bool:
        return all(to.share >= 1.0 for to in self._shares)

    def share_before(self, output: int) -> float:
        """Return the share of the rows for an output that is decoded: the least of its streams'."""
        pairs = zip(self._outputs, self._shares, strict=False)
        return min((to.share for outputs, to in pairs if output in outputs), default=1.0)

    def on_readings(self, readings: Readings, floors: Mapping[int, float]) -> None:
        """``floors`` are the shares that outputs with ``max_error`` need."""
        load = self._meter.fold(readings)
        if not load.streams:
            return
        least = [max((floors.get(o, 0.0) for o in outputs), default=0.0) for outputs in self._outputs]
        self._shares = steer_edge(self._shares, load, self._strict, least)
        for name, port, to in zip(self._names, self._ports, self._shares, strict=True):
            was = port.edge.share
            if to.share != was:
                port.edge.share = to.share
                if news := edge_news(name, was, to.share, load.resources.get("decode", 0.0)):
                    log.log(logging.WARNING if to.share < 1.0 else logging.INFO, "%s", news)

    def resources(self, workers: Sequence[WorkerReading], workers_load: float) -> list[ResourceReading]:
        """Return what may be full, with the load as of the last tick. Any thread."""
        loads, busy = self.load.resources, _thread_ns()
        busy["decode"] = sum(port.edge.decode_ns for port in self._ports)
        found = [ResourceReading("workers", sum(w.busy_ns for w in workers), len(workers), workers_load)]
        found += [ResourceReading(name, busy_ns, 1, loads.get(name, 0.0)) for name, busy_ns in busy.items()]
        return [*found, ResourceReading("encode", self._encode_ns(), len(workers), loads.get("encode", 0.0))]


def _thread_ns() -> dict[str, int]:
    """Return the CPU time of the threads at the edge."""
    found: dict[str, int] = {}
    for thread in threading.enumerate():
        for prefix, name in THREADS.items():
            if thread.name.startswith(prefix) and thread.ident is not None:
                clock = time.pthread_getcpuclockid(thread.ident)
                found[name] = found.get(name, 0) + time.clock_gettime_ns(clock)
    return found
