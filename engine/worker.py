"""The worker pool: a few threads that drain the execution queue.

A worker owns the state of the boxes of its plan, only while it runs it. It posts ``Finished`` after everything that the
plan enqueued, so the scheduler never sees a box free whose output it has not heard of.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from threading import Thread
from time import perf_counter_ns

from catalog.network import Network
from engine.executable import Executable, Routes, Sheds, compile_sequence
from engine.journeys.recorder import Journeys
from engine.runtime import BoxRuntime
from engine.taps import Taps
from scheduler.events import Event, Finished
from scheduler.loop import Claim, Work
from scheduler.plan import Plan

log = logging.getLogger("aurorad.worker")

EXECUTABLES_AT_MOST = 4_096
"""Sequences kept compiled. Policies of a static network use one or two a superbox; a policy that makes up ever new ones
must not fill the memory."""


class WorkerPool:
    def __init__(
        self,
        network: Network,
        runtimes: Sequence[BoxRuntime],
        routes: Routes,
        taps: Taps,
        execution_queue: SimpleQueue[Work],
        post: Callable[[Event], None],
        size: int,
        now_ns: Callable[[], int],
    ) -> None:
        self.network = network
        self.runtimes = runtimes
        self.routes = routes
        self.taps = taps
        self.post = post
        self.now_ns = now_ns
        self.execution_queue = execution_queue
        self.before_plan: Callable[[tuple[int, ...]], None] | None = None  # a checkpoint wants to see them first
        self.journeys: Journeys | None = None
        self.busy_ns = [0] * size
        self.plans = [0] * size
        self.sheds: Sheds = {}  # where tuples are dropped
        self.on_failure: Callable[[Exception], None] = _log_failure
        self._version = 0  # of what sequences are compiled with
        self._executables: dict[tuple[int, ...], Executable] = {}
        self._threads = [
            Thread(target=self._run, args=(number,), name=f"worker-{number}", daemon=True) for number in range(size)
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Ends each worker after the plans that are queued."""
        for _ in self._threads:
            self.execution_queue.put(Work(None, {}))
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
        """Run one plan on the calling thread. Whoever calls posts that it is finished."""
        if (before := self.before_plan) is not None:
            before(plan.boxes)
        journeys = self.journeys
        ride = journeys.riding(plan) if journeys is not None and journeys.rides else None
        try:
            self.executable(plan.boxes).run(claims)
        except Exception as error:  # noqa: BLE001
            # Not a box's error (those cost their train, see executable.py) but ours: tuples are unaccounted for.
            self.on_failure(error)
        if ride is not None and journeys is not None:
            journeys.ended(ride)

    def forget(self) -> None:
        """Compile every sequence anew on its next use."""
        self._version += 1
        self._executables = {}

    def shed(self, sheds: Sheds) -> None:
        """Tuples are dropped there from the next plan on."""
        self.sheds = sheds
        self.forget()

    def executable(self, boxes: tuple[int, ...]) -> Executable:
        """Compiled on first use. Two workers may compile the same sequence: the last one stays."""
        executable = self._executables.get(boxes)
        if executable is None:
            if len(self._executables) >= EXECUTABLES_AT_MOST:
                self.forget()
            version = self._version
            executable = compile_sequence(
                self.network, self.runtimes, boxes, self.routes, self.taps, self.now_ns, self.sheds
            )
            if version == self._version:  # else it may lack a tap or a drop that has just come: of use this once
                self._executables[boxes] = executable
        return executable


def _log_failure(error: Exception) -> None:
    log.critical("a worker failed outside of a box", exc_info=error)
