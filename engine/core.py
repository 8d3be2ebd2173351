"""The engine without its surroundings: storage, routes, scheduler and workers around one network.

The daemon puts sockets, HTTP and the monitor around it; benchmarks and tests run it bare. Trains come in by ``feed``
and go out to the outlets.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from queue import SimpleQueue
from threading import Condition, Thread
from time import monotonic, perf_counter_ns, sleep, time_ns
from typing import TYPE_CHECKING

from catalog.network import Arc, Network, Stream
from catalog.readings import ArcReading, BoxReading, SchedulerReading, WorkerReading
from catalog.shed import ShedPlan
from catalog.stats import Statistics
from engine.executable import Sheds
from engine.journeys.recorder import Journeys
from engine.runtime import BoxRuntime
from engine.shed.book import LossBook
from engine.shed.limits import dead_points, overflowing_streams
from engine.shed.ring import Counts
from engine.shed.shedding import Shedding
from engine.short_way import short_ways
from engine.spiller import Spiller, spillable_arcs
from engine.taps import Taps
from engine.worker import WorkerPool
from router.routes import Keep, Routes, Stamp
from scheduler.choice import AUTO, Choice, first_choice
from scheduler.events import Enqueued, Finished, OutputBlocked, OutputFreed
from scheduler.loop import SchedulerLoop, Work
from scheduler.policies import policies
from scheduler.state import SchedulerSettings, SchedulerState
from storage.manager import TOLD, StorageManager
from storage.train import Train

if TYPE_CHECKING:
    from storage.spill import SpillFiles


class Engine:
    def __init__(
        self,
        network: Network,
        outlets: Sequence[Callable[[Train], None]],
        *,
        workers: int = 2,
        memory_bytes: int = 512 * 2**20,
        policy: str = "round_robin",
        settings: SchedulerSettings | None = None,
        stamps: Sequence[Stamp | None] | None = None,
        statistics: Statistics | None = None,
        now_ns: Callable[[], int] = time_ns,
        spill: SpillFiles | None = None,
        explain: bool = False,
    ) -> None:
        self.network = network
        self.choice = first_choice(network) if policy == AUTO else Choice(policy, "the network file says so")
        self.changes = 0  # of the policy
        self._asked = policy
        self._traversed: tuple[int, dict[str, int], str] = (0, {}, "min_cost")  # since when, plans then, the usual one
        self.now_ns = now_ns
        self.spiller: Spiller | None = None if spill is None else Spiller()
        self.storage = self._make_storage(memory_bytes, spill)
        self.state = SchedulerState(network, settings, statistics)
        self.runtimes = [BoxRuntime(node) for node in network.boxes]
        stamps = stamps if stamps is not None else [None] * len(network.streams)
        execution_queue: SimpleQueue[Work] = SimpleQueue()
        self.loop = SchedulerLoop(
            self.state, policies()[self.choice.policy], self.storage, execution_queue, workers, now_ns, perf_counter_ns
        )
        self.post = self.loop.post
        self.routes = Routes(network, self.storage, self._announce, self.loop.take_turn, outlets, stamps)
        self.taps = Taps(network)
        self.pool = WorkerPool(
            network, self.runtimes, self.routes, self.taps, execution_queue, self.post, workers, now_ns
        )
        self.taps.on_change = self.pool.forget
        self.journeys: Journeys | None = Journeys(network, self.runtimes, now_ns) if explain else None
        self.loop.observer = self.pool.journeys = self.journeys
        self.shedding = Shedding(network, LossBook(network, self._passed), now_ns)
        self.shedding.on_change = self._shed_elsewhere
        self.shedding.more_counts = self._expired
        self.storage.on_expired = self.shedding.note_expired
        self.expire(True)
        self.overflows = overflowing_streams(network)
        self.routes.overflow = [self._losers(stream) for stream in network.streams]
        for runtime in self.runtimes:
            runtime.attend(self.shedding.book.boxes.get(runtime.node.number))
        self._short_ways = short_ways(self)
        self._thread = Thread(target=self.loop.run, name="scheduler", daemon=True)
        self.lent_ns = 0  # that threads other than the workers spent on plans
        self._room = Condition()
        self.on_room: Callable[[], None] = lambda: None
        self.storage.when_room(self._room_again)
        self.storage.readmit = self.routes.enqueue

    def _make_storage(self, memory_bytes: int, spill: SpillFiles | None) -> StorageManager:
        arcs = self.network.arcs
        if spill is None or self.spiller is None:
            return StorageManager(len(arcs), memory_bytes)
        from storage.spilling import SpillingStorage  # and with it pyarrow, which who does not spill need not load

        return SpillingStorage(
            [arc.schema for arc in arcs],
            memory_bytes,
            spill,
            spillable_arcs(self.network),
            tell=self._announce,
            nudge=lambda: self.loop.take_turn(),
            wake=self.spiller.wake,
        )

    # -- life -------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        self.pool.start()
        if self.spiller is not None:
            self.spiller.start(self.storage)
        self._thread.start()

    def drain(self, timeout_s: float) -> bool:
        """Wait until nothing waits and nothing runs; the caller has stopped feeding. False when time ran out."""
        deadline = monotonic() + timeout_s
        while not self.is_quiet():
            if monotonic() > deadline or self.loop.failure is not None:
                return False
            sleep(0.002)
        return True

    def is_quiet(self) -> bool:
        """Nothing waits and nothing runs.

        The order of these looks matters: a train is in storage before its event is posted and a plan is outstanding
        until its Finished is applied, so whatever is under way shows in one of them.
        """
        return self.loop.is_resting and self.storage.is_empty() and not self.state.outstanding and self.loop.is_resting

    def stop(self) -> None:
        """Ends the threads; what still waits stays in storage."""
        self.loop.stop()
        self._thread.join()
        self.pool.stop()
        if self.spiller is not None:
            self.spiller.stop()

    def follow(self, policy: str, reason: str) -> None:
        """Another policy decides from the next step on."""
        self.loop.follow(policies()[policy])
        self.choice = Choice(policy, reason)
        self.changes += 1

    def when_failed(self, callback: Callable[[Exception], None]) -> None:
        """``callback`` hears that the scheduler or a worker is broken, on the thread that found it."""
        self.loop.on_failure = self.pool.on_failure = callback

    # -- tuples in --------------------------------------------------------------------------------------------------

    def feed(self, stream: int, train: Train, timeout_s: float | None = None) -> bool:
        """Admit a train, waiting while storage is full. False when there was no room in time: nothing was taken."""
        if not self.wait_for_room(stream, timeout_s):
            return False
        self.routes.admit(stream, train)
        return True

    def wait_for_room(self, stream: int | None = None, timeout_s: float | None = None) -> bool:
        """Whether storage has room for more of this stream, waiting for it that long. One that overflows never
        waits."""
        if self.storage.has_room or stream in self.overflows:
            return True
        with self._room:
            return self._room.wait_for(lambda: self.storage.has_room, timeout_s)

    def admit_here(self, stream: int, train: Train) -> None:
        """Admit a train, and run what it leads to on this thread when that is short: the I/O thread's way.

        Two tuples a millisecond would otherwise wake a worker each, and the worker the I/O thread again: three times
        the work of running the plan.
        """
        here: list[Work] = []
        way = self._short_ways[stream]
        if way is None:
            self.routes.admit(stream, train, lambda: self.loop.take_turn(here))
        else:
            try:
                self.routes.admit(stream, train, lambda: self.loop.take_turn(here), way.enter)
            finally:
                way.run()  # whatever became of the rest: who has entered has the turn
            self.loop.take_turn(here)  # what it put on queues
        while here:
            plan, claims = here.pop()
            assert plan is not None
            begun_ns = perf_counter_ns()
            self.pool.work(plan, claims)
            self.lent_ns += perf_counter_ns() - begun_ns
            self.loop.mailbox.put(Finished(plan))
            self.loop.take_turn(here)

    def block_output(self, output: int, blocked: bool) -> None:
        """An outlet takes no more, or does again."""
        self.post(OutputBlocked(output) if blocked else OutputFreed(output))

    # -- tuples given up --------------------------------------------------------------------------------------------

    def shed(self, plan: ShedPlan) -> None:
        """This is dropped from now on, and nothing else. Any thread."""
        self.shedding.put(plan)

    def tidy(self) -> None:
        """Some times a second: forget what no open window needs of what was dropped."""
        self.shedding.tidy(self.routes.latest)
        self.shedding.book.forget(lambda box: self.runtimes[box].closed_ns)

    def expire(self, on: bool) -> None:
        """Whether tuples that will be of no use to any output any more are dropped."""
        self.loop.dead_points = dead_points(self.network) if on else {}

    def _shed_elsewhere(self, sheds: Sheds) -> None:
        self.routes.shed(sheds)
        self.pool.shed(sheds)

    def _losers(self, stream: Stream) -> tuple[tuple[Arc, Keep], ...]:
        """The queues of a stream that overflows, and who drops what does not fit there."""
        if stream.number not in self.overflows:
            return ()
        arcs = [self.network.arcs[a] for a in stream.arcs if self.network.arcs[a].box is not None]
        return tuple((arc, partial(self._overflow, arc.number)) for arc in arcs)

    def _overflow(self, arc: int, train: Train) -> Train:
        return self.shedding.shed_of(arc).lose(train, "overflow")

    def _passed(self, box: int, port: int) -> float:
        runtime = self.runtimes[box]
        return runtime.tuples_out[port] / runtime.tuples_in if runtime.tuples_in else 1.0

    def _expired(self) -> Counts:
        return {(a, "expired"): q.expired for a, q in enumerate(self.storage.queues) if q.expired}

    def _announce(self, arcs: tuple[int, ...], train: Train, nbytes: int) -> None:
        if nbytes == TOLD:
            return
        arrival_ns = train.arrival_ns
        if train.count:
            first_ns = int(arrival_ns[0])
            journeys = self.journeys
            if journeys is not None and (first_ns >= journeys.due_ns or journeys.rides):
                journeys.queued(arcs, train, first_ns)  # before the event: nobody can claim the train yet
            # Arrivals within a train are nearly in order, so half way between the ends is the mean, at no cost.
            self.loop.mailbox.put(Enqueued(arcs, train.count, first_ns, (first_ns + int(arrival_ns[-1])) // 2, nbytes))
        else:
            self.loop.mailbox.put(Enqueued(arcs, 0, 0, 0, nbytes))

    def _room_again(self) -> None:
        with self._room:
            self._room.notify_all()
        self.on_room()

    # -- looking in -------------------------------------------------------------------------------------------------

    def box_readings(self) -> list[BoxReading]:
        return [runtime.reading() for runtime in self.runtimes]

    def arc_readings(self) -> list[ArcReading]:
        readings = self.storage.readings([arc.name for arc in self.network.arcs])
        for number, shed in list(self.shedding.known.items()):
            if dropped := {str(reason): count for reason, count in shed.dropped.items() if count}:
                mine = readings[number]
                for reason, count in mine.shed.items():
                    dropped[reason] = dropped.get(reason, 0) + count
                enqueued = mine.enqueued + sum(dropped.values()) - sum(mine.shed.values())  # it was to be put there
                readings[number] = mine._replace(enqueued=enqueued, shed=dropped)
        return readings

    def worker_readings(self) -> list[WorkerReading]:
        pool = self.pool
        return [
            WorkerReading(i, busy, plans) for i, (busy, plans) in enumerate(zip(pool.busy_ns, pool.plans, strict=True))
        ]

    def scheduler_reading(self) -> SchedulerReading:
        loop, state = self.loop, self.state
        return SchedulerReading(
            policy=self.choice.policy,
            unit=state.settings.unit,
            steps=loop.steps,
            decision_ns=loop.decision_ns,
            decision_counts=tuple(loop.decision_counts),
            execution_queue=self.pool.execution_queue.qsize(),
            scheduler_ns=loop.decision_ns,
            storage_ns=loop.storage_ns,
            worker_ns=max(0, sum(self.pool.busy_ns) + self.lent_ns - sum(r.cost_ns for r in self.runtimes)),
            asked=self._asked,
            reason=self.choice.reason,
            changes=self.changes,
            traversal=self._usual_traversal(),
            plans=dict(state.traversed),
            train=state.settings.train.kind,
            train_scale=state.train_scale,
            train_limit=min(state.auto_tuples, default=0),
            lent_ns=self.lent_ns,
        )

    def _usual_traversal(self) -> str:
        """How most plans of the last second or so ran: what `auto` chose, where it may choose."""
        since_ns, before, usual = self._traversed
        now_ns, plans = self.now_ns(), dict(self.state.traversed)
        if now_ns - since_ns >= 1_000_000_000:
            usual = max(plans, key=lambda name: plans[name] - before.get(name, 0), default=usual)
            self._traversed = now_ns, plans, usual
        return usual
