"""The daemon: the engine with sockets, Spark, HTTP, a log and the monitor around it.

    sockets, files, Spark -> server, pipelines -> Ingress -> (log) -> engine -> Delivery -> outlets -> sockets, ...

Threads: I/O, the scheduler, the workers, the monitor; with a data_dir the committer and the checkpointer. The owner of
the process calls ``start`` and ``stop``, from any thread but these.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from time import CLOCK_BOOTTIME, clock_gettime_ns, monotonic, time_ns
from typing import TYPE_CHECKING, NamedTuple

from catalog.catalog import Catalog, Epoch
from catalog.network import Network
from catalog.readings import Readings
from catalog.stats import Statistics
from engine.daemon.change import LiveChanges, ReadText
from engine.daemon.counters import DaemonCounters
from engine.daemon.edge import Edge
from engine.daemon.ending.draining import Draining, describe_backlog
from engine.daemon.ending.run_end import EndOfRun
from engine.daemon.monitor.doze import Doze
from engine.daemon.monitor.edge_control import EdgeControl
from engine.daemon.monitor.loss_details import LossDetails
from engine.daemon.monitor.loss_log import LossLog
from engine.daemon.monitor.monitoring import Monitoring, make_overload
from engine.daemon.monitor.readiness import Readiness
from engine.daemon.monitor.readings import DaemonReadings
from engine.daemon.optional_parts import make_autopilot, make_keeper, make_temporary_spill, spill_files
from engine.daemon.process.descriptors import share_of_this_process
from engine.daemon.process.io_loop import IoLoop
from engine.daemon.revisions import Revisions
from engine.daemon.web.answers import Web
from engine.run.change.compare import Change
from engine.run.change.move import MovedNumbers, move, moved_numbers
from engine.run.core import Engine
from engine.run.network_file import read_following
from engine.run.settings import scheduler_settings
from engine.run.state_home import StateHome
from engine.run.ticker import Ticker
from qos_monitor.bills import Ledger
from qos_monitor.histogram import LatencyRecorder
from router.access.access import Access
from router.dead_letters import DeadLetters
from router.event_time import EventTime, SteadyClock
from router.files.pipeline import FilePipeline, RunEnd
from router.http.server import HttpServer
from router.outlets import make_outlet, make_outlets
from router.spark.daemon.host import SparkHost
from router.spark.daemon.pipeline import SparkPipeline
from router.subscribers import Outlet, Wake
from storage.train import Train

if TYPE_CHECKING:
    from engine.daemon.durable.following import FollowingOutputs
    from engine.daemon.durable.recovery import Progress

log = logging.getLogger("aurorad")


class FollowingNetwork(NamedTuple):
    """The next network, built beside the running one."""

    epoch: Epoch
    engine: Engine
    event_time: EventTime
    outlets: list[Outlet]
    recorders: list[LatencyRecorder]
    kept: FollowingOutputs | None  # in the data_dir


class Daemon:
    """``on_failure`` is called when the engine has failed and the process should end; ``on_progress`` during a replay;
    ``on_end`` when a run that ends by itself is over. With ``once`` a run ends by itself whatever its sources are, and
    otherwise if all of them are finite (``run_end.py``). ``read_text`` reads a network file that is to follow the
    present one, whose file is ``text``; ``is_file`` tells whether the file of the start has a text (``change.py``)."""

    def __init__(
        self,
        network: Network,
        *,
        version: str = "",
        spark: SparkHost | None = None,
        on_failure: Callable[[], None] | None = None,
        on_progress: Callable[[Progress], None] | None = None,
        on_end: RunEnd | None = None,
        once: bool = False,
        read_text: ReadText = read_following,
        text: str = "",
        is_file: Callable[[str], bool] = lambda text: False,
    ) -> None:
        self.network = network
        self.version = version
        self.failed = False
        self._on_failure = on_failure
        self._on_progress = on_progress
        self._is_draining = self._is_ready = False
        self.draining: Draining | None = None
        self._moved: MovedNumbers | None = None  # by a change of which the bills do not know yet
        self.now_ns = SteadyClock(time_ns, partial(clock_gettime_ns, CLOCK_BOOTTIME))
        self._started_ns = self.now_ns()
        self.catalog = Catalog(network)
        self.recorders = [LatencyRecorder(output.qos) for output in network.outputs]
        self.event_time = EventTime(network, self.now_ns)
        self.dead_letters = DeadLetters(network.config.limits.dead_letters)
        self.keeper = make_keeper(network, self.now_ns, self.fail)
        self._histories = None if self.keeper is None else self.keeper.histories
        self._state_home = StateHome() if self.keeper is None else self.keeper.state_home
        self._temporary_spill = make_temporary_spill(network)
        self.io = IoLoop()
        self._wake = Wake(self.io.loop)
        outlets = make_outlets(network, self._wake, self._block_output, self._histories)
        self.engine = self._make_engine(network, outlets, self.recorders, self.event_time, self.catalog.stats)
        self.ingress = self.engine.ingress
        config = network.config
        self.access = Access(config.access, config.http, config.engine.data_dir)
        shares = share_of_this_process(network.config.limits.connections)
        self.edge = Edge(
            network, self.io, self._wake, outlets, self.ingress, self._block_output, self.dead_letters, self.now_ns,
            histories=self._histories, ends=EndOfRun(network, on_end, once=once), spark=spark,
            shares=shares, access=self.access,
        )  # fmt: skip
        self.server = self.edge.server
        if self.keeper is not None:
            counters = DaemonCounters(self.engine, self.server)
            self.keeper.attach(self.engine, self.event_time, self.server, counters)
        revisions = Revisions(None if self.keeper is None else self.keeper.files)
        self.changes = LiveChanges(self, read_text, text, revisions, is_file)
        self._observe()
        busy = self._monitoring.busy
        self._web = Web(
            network, self.engine, self.server, self.monitor, busy, self.readiness, shares, self.changes, self.access,
            self.keeper, lambda: self.overload,
        )  # fmt: skip
        self.explain = self._web.explain

    def _observe(self, ledger: Ledger | None = None) -> None:
        """Make the parts that watch and steer the engine. A change of the network makes them anew; bills go on."""
        self.overload = make_overload(self.catalog, self.engine)
        self.readiness = Readiness(self.engine, self.server, self.keeper, self._state)
        self._monitoring = self._make_monitoring(ledger)
        self.monitor = self._monitoring.monitor
        self._autopilot = make_autopilot(self.engine, self.catalog.stats, self.recorders)

    @property
    def spark(self) -> SparkPipeline:
        return self.edge.spark

    @property
    def files(self) -> FilePipeline:
        return self.edge.files

    @property
    def is_ready(self) -> bool:
        return self._is_ready

    def _make_engine(
        self,
        network: Network,
        outlets: Sequence[Outlet],
        recorders: Sequence[LatencyRecorder],
        event_time: EventTime,
        statistics: Statistics,
        kept: FollowingOutputs | None = None,
    ) -> Engine:
        config = network.config
        points = None if self.keeper is None else self.keeper.history.points
        return Engine(
            network,
            [outlet.deliver for outlet in outlets],
            workers=config.engine.most_workers,
            is_staffed=config.engine.is_staffed,
            memory_bytes=config.engine.memory_bytes,
            policy=config.scheduler.policy,
            settings=scheduler_settings(config.scheduler),
            event_time=event_time,
            statistics=statistics,
            now_ns=self.now_ns,
            spill=spill_files(network, self._temporary_spill, self.keeper),
            explain=config.engine.explain,
            log=self.keeper,
            recorders=recorders,
            on_failure=self.fail,
            dead_letters=self.dead_letters,
            state_home=self._state_home,
            points=points if kept is None else kept.points,
        )

    def _make_monitoring(self, ledger: Ledger | None) -> Monitoring:
        deliveries = self.engine.deliveries
        edge = EdgeControl(self.network, self.server.ports, lambda: sum(d.cost_ns for d in deliveries))
        readings = DaemonReadings(
            self.network,
            self.version,
            self.engine,
            self.server,
            self.spark,
            self.files,
            self.keeper,
            self.recorders,
            self.overload.reading,
            edge,
            lambda: self._is_draining,
            self.readiness,
            self.access,
            self.now_ns,
            self._started_ns,
        )
        ticker = Ticker(self.engine, self.event_time)
        details = LossDetails(self.network, self.engine, self.dead_letters, self.server.limits.connections)
        overload = self.overload
        doze = Doze(self.engine, self.event_time, ticker, lambda: overload.is_fine and edge.drops_nothing)
        return Monitoring(
            self.catalog,
            self.engine,
            readings,
            self.recorders,
            overload,
            ticker,
            LossLog(details),
            edge,
            doze,
            ledger,
        )

    # -- start --------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Restore and replay the data_dir, if any, start everything, and return when every listener is open.

        StorageError when the data_dir cannot be trusted, ListenError when a listener cannot open: then nothing runs.
        """
        if self.keeper is not None:
            self.keeper.open()
        self.changes.begin()
        self.io.start()
        self.engine.start()
        try:
            if self.keeper is not None:
                self.engine.expire(False)  # a replayed tuple is always late
                self.keeper.replay(self._report_progress)
                self.engine.expire(True)
            self.access.open()
            self._monitoring.begin()
            self.edge.open()
            self.io.run(self._web.open())
        except BaseException:
            self.stop(0.0)
            raise
        if self.keeper is not None:
            self.keeper.start()
        self.monitor.start()
        if self._autopilot is not None:
            self._autopilot.start()
        self._is_ready = True
        self.edge.start()
        self._web.warm_up()

    def _report_progress(self, progress: Progress) -> None:
        if self._on_progress is not None:
            self._on_progress(progress)

    # -- a change of the network (``change.py``) ----------------------------------------------------------------------

    def prepare(self, network: Network, change: Change) -> FollowingNetwork:
        """Build the engine of the next network beside the running one. Any thread."""
        numbers = moved_numbers(self.network, network, change)
        kept = None if self.keeper is None else self.keeper.foresee(network)
        if self._temporary_spill is None:
            self._temporary_spill = make_temporary_spill(network)
        outlets, recorders = [], []
        for output in network.outputs:
            was = numbers.outputs.get(output.number)
            outlets.append(
                self.server.outlets[was]
                if was is not None
                else make_outlet(
                    output, self._wake, self._block_output, None if kept is None else kept.histories[output.number]
                )
            )
            is_same = was is not None and self.network.outputs[was].qos == output.qos
            recorders.append(self.recorders[was] if was is not None and is_same else LatencyRecorder(output.qos))
        epoch = Epoch.of(network, self.catalog.epoch)
        event_time = EventTime(network, self.now_ns)
        engine = self._make_engine(network, outlets, recorders, event_time, epoch.stats, kept)
        return FollowingNetwork(epoch, engine, event_time, outlets, recorders, kept)

    async def adopt(self, following: FollowingNetwork, change: Change) -> dict[str, int]:
        """Let the next engine take everything over. Returns the tuples dropped, by arc that is gone.

        On the I/O thread, while no plan of the present engine runs. Nothing here waits, so no socket is read. Without
        a data_dir the next engine also starts here; else its caller starts it when the change is on disk.
        """
        epoch, engine, event_time, outlets, recorders, kept = following
        before, network = self.engine, epoch.network
        numbers = self._moved = moved_numbers(self.network, network, change)
        with self._failing(), before.ingress.closed():
            dropped = move(before, engine, change, (self.event_time, event_time))
            self.catalog.epoch = epoch
            self.network, self.engine, self.ingress = network, engine, engine.ingress
            self.event_time, self.recorders = event_time, recorders
            self._histories = None if kept is None else kept.histories
            self.edge.adopt(network, engine.ingress, outlets, numbers.streams, self._histories)
            if self.keeper is not None and kept is not None:
                counters = DaemonCounters(engine, self.server)
                dropped |= self.keeper.adopt(kept, engine, event_time, counters, change)
            for outlet in outlets:
                if outlet.blocked:
                    engine.block_output(outlet.number, True)
            if self.keeper is None:
                engine.start()
        return dropped

    def commit_change(self) -> None:
        """Make the change that ``adopt`` has made count on disk, and start the engine. On the thread of the change,
        inside ``checkpointer.swapping``. Without a data_dir there is nothing to do."""
        if self.keeper is not None:
            with self._failing():
                self.keeper.commit_change()
            self.engine.start()

    @contextmanager
    def _failing(self) -> Iterator[None]:
        """Fail as a whole on an error in the middle of a change: neither engine has everything then."""
        try:
            yield
        except Exception as error:
            self.fail(error)
            raise

    def pause_monitoring(self) -> None:
        """Stop the parts that watch and steer the engine, before a change."""
        if self._autopilot is not None:
            self._autopilot.stop()
        self.monitor.stop()

    def resume_monitoring(self) -> None:
        """Watch and steer the engine that runs now."""
        self._observe(self._next_ledger())
        self._monitoring.begin()
        self._web.adopt(self.network, self.engine, self.monitor, self._monitoring.busy, self.readiness)
        self.monitor.start()
        if self._autopilot is not None:
            self._autopilot.start()

    def _next_ledger(self) -> Ledger:
        """Return the bills, after the last work of the engine before, if it was replaced."""
        ledger, moved = self.monitor.ledger, self._moved
        self._moved = None
        if moved is None:
            return ledger
        return ledger.follow(self._monitoring.read_counts(), self.catalog.epoch, moved.boxes, moved.outputs)

    # -- stop ---------------------------------------------------------------------------------------------------------

    def stop(self, drain_s: float | None = None) -> bool:
        """Stop reading, drain, flush, close. False when some tuples are not out. ``drain_s``: else as the file says."""
        self._is_ready = False
        with self.changes.lock:  # a change under way is finished first
            return self._stop(drain_s)

    def _stop(self, drain_s: float | None) -> bool:
        drain_s = self.network.config.engine.drain_ns / 1e9 if drain_s is None else drain_s
        serves = drain_s > 0 and not self.failed
        stop = self.network.config.engine.at_stop if serves else "keep"
        draining = self.draining = Draining(
            self.io, self.server, self.keeper, self.engine, self.event_time, self.files, self.spark, stop,
            monotonic() + drain_s,
        )  # fmt: skip
        self._is_ready, self._is_draining = False, True
        if self._autopilot is not None:
            self._autopilot.stop()
        self.edge.stop_reading()
        drained = draining.drain()
        if not drained:
            self.engine.pool.hurry()  # a call of users' code may have a longer limit than a stop has
            if drain_s:
                log.warning("draining was not finished: %s", describe_backlog(self.engine, self.server, self.files))
        self.edge.close_sinks()
        self.monitor.stop()  # from here on nothing wakes a box
        if self.keeper is not None:
            if drained and self.engine.drain(1.0):
                draining.leave_no_tuple_in_boxes()
            self.keeper.stop(checkpoint=not self.failed)
        self.engine.stop()
        if self.keeper is None and serves:
            draining.leave_no_tuple_in_boxes()
        self.edge.close()
        self._monitoring.end()
        self.io.run(self._web.close())
        self.io.stop()
        self.access.close()
        if self.keeper is not None:
            self.keeper.close()
        if self._temporary_spill is not None:
            self._temporary_spill.close()
        self._state_home.close()
        return drained

    def fail(self, error: Exception) -> None:
        """Log that the engine has failed, take no more tuples, and have the process end. Any thread."""
        log.critical("the engine failed", exc_info=error)
        self._is_ready, self.failed = False, True
        if self._on_failure is not None:
            self._on_failure()

    def _state(self) -> str:
        return "" if self._is_ready else "failed" if self.failed else "draining" if self._is_draining else "starting"

    # -- for code in this process -------------------------------------------------------------------------------------

    def subscribe(self, output: str, callback: Callable[[Train], None]) -> Callable[[], None]:
        """Call ``callback`` with an output's trains, on the worker that made them. Returns a callable that ends it."""
        return self.server.outlets[self.network.output(output).number].subscribe(callback)

    def readings(self) -> Readings:
        """Return all counters at this moment, with rates and load. Any thread."""
        return self.monitor.readings()

    @property
    def http(self) -> HttpServer | None:
        return self._web.http

    # -- callbacks of the parts ---------------------------------------------------------------------------------------

    def _block_output(self, output: int, blocked: bool) -> None:
        self.engine.block_output(output, blocked)
