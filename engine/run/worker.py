"""The worker pool: a few threads that run the plans of the execution queue.

A worker owns the state of the boxes of its plan while it runs the plan, and only then. It posts ``Finished`` after the
events of all trains that the plan has queued. So when the scheduler learns that a box is free, it knows of everything
that the box has emitted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from queue import SimpleQueue
from threading import Thread
from time import perf_counter_ns

from catalog.network import Network
from engine.run.executable import Executable, Sheds, WorkerRoutes, compile_sequence
from engine.run.journeys.recorder import Journeys
from engine.run.runtime import BoxRuntime
from engine.run.taps import Taps
from scheduler.claims import Claim, QueuedPlan
from scheduler.events import Event, Finished
from scheduler.plan import Plan

EXECUTABLES_AT_MOST = 4_096
"""How many compiled sequences are kept. A policy of a static network uses one or two for each superbox. A policy that
invents new sequences all the time must not fill the memory."""


class WorkerPool:
    def __init__(
        self,
        network: Network,
        runtimes: Sequence[BoxRuntime],
        routes: WorkerRoutes,
        taps: Taps,
        execution_queue: SimpleQueue[QueuedPlan],
        post: Callable[[Event], None],
        size: int,
        now_ns: Callable[[], int],
        journeys: Journeys | None,
        on_failure: Callable[[Exception], None],
    ) -> None:
        self.network = network
        self.runtimes = runtimes
        self.routes = routes
        self.taps = taps
        self.post = post
        self.now_ns = now_ns
        self.execution_queue = execution_queue
        self.before_plan: Callable[[tuple[int, ...]], None] | None = None  # a checkpoint copies states first
        self.journeys = journeys
        self.busy_ns = [0] * size
        self.plans = [0] * size
        self.caller_ns = 0  # spent on plans by threads that are no workers
        self.sheds: Sheds = {}  # the drops of the shed plan, by arc
        self.on_failure = on_failure
        self._version = 0  # of the taps and drops that sequences are compiled with
        self._executables: dict[tuple[int, ...], Executable] = {}
        self._threads = [
            Thread(target=self._run, args=(number,), name=f"worker-{number}", daemon=True) for number in range(size)
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """End each worker, after the plans that are queued."""
        for _ in self._threads:
            self.execution_queue.put(QueuedPlan(None, {}))
        for thread in self._threads:
            thread.join()

    def _run(self, number: int) -> None:
        while True:
            plan, claims = self.execution_queue.get()
            if plan is None:
                return
            begun_ns = perf_counter_ns()
            self.work(plan, claims)
            self.busy_ns[number] += perf_counter_ns() - begun_ns
            self.plans[number] += 1
            self.post(Finished(plan))

    def work(self, plan: Plan, claims: dict[int, Claim]) -> None:
        """Run one plan on the calling thread. The caller posts ``Finished``."""
        if (before := self.before_plan) is not None:
            before(plan.boxes)
        journeys = self.journeys
        probed = journeys.begin_plan(plan) if journeys is not None and journeys.probed_plans else None
        try:
            self.executable(plan.boxes).run(claims)
        except Exception as error:  # noqa: BLE001
            # A bug of the engine: tuples are unaccounted for. (A bug of a box costs its train only: executable.py.)
            self.on_failure(error)
        if probed is not None and journeys is not None:
            journeys.end_plan(probed)

    def run_for_caller(self, plan: Plan, claims: dict[int, Claim]) -> None:
        """Run a short plan on a thread that is no worker, and count its time in ``caller_ns``."""
        begun_ns = perf_counter_ns()
        self.work(plan, claims)
        self.caller_ns += perf_counter_ns() - begun_ns

    def forget_compiled(self) -> None:
        """Compile every sequence anew on its next use."""
        self._version += 1
        self._executables = {}

    def shed(self, sheds: Sheds) -> None:
        """Drop tuples on these arcs from the next plan on."""
        self.sheds = sheds
        self.forget_compiled()

    def executable(self, boxes: tuple[int, ...]) -> Executable:
        """Return the compiled sequence, compiled on first use. Two workers may compile the same one: the last stays."""
        executable = self._executables.get(boxes)
        if executable is None:
            if len(self._executables) >= EXECUTABLES_AT_MOST:
                self.forget_compiled()
            version = self._version
            executable = compile_sequence(
                self.network, self.runtimes, boxes, self.routes, self.taps, self.now_ns, self.sheds
            )
            if version == self._version:  # else it may lack a new tap or drop, and serves only once
                self._executables[boxes] = executable
        return executable
