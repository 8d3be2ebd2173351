"""The engine's parts and how they are wired: storage, routes, scheduler and workers around one network.

The daemon adds sockets, HTTP and the monitor. Benchmarks and tests run the engine alone. In both cases trains come in
through ``ingress`` and leave through ``deliveries``.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from queue import SimpleQueue
from threading import Thread
from time import monotonic, perf_counter_ns, sleep, time_ns
from typing import TYPE_CHECKING, Protocol

from catalog.network import Network, PortRef
from catalog.pause import closed_arcs
from catalog.schema import Schema
from catalog.stats import Statistics
from engine.operators.call_limits import CallLimits
from engine.run.delivery import Delivery, OutputLog
from engine.run.executable import Sheds
from engine.run.idle_path import idle_paths
from engine.run.ingress import ConnectionPoint, Ingress, TrainLog
from engine.run.journeys.recorder import Journeys
from engine.run.preference import CompiledPreference
from engine.run.readings import EngineReadings
from engine.run.runtime import BoxRuntime
from engine.run.spiller import Spiller, spillable_arcs
from engine.run.state_home import StateHome
from engine.run.taps import Taps, Watch
from engine.run.worker import WorkerPool
from load_shedder.apply.limits import Expiry
from load_shedder.apply.shedding import Shedding
from load_shedder.decide.values import Valuations
from load_shedder.record.book import LossBook
from load_shedder.record.ring import DropCounts
from load_shedder.shed_plan import ShedPlan
from qos_monitor.histogram import LatencyRecorder
from router.dead_letters import DeadLetters
from router.event_time import EventTime
from router.routes import Routes
from scheduler.choice import AUTO, Choice, first_choice
from scheduler.claims import QueuedPlan
from scheduler.events import Enqueued, OutputBlocked, OutputFreed
from scheduler.loop import SchedulerLoop
from scheduler.policies import policies
from scheduler.staffing import Staffing
from scheduler.state import SchedulerSettings, SchedulerState
from storage.manager import ANNOUNCED, StorageManager
from storage.train import Train

if TYPE_CHECKING:
    from storage.spill_files import SpillFiles


log = logging.getLogger("aurorad.engine")


class DurableLog(TrainLog, OutputLog, Protocol):
    """The log of a data_dir as the engine sees it: trains in, outputs out (``engine/daemon/durable/keeper.py``)."""


class Engine:
    """``outlets``, by the output's number, take its trains. With a ``log`` every train is on disk before any box sees
    it. ``recorders``, by output, record latencies; ``explain`` samples journeys; ``dead_letters`` keeps what the
    ingress refuses; ``points`` keep the history of their places."""

    gated: frozenset[int] = frozenset()  # arcs that a replay of history feeds, and no other train
    _expires = True

    def __init__(
        self,
        network: Network,
        outlets: Sequence[Callable[[Train], None]],
        *,
        workers: int = 2,
        is_staffed: bool = False,
        memory_bytes: int = 512 * 2**20,
        policy: str = "round_robin",
        settings: SchedulerSettings | None = None,
        event_time: EventTime | None = None,
        statistics: Statistics | None = None,
        now_ns: Callable[[], int] = time_ns,
        spill: SpillFiles | None = None,
        explain: bool = False,
        log: DurableLog | None = None,
        recorders: Sequence[LatencyRecorder] | None = None,
        on_failure: Callable[[Exception], None] | None = None,
        dead_letters: DeadLetters | None = None,
        state_home: StateHome | None = None,
        points: Mapping[PortRef, ConnectionPoint] | None = None,
    ) -> None:
        self.network = network
        self.state_home = state_home or StateHome()
        self.now_ns = now_ns
        on_failure = on_failure or _log_failure
        self.choice = first_choice(network) if policy == AUTO else Choice(policy, "the network file says so")
        self.changes = 0  # of the policy
        self.shedding = Shedding(
            network,
            LossBook(network, self._selectivity),
            Valuations(network, CompiledPreference),
            now_ns,
            on_change=self._apply_drops,
            queue_drops=self._expired_counts,
        )
        self._expiry = Expiry(network)
        self._shed_outputs: frozenset[int] = frozenset()  # by the plan in force
        self.spiller: Spiller | None = None if spill is None else Spiller()
        self.storage = self._make_storage(memory_bytes, spill)
        self.state = SchedulerState(network, settings, statistics)
        self.runtimes = [BoxRuntime(node, self.storage, self.state_home) for node in network.boxes]
        self.journeys = Journeys(network, self.runtimes, now_ns) if explain else None
        execution_queue: SimpleQueue[QueuedPlan] = SimpleQueue()
        self.loop = SchedulerLoop(
            self.state, policies()[self.choice.policy], self.storage, execution_queue, workers, now_ns, perf_counter_ns,
            observer=self.journeys, on_failure=on_failure, dead_points=self._expiry.points(),
        )  # fmt: skip
        self.post = self.loop.post
        self.taps = Taps(network, self._recompile, self._kept_ports(points or {}))
        self.deliveries = self._make_deliveries(outlets, recorders, log)
        self.routes = Routes(self.storage, self.announce, self.loop.wake, self.deliveries)
        call_limits = CallLimits() if any(node.box.calls_users for node in network.boxes) else None
        self.pool = WorkerPool(
            network, self.runtimes, self.routes, self.taps, execution_queue, self.post, workers, now_ns, self.journeys,
            on_failure, call_limits, self.state.settings.unit == "vpipe",
        )  # fmt: skip
        if is_staffed and workers > 1:
            self.loop.staff(1)
            self.pool.employ(1)
            self.loop.staffing = Staffing(workers, self._employ)
        for runtime in self.runtimes:
            runtime.watch_losses(self.shedding.book.boxes.get(runtime.node.number))
            runtime.limit_calls(call_limits)
        self.ingress = Ingress(
            network, self.storage, self.routes, self.loop, self.pool, self.taps,
            idle_paths(self.loop, self.storage, self.pool, self.journeys), self.shedding.overflow_masks(), event_time,
            log, now_ns, dead_letters, self.shedding.note_undecoded,
            {ref.stream: point for ref, point in (points or {}).items() if ref.stream is not None},
        )  # fmt: skip
        self._paused = closed_arcs(network)
        if self._paused:
            self.gate(frozenset())
        self._thread = Thread(target=self.loop.run, name="scheduler", daemon=True)
        self.readings = EngineReadings(self, policy)

    def _make_deliveries(
        self,
        outlets: Sequence[Callable[[Train], None]],
        recorders: Sequence[LatencyRecorder] | None,
        log: DurableLog | None,
    ) -> list[Delivery]:
        return [
            Delivery(
                output,
                outlets[output.number],
                recorder=None if recorders is None else recorders[output.number],
                journeys=self.journeys,
                taps=self.taps,
                log=log,
                now_ns=self.now_ns,
            )
            for output in self.network.outputs
        ]

    def _make_storage(self, memory_bytes: int, spill: SpillFiles | None) -> StorageManager:
        arcs = self.network.arcs
        if spill is None or self.spiller is None:
            return StorageManager(
                len(arcs), memory_bytes, on_room=self._room_again, on_expired=self.shedding.note_expired
            )
        from storage.spilling import SpillingStorage  # pyarrow comes with it: imported only when spilling is on

        return SpillingStorage(
            [arc.schema for arc in arcs],
            memory_bytes,
            spill,
            spillable_arcs(self.network),
            announce=self.announce,
            wake_scheduler=lambda: self.loop.wake(),
            wake_spiller=self.spiller.wake,
            on_room=self._room_again,
            on_expired=self.shedding.note_expired,
        )

    def _room_again(self) -> None:
        self.ingress.room_again()

    # -- life -------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        self.pool.start()
        if self.spiller is not None:
            self.spiller.start(self.storage)
        self._thread.start()

    def drain(self, timeout_s: float) -> bool:
        """Wait until no train waits and no plan runs. The caller has stopped feeding. False when time ran out."""
        deadline = monotonic() + timeout_s
        while not self.is_quiet():
            if monotonic() > deadline or self.loop.failure is not None:
                return False
            sleep(0.002)
            if self.storage.is_empty():  # else the scheduler's thread decides, and nobody else
                self.loop.drain_mailbox()  # the end of the last plan wakes nobody: it would be read up to 20 ms later
        return True

    def is_quiet(self) -> bool:
        """Tell whether no train waits and no plan runs.

        The order of the checks matters. A train is in storage before its event is posted, and a plan is outstanding
        until its Finished event is applied, so one of the checks sees everything that is under way.
        """
        return self.loop.is_resting and self.storage.is_empty() and not self.state.outstanding and self.loop.is_resting

    def stop(self) -> None:
        """End the threads. Trains that wait stay in storage."""
        self.loop.stop()
        if self._thread.ident is not None:  # it never started if a change could not be written to disk
            self._thread.join()
        self.pool.stop()
        if self.spiller is not None:
            self.spiller.stop()

    def follow(self, policy: str, reason: str) -> None:
        """Let another policy decide from the next step on."""
        self.loop.follow(policies()[policy])
        self.choice = Choice(policy, reason)
        self.changes += 1

    @property
    def workers_at_work(self) -> int:
        """How many workers take plans. Short trials with another number do not count."""
        staffing = self.loop.staffing
        return self.loop.workers if staffing is None else staffing.settled

    def press(self, is_pressed: bool) -> None:
        """Tell whether there is overload. The monitor."""
        if self.loop.staffing is not None:
            self.loop.staffing.is_pressed = is_pressed

    def _employ(self, workers: int) -> None:
        self.loop.staff(workers)
        self.pool.employ(workers)

    # -- outputs ----------------------------------------------------------------------------------------------------

    def block_output(self, output: int, blocked: bool) -> None:
        """Stop the boxes and the streams right before an output that takes no more, or let them go on."""
        self.post(OutputBlocked(output) if blocked else OutputFreed(output))
        self.ingress.block_output(output, blocked)

    # -- dropped tuples ---------------------------------------------------------------------------------------------

    def shed(self, plan: ShedPlan) -> None:
        """Drop what this shed plan says from now on, and nothing else. Any thread."""
        self.shedding.apply(plan)
        if plan.outputs != self._shed_outputs:
            self._shed_outputs = plan.outputs
            self.expire(self._expires)

    def refresh_losses(self) -> None:
        """Update the shedder's view of the streams' values, and forget losses that no open window needs any more.

        The monitor calls this some times a second.
        """
        self.shedding.refresh(self.ingress.latest)
        self.shedding.book.forget(lambda box: self.runtimes[box].closed_ns)

    def expire(self, on: bool) -> None:
        """Switch the dropping of tuples that are too late for every output on or off."""
        self._expires = on
        replayed = set(self.network.arcs_behind(tuple(self.gated)))  # tuples of history are always late
        points = self._expiry.points(self._shed_outputs) if on else {}
        self.loop.dead_points = {arc: at for arc, at in points.items() if arc not in replayed}

    def _apply_drops(self, sheds: Sheds) -> None:
        self.ingress.shed(sheds)
        self.pool.shed(sheds)

    def gate(self, arcs: frozenset[int]) -> None:
        """Let only a replay of history feed these arcs, and no others. Before the start, or inside ``quiet`` and
        ``Ingress.closed``: a train must not find a gate half open."""
        self.gated = arcs
        closed = arcs | self._paused
        self.ingress.gate(closed)
        self.pool.gate({arc: _nothing(self.network.arcs[arc].schema) for arc in closed})
        self.expire(self._expires)

    def _kept_ports(self, points: Mapping[PortRef, ConnectionPoint]) -> dict[PortRef, Watch]:
        def keep(point: ConnectionPoint) -> Watch:
            return lambda train: point.append(train, self.ingress.entered)

        return {ref: keep(point) for ref, point in points.items() if ref.box is not None}

    def _recompile(self) -> None:
        """Compile plans anew after a tap has come or gone: a compiled plan contains its taps."""
        self.pool.forget_compiled()

    def _selectivity(self, box: int, port: int) -> float:
        """Return the measured share of a box's tuples that leave by a port; 1 before its first tuple."""
        runtime = self.runtimes[box]
        tuples_in = runtime.tuples_in + runtime.skipped
        return runtime.tuples_out[port] / tuples_in if tuples_in else 1.0

    def _expired_counts(self) -> DropCounts:
        return {(a, "expired"): q.expired for a, q in enumerate(self.storage.queues) if q.expired}

    def announce(self, arcs: tuple[int, ...], train: Train, nbytes: int) -> None:
        """Put the event of a queued train into the scheduler's mailbox. On the thread that queued it."""
        if nbytes == ANNOUNCED:
            return
        arrival_ns = train.arrival_ns
        if train.count:
            first_ns = int(arrival_ns[0])
            journeys = self.journeys
            if journeys is not None and (first_ns >= journeys.due_ns or journeys.probed_plans):
                journeys.note_queued(arcs, train, first_ns)  # before the event: no plan can claim the train yet
            # Arrivals within a train are nearly in order, so the middle between both ends is the mean, at no cost.
            mean_ns = (first_ns + int(arrival_ns[-1])) // 2
            self.loop.mailbox.put(Enqueued(arcs, train.count, first_ns, mean_ns, nbytes, train.watermark_ns))
        else:
            self.loop.mailbox.put(Enqueued(arcs, 0, 0, 0, nbytes, train.watermark_ns))


def _nothing(schema: Schema) -> Callable[[Train], Train]:
    """Return a function that returns a train without tuples, for each train."""
    nothing = Train.empty(schema)
    return lambda train: nothing


def _log_failure(error: Exception) -> None:
    log.critical("the scheduler or a worker failed: the engine decides nothing any more", exc_info=error)
