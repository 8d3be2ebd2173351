"""An engine under a fixed shed plan, with a clock of its own: what the tests of shedding share."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from threading import Lock
from typing import Any

from catalog.network import Network
from catalog.readings import Readings
from engine.run.core import Engine
from engine.run.network_file import read_network
from load_shedder.shed_plan import Drop, DropPlace, Manner, ShedPlan
from qos_monitor.conservation import residuals
from storage.train import Train

SECOND = 10**9
END_OF_TIME_NS = 2**62


class Shedder:
    """``rows`` by output, in the order of delivery."""

    def __init__(self, network: Network, **options: Any) -> None:
        self.network = network
        self.rows: dict[str, list[tuple[Any, ...]]] = {o.name: [] for o in network.outputs}
        self._lock = Lock()
        self.plans = 0
        self.engine = Engine(network, [self._outlet(o.name) for o in network.outputs], **options)

    def _outlet(self, name: str) -> Any:
        def deliver(train: Train) -> None:
            train.verify()
            with self._lock:
                self.rows[name].extend(train.to_rows())

        return deliver

    def plan(self, drops: dict[str, tuple[Manner, float]], window_ns: int = 0) -> ShedPlan:
        arcs = {a.name: a.number for a in self.network.arcs}
        self.plans += 1
        places = {name: DropPlace(arcs[name], manner, (), window_ns) for name, (manner, _) in drops.items()}
        return ShedPlan(self.plans, 0.5, tuple(Drop(places[n], share) for n, (_, share) in drops.items()), why="a test")

    def shed(self, drops: dict[str, tuple[Manner, float]], window_ns: int = 0) -> None:
        self.engine.shed(self.plan(drops, window_ns))

    def feed(self, stream: str, columns: dict[str, Sequence[Any]], size: int = 1_000, watermark: str = "") -> None:
        """In trains of this size; each says that nothing older than its newest ``watermark`` field will come."""
        known = self.network.stream(stream)
        whole = Train.from_pylists(known.schema, columns, 1)
        for start in range(0, whole.count, size):
            part = whole.slice(start, min(start + size, whole.count))
            if watermark:
                part = part.with_watermark(int(part.columns[known.schema.index(watermark)].max()))
            assert self.engine.ingress.admit(known.number, part, timeout_s=20)

    def close(self) -> None:
        """Everything is out, and every window closed."""
        assert self.engine.drain(20)
        for stream in self.network.streams:
            self.engine.ingress.admit(stream.number, Train.empty(stream.schema, END_OF_TIME_NS))
        assert self.engine.drain(20)

    def dropped(self, arc: str) -> dict[str, int]:
        return next(dict(a.shed) for a in self.engine.readings.arcs() if a.name == arc)

    @property
    def residuals(self) -> dict[str, int]:
        return residuals(Readings(arcs=self.engine.readings.arcs(), boxes=self.engine.readings.boxes()))


@contextmanager
def shedder(text: str, **options: Any) -> Iterator[Shedder]:
    """Stops at the end, and holds it to the laws."""
    made = Shedder(read_network(text, {}), **options)
    made.engine.start()
    try:
        yield made
        assert made.engine.drain(20)
        assert made.engine.loop.failure is None
        assert not any(made.residuals.values()), made.residuals
    finally:
        made.engine.stop()
