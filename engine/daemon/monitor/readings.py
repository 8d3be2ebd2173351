"""The daemon's counters at one moment, as plain data: the monitor, HTTP and the last log line read them.

The parts count, each for itself; this module adds their counts up. Any thread.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from catalog.network import Network
from catalog.readings import (
    EngineReading,
    ErrorReading,
    LatencyReading,
    OutputReading,
    OverloadReading,
    Readings,
    StreamReading,
)
from engine.daemon.monitor.edge_control import EdgeControl
from engine.daemon.monitor.readiness import Readiness
from engine.run.core import Engine
from qos_monitor.histogram import LatencyRecorder
from router.access.access import Access
from router.files.pipeline import FilePipeline
from router.server import Server
from router.spark.daemon.pipeline import SparkPipeline
from storage.train import known_watermark

if TYPE_CHECKING:
    from engine.daemon.durable.keeper import Keeper


class DaemonReadings:
    def __init__(
        self,
        network: Network,
        version: str,
        engine: Engine,
        server: Server,
        spark: SparkPipeline,
        files: FilePipeline,
        keeper: Keeper | None,
        recorders: Sequence[LatencyRecorder],
        overload: Callable[[], OverloadReading],
        edge: EdgeControl,
        is_draining: Callable[[], bool],
        readiness: Readiness,
        access: Access,
        now_ns: Callable[[], int],
        started_ns: int,
    ) -> None:
        self._network = network
        self._version = version
        self._engine = engine
        self._server = server
        self._ports, self._outlets = server.ports, server.outlets  # of this network: a change gives the server others
        self._spark = spark
        self._files = files
        self._keeper = keeper
        self._recorders = recorders
        self._has_limits = any(o.qos.max_error is not None for o in network.outputs)
        self._overload = overload
        self._edge = edge
        self._is_draining = is_draining
        self._readiness = readiness
        self._access = access
        self._now_ns = now_ns
        self._started_ns = started_ns  # the process; a change of the network is no start

    def read_counts(self) -> Readings:
        """Return the counters without latencies, which take most of the time where there are many outputs."""
        return self._read(with_latencies=False)

    def read(self) -> Readings:
        """Return the counters as they stand, without rates or load, which the monitor adds."""
        return self._read(with_latencies=True)

    def _read(self, *, with_latencies: bool) -> Readings:
        now_ns, engine, overload = self._now_ns(), self._engine.readings, self._overload()
        workers = engine.workers()
        return Readings(
            streams=[self._stream(number, now_ns) for number in range(len(self._network.streams))],
            arcs=engine.arcs(),
            boxes=engine.boxes(),
            outputs=[self._output(n, now_ns, with_latencies) for n in range(len(self._network.outputs))],
            workers=workers,
            scheduler=engine.scheduler(),
            engine=self._whole(now_ns),
            spark=self._spark.spark_reading(),
            bulk=self._spark.bulk_readings(),
            watched=self._spark.watch_readings(),
            sinks=[*self._spark.sink_readings(), *self._files.sink_readings()],
            overload=overload,
            resources=self._edge.resources(workers, overload.load_ratio),
            readiness=self._readiness.reading(),
            access=self._access.audit.counts(),
            history=[] if self._keeper is None else self._keeper.history.readings(),
        )

    def _stream(self, number: int, now_ns: int) -> StreamReading:
        """Return one stream's counts: sockets, Spark, code and a replay together."""
        port, ingress = self._ports[number], self._engine.ingress
        bulk, edge = self._spark.intake.counts[number], port.edge.reading(now_ns)
        rejected = {str(reason): count for reason, count in list(port.rejected.items())}
        for reason, count in list(bulk.rejected.items()):
            rejected[str(reason)] = rejected.get(str(reason), 0) + count
        if skewed := ingress.rejected_skew[number]:
            rejected["skew"] = skewed
        clock = self._engine.ingress.clock(number)
        to_log = 0
        if self._keeper is not None:
            to_log = self._keeper.committer.pending_of(number)  # a tuple counts as received once it is in the log
            if lost := self._keeper.committer.lost_of(number):
                rejected["log_failed"] = lost
        return StreamReading(
            name=port.stream.name,
            received=port.received + ingress.received[number] + bulk.received + sum(edge.dropped.values()) - to_log,
            duplicates=port.duplicates + bulk.duplicates,
            admitted=ingress.admitted[number],
            rejected=rejected,
            received_bytes=port.received_bytes + bulk.received_bytes,
            connections=port.connections + bulk.connections,
            paused=self._server.is_stopped or not ingress.may_read(number),
            edge=edge,
            newest_ns=None if clock is None else known_watermark(clock.newest_ns),
            watermark_ns=None if clock is None else known_watermark(clock.watermark_ns),
        )

    def _output(self, number: int, now_ns: int, with_latency: bool) -> OutputReading:
        outlet, delivery = self._outlets[number], self._engine.deliveries[number]
        error = self._engine.shedding.book.errors().get(number) if self._has_limits else None
        return OutputReading(
            outlet.name,
            outlet.emitted + delivery.replayed,
            self._recorders[number].reading(now_ns) if with_latency else LatencyReading(),
            outlet.readings(),
            cost_ns=delivery.cost_ns,
            lag_ns=outlet.lag_ns,
            not_finite=outlet.not_finite + self._files.not_finite(number),
            error=None if error is None else ErrorReading(error.limit, error.error, error.floor, error.is_kept),
        )

    def _whole(self, now_ns: int) -> EngineReading:
        engine = self._engine
        return EngineReading(
            version=self._version,
            network_version=self._network.version,
            now_ns=now_ns,
            uptime_ns=now_ns - self._started_ns,
            workers=engine.workers_at_work,
            memory_used=engine.storage.held_bytes,
            memory_state=engine.storage.state_bytes,
            memory_budget=engine.storage.budget_bytes,
            memory_peak=engine.storage.peak_bytes,
            shed_level=engine.shedding.plan.level,
            spill_bytes=engine.storage.spill_bytes,
            dead_letters=self._server.dead_letters.total,
            evicted_connections=self._server.places.evicted + self._server.undecoded.evicted,
            refused_connections=self._server.places.refused,
            draining=self._is_draining(),
        )
