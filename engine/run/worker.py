"""The worker pool: a few threads that run the plans of the execution queue.

A worker owns the state of the boxes of its plan while it runs the plan, and only then. It posts ``Finished`` after the
events of all trains that the plan has queued. So when the scheduler learns that a box is free, it knows of everything
that the box has emitted.

A worker is lost when a call of users' code does not return (``engine/operators/call_limits.py``). Then another thread
takes its number: it counts the train of that call as dead, goes on with the plan, and posts ``Finished``. The lost
thread touches nothing any more; should its call return, it ends.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from threading import Thread, get_ident
from time import perf_counter_ns

from catalog.network import Network
from engine.operators.call_limits import CallAbandonedError, CallLimits
from engine.run.executable import Executable, PlanRun, Sheds, WorkerRoutes, compile_sequence
from engine.run.journeys.recorder import Journeys
from engine.run.line import compile_line
from engine.run.runtime import BoxRuntime
from engine.run.taps import Taps
from scheduler.claims import Claim, QueuedPlan
from scheduler.events import Event, Finished
from scheduler.plan import Plan

log = logging.getLogger("aurorad.worker")

JOIN_SECONDS = 0.05
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
        call_limits: CallLimits | None = None,
        is_line: bool = False,
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
        self.ended_ns = [0] * size  # when each worker ended its last plan, of perf_counter_ns
        self.caller_ns = 0  # spent on plans by threads that are no workers
        self.sheds: Sheds = {}  # the drops of the shed plan, by arc
        self._gates: Sheds = {}  # arcs that a replay of history feeds: nothing passes
        self.on_failure = on_failure
        self.replaced = [0] * size  # how often a worker was lost and replaced
        self._call_limits = call_limits
        self._runs: dict[int, PlanRun] = {}  # by thread: the plans that may have to be taken over
        self._version = 0  # of the taps and drops that sequences are compiled with
        self._executables: dict[tuple[int, ...], Executable] = {}
        self._compile = compile_line if is_line else compile_sequence  # ``unit: vpipe``
        self._threads = [self._thread(number) for number in range(size)]
        self._at_work = size  # the workers with lower numbers take plans; the others sleep at their doors
        self._doors: list[SimpleQueue[None]] = [SimpleQueue() for _ in range(size)]

    def _thread(self, number: int, lost: int = 0) -> Thread:
        """Make the thread of a worker. ``lost`` is the thread whose plan it takes over first, 0 for none."""
        return Thread(target=self._run, args=(number, lost), name=f"worker-{number}", daemon=True)

    def start(self) -> None:
        if self._call_limits is not None:
            self._call_limits.start()
        for thread in self._threads:
            thread.start()

    def employ(self, workers: int) -> None:
        """Let only this many workers take plans. Another one that waits for a plan still takes one. Any thread."""
        before, self._at_work = self._at_work, workers
        for number in range(before, workers):
            self._doors[number].put(None)

    def stop(self) -> None:
        """End each worker, after the plans that are queued. Calls of users' code get no more time."""
        self.hurry()
        self.employ(len(self._threads))
        for _ in self._threads:
            self.execution_queue.put(QueuedPlan(None, {}))
        for number in range(len(self._threads)):
            while self._threads[number].is_alive():  # asked again: a lost worker is replaced meanwhile
                self._threads[number].join(JOIN_SECONDS)
        if self._call_limits is not None:
            self._call_limits.stop()

    def hurry(self) -> None:
        """Give calls of users' code no more time."""
        if self._call_limits is not None:
            self._call_limits.hurry()

    @property
    def alive(self) -> int:
        """How many workers run."""
        return sum(thread.is_alive() for thread in self._threads)

    def _run(self, number: int, lost: int) -> None:
        limits = self._call_limits
        try:
            if limits is not None:
                thread = get_ident()
                limits.register(lambda: self._replace(number, thread))
            if lost:
                self._take_over(number, lost)
            self._work_off(number)
        except CallAbandonedError:
            log.warning("a call of users' code has returned after its worker was replaced: its thread ends")
        except BaseException as error:  # noqa: BLE001
            # Nothing that this thread runs may raise here: a plan has not ended, and its tuples are unaccounted for.
            self.on_failure(error if isinstance(error, Exception) else RuntimeError(f"a worker ended: {error!r}"))
        finally:
            if limits is not None:
                limits.forget_thread()

    def _work_off(self, number: int) -> None:
        while True:
            while number >= self._at_work:
                self._doors[number].get()
            plan, claims = self.execution_queue.get()
            if plan is None:
                return
            begun_ns = perf_counter_ns()
            self.work(plan, claims)
            self.ended_ns[number] = ended_ns = perf_counter_ns()
            ran_ns = ended_ns - begun_ns
            self.busy_ns[number] += ran_ns
            self.plans[number] += 1
            self.post(Finished(plan, ran_ns))

    def work(self, plan: Plan, claims: dict[int, Claim]) -> None:
        """Run one plan on the calling thread. The caller posts ``Finished``."""
        if (before := self.before_plan) is not None:
            before(plan.boxes)
        journeys = self.journeys
        probed = journeys.begin_plan(plan) if journeys is not None and journeys.probed_plans else None
        try:
            executable = self.executable(plan.boxes)
            if executable.is_limited:
                self._run_limited(PlanRun(plan, executable, claims))
            else:
                executable.run(claims, plan)
        except CallAbandonedError:
            raise
        except Exception as error:  # noqa: BLE001
            # A bug of the engine: tuples are unaccounted for. (A bug of a box costs its train only: executable.py.)
            self.on_failure(error)
        if probed is not None and journeys is not None:
            journeys.end_plan(probed)

    # -- lost workers -------------------------------------------------------------------------------------------------

    def _run_limited(self, run: PlanRun) -> None:
        self._runs[get_ident()] = run
        run.go_on()
        del self._runs[get_ident()]

    def _replace(self, number: int, lost: int) -> None:
        """Give the number of a lost worker to a new thread. On the thread that watches the calls."""
        log.error("worker %d is lost in a call of users' code: another thread takes its place", number)
        self.replaced[number] += 1
        thread = self._threads[number] = self._thread(number, lost)
        thread.start()

    def _take_over(self, number: int, lost: int) -> None:
        """Go on with the plan of a lost worker."""
        run = self._runs.pop(lost)
        journeys = self.journeys
        probed = journeys.take_over_plan(lost) if journeys is not None else None
        run.give_up_call()
        self._run_limited(run)
        if probed is not None and journeys is not None:
            journeys.end_plan(probed)
        self.busy_ns[number] += perf_counter_ns() - run.begun_ns
        self.plans[number] += 1
        self.post(Finished(run.plan))

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

    def gate(self, gates: Sheds) -> None:
        """Let nothing pass on these arcs from the next plan on."""
        self._gates = gates
        self.forget_compiled()

    def executable(self, boxes: tuple[int, ...]) -> Executable:
        """Return the compiled sequence, compiled on first use. Two workers may compile the same one: the last stays."""
        executable = self._executables.get(boxes)
        if executable is None:
            if len(self._executables) >= EXECUTABLES_AT_MOST:
                self.forget_compiled()
            version = self._version
            executable = self._compile(
                self.network, self.runtimes, boxes, self.routes, self.taps, self.now_ns, {**self.sheds, **self._gates}
            )
            if version == self._version:  # else it may lack a new tap or drop, and serves only once
                self._executables[boxes] = executable
        return executable
