"""The daemon: the engine with sockets, HTTP and the monitor around it.

    sockets -> server (I/O thread) -> admit -> engine -> deliver -> recorder and outlet -> server -> sockets

Threads: I/O (one uvloop for every socket and for HTTP), the scheduler, the workers, the monitor. Whoever owns the
process calls ``start`` and ``stop``; both may be called from any thread but these.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from functools import cached_property, partial
from threading import Lock, Thread
from time import CLOCK_BOOTTIME, clock_gettime_ns, monotonic, perf_counter_ns, sleep, time_ns
from typing import TYPE_CHECKING, Any, TypeVar

import uvloop

from catalog.catalog import Catalog
from catalog.network import Network, Output
from catalog.readings import EngineReading, OutputReading, Readings, StreamReading
from engine.core import Engine
from engine.desk import MemoryDesk
from engine.overload import Overload, known_values
from engine.settings import scheduler_settings
from engine.spark_side import spark_engine
from engine.taps import offer
from engine.ticker import Ticker
from qos_monitor.busy import BusyHistory
from qos_monitor.histogram import LatencyRecorder
from qos_monitor.loop import Monitor
from qos_monitor.sampler import Sample
from router.event_time import EventTime, SteadyClock
from router.http import HttpServer, Sources, make_app
from router.server import Limits, Server
from router.spark.host import SparkHost
from router.spark.pipeline import SparkPipeline
from scheduler.choice import AUTO
from scheduler.events import Outcome
from storage.train import Train

if TYPE_CHECKING:  # what only a data_dir, spilling or `auto` needs, and pyarrow with it, is loaded for those alone
    from engine.autopilot import Autopilot
    from engine.durable.keeper import Keeper
    from engine.durable.recovery import Progress
    from engine.durable.temporary import TemporarySpill

log = logging.getLogger("aurorad")

DRAIN_SECONDS = 20.0
GIVE_WAY_S = 20e-6
"""Long enough that a thread that waits for Python's lock wakes and takes it."""
T = TypeVar("T")


class Daemon:
    def __init__(self, network: Network, *, version: str = "", spark: SparkHost | None = None) -> None:
        config = network.config
        self.network = network
        self.version = version
        self.now_ns = SteadyClock(time_ns, partial(clock_gettime_ns, CLOCK_BOOTTIME))
        self._started_ns = self.now_ns()
        self._draining = False
        self._ready = False
        self._fed = [0] * len(network.streams)  # tuples that came in process, not by a socket
        self._fed_lock = Lock()
        self._told = [(0, 0)] * len(network.outputs)  # tuples and missed deadlines that the scheduler knows of
        self._delivery_ns = [0] * len(network.outputs)  # time spent handing tuples out
        self.catalog = Catalog(network)
        self.recorders = [LatencyRecorder(output.qos) for output in network.outputs]
        self.keeper = self._make_keeper()
        self._temporary_spill = self._make_spill()
        spill = self._temporary_spill.files if self._temporary_spill is not None else None
        if self.keeper is not None and _spills(network):
            spill = self.keeper.spill
        self.event_time = EventTime(network, self.now_ns if self.keeper is None else self.keeper.clock)
        self.engine = Engine(
            network,
            [self._deliverer(output) for output in network.outputs],
            workers=config.engine.workers,
            memory_bytes=config.engine.memory_bytes,
            policy=config.scheduler.policy,
            settings=scheduler_settings(config.scheduler),
            stamps=self.event_time.stamps,
            statistics=self.catalog.stats,
            now_ns=self.now_ns,
            spill=spill,
            explain=config.engine.explain,
        )
        self._busy = BusyHistory()
        self._autopilot = self._make_autopilot()
        self._ticker = Ticker(self.engine, self.event_time.idle_watermarks, self._enter)
        self.overload = Overload(
            self.catalog.epoch,
            self.engine.shed,
            config.engine.workers,
            semantic_arcs=self.engine.shedding.judges.semantic_arcs,
            values=lambda: known_values(network, self.engine.shedding.distributions()),
        )
        self.monitor = self._make_monitor()
        self.monitor.values = lambda: self.overload.values
        self._loop = uvloop.new_event_loop()
        self._io_thread = Thread(target=self._run_io, name="aurorad-io", daemon=True)
        self.server = Server(
            network,
            self._loop,
            self._admit,
            self._has_room,
            limits=_limits(config.limits),
            on_blocked=self.engine.block_output,
            now_ns=self.now_ns,
        )
        self.server.heartbeat = self._heartbeat
        self.server.overflows = self.engine.overflows
        self.server.takes_overflow = self._takes_overflow
        self.engine.on_room = self.server.room_again
        surroundings = spark_engine(self, self._enter, self._has_room, self._loop.call_soon_threadsafe)
        self.spark = SparkPipeline(network, surroundings, host=spark)
        for number, sink in self.spark.sinks.items():
            if sink.queue is not None:
                self.server.outlets[number].subscribe(sink.queue.deliver, "spark")
        self.http: HttpServer | None = None
        self.failed = False
        self.on_failure: Callable[[], None] = lambda: None
        self.on_progress: Callable[[Progress], None] = lambda progress: None  # of a replay
        self.engine.when_failed(self.fail)
        if self.keeper is None:
            self.server.desk = MemoryDesk(len(network.streams), self._admit)
        else:
            from engine.durable.daemon_side import join

            join(self, self.keeper)

    def _make_monitor(self) -> Monitor:
        return Monitor(
            self.catalog,
            self._read,
            self.recorders,
            on_sample=self._on_sample,
            on_error=self._monitor_failed,
            give_way=partial(sleep, GIVE_WAY_S),
        )

    def _make_autopilot(self) -> Autopilot | None:
        if self.network.config.scheduler.policy != AUTO:
            return None
        from engine.autopilot import Autopilot  # and with it the simulator, for those alone who want it

        return Autopilot(
            self.engine, self.catalog.stats, lambda: [r.reading(self.now_ns()) for r in self.recorders], self.now_ns
        )

    def _make_keeper(self) -> Keeper | None:
        if self.network.config.engine.data_dir is None:
            return None
        from engine.durable.daemon_side import make_keeper

        return make_keeper(self.network, self.now_ns)

    def _make_spill(self) -> TemporarySpill | None:
        if self.keeper is not None or not _spills(self.network):
            return None
        from engine.durable.temporary import TemporarySpill

        return TemporarySpill()

    # -- life -------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Returns when every listener is open; ListenError when one cannot be, with nothing left running.

        With a data_dir, first what it holds is put back and replayed; StorageError when it cannot be trusted.
        """
        if self.keeper is not None:
            self.keeper.open()
        self._io_thread.start()
        self.engine.start()
        try:
            if self.keeper is not None:
                self.engine.expire(False)  # what is replayed is late by nature
                self.keeper.replay(self.on_progress)
                self.engine.expire(True)
            self.spark.open()
            self._on_io(self._open())
        except BaseException:
            self.stop(0.0)
            raise
        if self.keeper is not None:
            self.keeper.start()
        self.monitor.start()
        if self._autopilot is not None:
            self._autopilot.start()
        self._ready = True
        self.spark.start()
        _ = self._metrics

    def stop(self, drain_s: float = DRAIN_SECONDS) -> bool:
        """Stop reading, drain, flush, close. False when time ran out before all was out."""
        deadline = monotonic() + drain_s
        self._ready, self._draining = False, True
        if self._autopilot is not None:
            self._autopilot.stop()
        self._loop.call_soon_threadsafe(self.server.stop_reading)
        self.spark.stop_reading()
        drained = self._drain(deadline)
        if not drained and drain_s:
            log.warning("not everything was out after %.0f s: %s", drain_s, self._left())
        self.spark.close()
        if self.keeper is not None:
            self.keeper.stop(checkpoint=not self.failed)
        self.engine.stop()
        self.monitor.stop()
        self._on_io(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._io_thread.join()
        self._loop.close()
        if self.keeper is not None:
            self.keeper.close()
        if self._temporary_spill is not None:
            self._temporary_spill.close()
        return drained

    def _drain(self, deadline: float) -> bool:
        while self.server.is_decoding or (self.keeper is not None and not self.keeper.is_settled):
            if monotonic() > deadline:
                return False
            sleep(0.002)
        left = deadline - monotonic()
        if not self.engine.drain(left) or not self._on_io(self.server.flush(max(0.0, deadline - monotonic()))):
            return False
        return self.spark.flush(max(0.0, deadline - monotonic()))

    def _left(self) -> str:
        waiting = sum(queue.tuples for queue in self.engine.storage.queues)
        pending = sum(s.pending for outlet in self.server.outlets for s in outlet.readings())
        return f"{waiting} tuples wait in queues, {pending} for slow readers"

    async def _open(self) -> None:
        await self.server.start()
        listen = self.network.config.http.listen
        if listen is not None:
            app = make_app(
                Sources(
                    metrics=lambda accept: self._metrics(accept),
                    stats=self.monitor.stats,
                    network=lambda: self.network,
                    ready=self._why_not_ready,
                    dead_letters=lambda limit: self.server.dead_letters.to_json(limit=limit),
                    tap=self.engine.taps.register,
                    explain=self._explain,
                    drops=self.engine.shedding.to_json,
                )
            )
            self.http = await HttpServer.start(app, listen.host, listen.port)

    async def _close(self) -> None:
        await self.server.close()
        if self.http is not None:
            await self.http.stop()

    @cached_property
    def _metrics(self) -> Callable[[str], tuple[bytes, str]]:
        """What answers a scrape. prometheus-client takes 30 ms to load, so it comes when the rest is ready."""
        from qos_monitor.metrics import EngineCollector, expose, registry_for

        registry = registry_for(EngineCollector(self.monitor.readings, lambda: self.monitor.residuals))
        return lambda accept: expose(registry, accept)

    def _run_io(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()

    def _on_io(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the I/O thread and wait for it."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def _why_not_ready(self) -> str:
        return "" if self._ready else "failed" if self.failed else "draining" if self._draining else "starting"

    # -- tuples -----------------------------------------------------------------------------------------------------

    def feed(self, stream: str, train: Train, timeout_s: float | None = None) -> bool:
        """Tuples from this process, waiting while there is no room. False when there was none in time."""
        number = self.network.stream(stream).number
        self.watch_stream(number, train)
        if not self.engine.wait_for_room(number, timeout_s):
            return False
        if self.keeper is not None and not self.keeper.wait_for_room(timeout_s):
            return False
        self._enter(number, train)
        self.count_fed(number, train.count)
        return True

    def count_fed(self, stream: int, tuples: int) -> None:
        """Tuples that came by no connection."""
        with self._fed_lock:
            self._fed[stream] += tuples

    def subscribe(self, output: str, callback: Callable[[Train], None]) -> Callable[[], None]:
        """Hand every train of an output to a callable, on the worker that made it; how to stop that."""
        return self.server.outlets[self.network.output(output).number].subscribe(callback)

    def _admit(self, stream: int, train: Train) -> None:
        self.watch_stream(stream, train)
        if self.keeper is None:
            self.engine.admit_here(stream, train)
        else:
            self.keeper.submit(stream, train)

    def _enter(self, stream: int, train: Train) -> None:
        """Into the network; with a data_dir by way of the log."""
        if self.keeper is None:
            self.engine.routes.admit(stream, train)
        else:
            self.keeper.submit(stream, train)

    def _heartbeat(self, stream: int, event_ns: int) -> None:
        """A sender has come this far in event time without a tuple to show for it."""
        train = self.event_time.heartbeat(stream, event_ns)
        if train is not None:
            self._enter(stream, train)

    def _has_room(self) -> bool:
        room = self.engine.storage.has_room and self.spark.has_room
        return room and (self.keeper is None or self.keeper.has_room)

    def _takes_overflow(self) -> bool:
        """Memory may be full for a stream that sheds, but not the log."""
        return self.spark.has_room and (self.keeper is None or self.keeper.has_room)

    def watch_stream(self, stream: int, train: Train) -> None:
        if watches := self.engine.taps.streams.get(stream):
            offer(watches, train)

    def _deliverer(self, output: Output) -> Callable[[Train], None]:
        number, record = output.number, self.recorders[output.number].record

        def deliver(train: Train) -> None:
            if self.keeper is not None:
                self.keeper.emit(number, train)
                if self.keeper.is_replaying:
                    self.server.outlets[number].emitted += train.count
                    return  # nobody is connected, and its latency says nothing
            begun_ns, now_ns = perf_counter_ns(), self.now_ns()
            record(train.arrival_ns, now_ns)
            if (journeys := self.engine.journeys) is not None and (journeys.rides or journeys.held):
                journeys.delivered(number, train, now_ns)
            if watches := self.engine.taps.outputs.get(number):
                offer(watches, train)
            self.server.outlets[number].deliver(train)
            self._delivery_ns[number] += perf_counter_ns() - begun_ns

        return deliver

    # -- the monitor ------------------------------------------------------------------------------------------------

    def _on_sample(self, sample: Sample, readings: Readings) -> None:
        self._ticker.tick(self.now_ns())
        self._busy.note(sample)
        self.overload.on_sample(sample, [bool(output.readers) for output in readings.outputs])
        self.engine.tidy()
        shares: list[float] = []
        for number, output in enumerate(readings.outputs):
            tuples, missed = output.latency.tuples, output.latency.missed
            told_tuples, told_missed = self._told[number]
            shares.append((missed - told_missed) / (tuples - told_tuples) if tuples > told_tuples else -1.0)
            self._told[number] = (tuples, missed)
        if max(shares, default=-1.0) >= 0:
            self.engine.post(Outcome(tuple(shares)))

    def _explain(self, output: str, where: str, limit: int) -> dict[str, Any]:
        """Why its slowest tuples of the last minute were late. AuroraError when the question makes no sense."""
        from engine.journeys.explain import explain

        return explain(self.engine.journeys, self._busy, self.network, output, where, limit, self.now_ns())

    def fail(self, error: Exception) -> None:
        """The engine is broken: say so, stop admitting, and let the process end itself."""
        log.critical("the engine failed", exc_info=error)
        self._ready, self.failed = False, True
        self.on_failure()

    def _monitor_failed(self, error: BaseException) -> None:
        log.error("the monitor ended: statistics and metrics stand still", exc_info=error)

    def _read(self) -> Readings:
        """Everything at this moment, unadorned. Any thread."""
        engine, now_ns = self.engine, self.now_ns()
        return Readings(
            streams=[self._stream_reading(number) for number in range(len(self.network.streams))],
            arcs=engine.arc_readings(),
            boxes=engine.box_readings(),
            outputs=[
                OutputReading(outlet.name, outlet.emitted, recorder.reading(now_ns), outlet.readings(), cost_ns=cost_ns)
                for outlet, recorder, cost_ns in zip(
                    self.server.outlets, self.recorders, self._delivery_ns, strict=True
                )
            ],
            workers=engine.worker_readings(),
            scheduler=engine.scheduler_reading(),
            engine=EngineReading(
                version=self.version,
                network_version=self.network.version,
                now_ns=now_ns,
                uptime_ns=now_ns - self._started_ns,
                workers=len(engine.pool.busy_ns),
                memory_used=engine.storage.used_bytes,
                memory_budget=engine.storage.budget_bytes,
                memory_peak=engine.storage.peak_bytes,
                shed_level=engine.shedding.plan.level,
                spill_bytes=engine.storage.spill_bytes,
                dead_letters=self.server.dead_letters.total,
                draining=self._draining,
            ),
            spark=self.spark.spark_reading(),
            bulk=self.spark.bulk_readings(),
            sinks=self.spark.sink_readings(),
            overload=self.overload.reading(),
        )

    def _stream_reading(self, number: int) -> StreamReading:
        port, routes = self.server.ports[number], self.engine.routes
        bulk = self.spark.intake.counts[number]
        rejected = {str(reason): count for reason, count in list(port.rejected.items())}
        for reason, count in list(bulk.rejected.items()):
            rejected[str(reason)] = rejected.get(str(reason), 0) + count
        if skewed := routes.rejected_skew[number]:
            rejected["skew"] = skewed
        on_the_way = 0
        if self.keeper is not None:
            on_the_way = self.keeper.committer.pending_tuples[number]  # to the log: received when it is there
            if lost := self.keeper.committer.lost_tuples[number]:
                rejected["log_failed"] = lost
        return StreamReading(
            name=port.stream.name,
            received=port.received + self._fed[number] + bulk.received - on_the_way,
            duplicates=port.duplicates + bulk.duplicates,
            admitted=routes.admitted[number],
            rejected=rejected,
            received_bytes=port.received_bytes + bulk.received_bytes,
            connections=port.connections + bulk.connections,
            paused=self.server.holds(number),
        )

    def readings(self) -> Readings:
        """Everything at this moment, with rates and load. Any thread."""
        return self.monitor.readings()


def _spills(network: Network) -> bool:
    return any(stream.overload == "spill" for stream in network.streams)


def _limits(section: Any) -> Limits:
    return Limits(section.line_bytes, section.batch_bytes, section.connections, section.dead_letters)
