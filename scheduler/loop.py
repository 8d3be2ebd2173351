"""The scheduler's loop: read the mailbox, ask the policy, take the trains, put the plan on the execution queue.

Deciding is the policy's; this file only acts. One thread at a time has the scheduler's *turn*, and only that thread
touches the state or takes from the queues. The turn is a lock, and no thread that processes tuples ever waits for it:
the thread that brings news acts on it right there if the turn is free, and the thread that has the turn looks for more
news before it goes. Waking a thread of the scheduler's own for every train was refused: that costs 30 us and more under
the GIL. This way a tuple changes threads twice on its way through, and a worker that ends a plan finds its next one
without waiting.

The ways to take the turn, from the most frequent to the rarest:

- ``act_on_news`` (and ``post``): the I/O thread with a train, a worker with a finished plan, any thread with an event.
  Does nothing while another thread has the turn: that thread will see the news.
- ``acquire_if_idle`` ... ``release``: the I/O thread, which runs a train on the idle fast path and keeps the turn
  meanwhile. Fails while another thread has the turn, or when there is anything to decide.
- ``run``: the scheduler's own thread, 50 times a second, for what time alone changes. Skips a time when the turn is
  taken.
- ``drain_mailbox``: a measurement that cannot wait for ``run``. Does nothing while another thread has the turn.
- ``paused``: a checkpoint, or a thread that copies the state. Waits for the turn.
- ``follow``: a thread that changes the policy. Waits for the turn.
- ``stop``: the thread that stops the engine. Waits for the turn and keeps it for good.

The execution queue stays short (two plans a worker), so that decisions are fresh: a plan that waits behind ten others
was decided on a state that is gone.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from queue import SimpleQueue
from threading import Event as Stopped
from threading import Lock
from typing import Any, Protocol

from catalog.readings import DECISION_BOUNDS_NS, decision_bucket
from scheduler.claims import Claim, Claims, QueuedPlan, Storage
from scheduler.deadlines import hopeless_ages_ns
from scheduler.events import Clock, Dispatched, Event, MemoryShort, StatisticsMoved
from scheduler.mailbox import Mailbox
from scheduler.plan import Plan
from scheduler.policies import Policy, make_index
from scheduler.ranks import ranked_arcs
from scheduler.state import SchedulerState

log = logging.getLogger("aurorad.scheduler")

PLANS_PER_WORKER = 2
TURN_EVERY_S = 0.02
SHORT_TUPLES = 128
MEASURED_EVERY_NS = 1_000_000_000
"""How often priorities are computed anew from the statistics: they move within seconds, and it costs all boxes ..."""
MEASURED_SHARE = 100
"""... so that in a large network it takes at most a hundredth of the time."""


class Observer(Protocol):
    """Learns which decisions passed a tuple over, and which one took it."""

    waiting: dict[int, Any]  # the arcs on which such a tuple waits

    def note_decision(self, plan: Plan, priority: Any, now_ns: int) -> None: ...

    def note_claims(self, plan: Plan, claims: Mapping[int, Claim], now_ns: int) -> None: ...


def log_failure(error: Exception) -> None:
    """Log a failure of the scheduler, where no caller wants to hear of it."""
    log.critical("the scheduler failed and decides nothing any more", exc_info=error)


class SchedulerLoop:
    """Owner of the SchedulerState: the thread that has the turn.

    ``now_ns`` is the wall clock, in which arrivals are stamped; ``clock_ns`` is monotonic and measures the loop's own
    cost. ``on_failure`` hears of an exception in a policy or in the state, on the thread that ran into it.
    ``dead_points``, by arc: the outputs behind it and the delay from which a tuple is worthless there; empty: no tuple
    expires.
    """

    def __init__(
        self,
        state: SchedulerState,
        policy: Policy,
        storage: Storage,
        execution_queue: SimpleQueue[QueuedPlan],
        workers: int,
        now_ns: Callable[[], int],
        clock_ns: Callable[[], int],
        *,
        observer: Observer | None = None,
        on_failure: Callable[[Exception], None] = log_failure,
        dead_points: Mapping[int, Sequence[tuple[int, int]]] | None = None,
        measured_every_ns: int = MEASURED_EVERY_NS,
    ) -> None:
        self.state = state
        self.policy = policy
        self.storage = storage
        self.execution_queue = execution_queue
        self.plans_at_most = PLANS_PER_WORKER * workers
        self.now_ns = now_ns
        self.clock_ns = clock_ns
        self.mailbox = Mailbox()
        self.failure: Exception | None = None
        self.dead_points = dead_points or {}
        self.measured_every_ns = measured_every_ns
        self.steps = 0
        self.idle_turns = 0  # turns of the scheduler's own thread: they show that the turn is free now and then
        self.decision_ns = 0  # in the policy and the state
        self.decision_counts = [0] * (len(DECISION_BOUNDS_NS) + 1)
        self.storage_ns = 0  # in taking trains
        self._observer = observer
        self._on_failure = on_failure
        self._turn = Lock()
        self._stopped = Stopped()
        self._claims = Claims(state, storage)
        self._decided_ns = 0  # the time by which the last decision was made
        self._refresh_ns = 0  # when the statistics are read next; 0: never yet
        self._prompt = [bool(getattr(node.box, "is_prompt", False)) for node in state.network.boxes]
        state.follow(make_index(policy))

    # -- the ways to take the turn ------------------------------------------------------------------------------------

    def post(self, event: Event) -> None:
        """Tell the scheduler, and act on it if the turn is free. Any thread."""
        self.mailbox.put(event)
        self.act_on_news()

    def act_on_news(self, caller_runs: list[QueuedPlan] | None = None) -> None:
        """Take steps while the mailbox has news, unless another thread has the turn. Any thread.

        The check comes again after each release: news that came while this thread had the turn is acted on here, and
        news that comes after the last check finds the turn free. ``caller_runs`` gets at most one short plan, which the
        caller then runs itself: for a few tuples through prompt boxes that costs less than waking a worker.
        """
        while self.mailbox.has_news and self._turn.acquire(blocking=False):
            self._step_and_release(caller_runs)

    def acquire_if_idle(self, unit: int) -> bool:
        """Take the turn for the idle fast path if nothing waits, runs or is to be read, and ``unit`` may run.

        There is nothing to decide then: every policy would run that unit. On True the caller has the turn, runs the
        unit and calls ``release``. On False it announces its train as usual. The I/O thread.
        """
        if not self._turn.acquire(blocking=False):
            return False
        begun_ns = self.clock_ns()
        state, mailbox = self.state, self.mailbox
        # The ends of plans may be all that there is to read: then nothing runs.
        ended = len(mailbox) == state.outstanding == mailbox.finished()
        if not ended or not state.leaves_no_choice():
            self._turn.release()
            return False
        for event in mailbox.drain():
            state.apply(event)
        if state.outstanding or state.held[unit] or not state.leaves_no_choice():  # more came since the check
            self._step_and_release()
            return False
        mailbox.has_plan_room = mailbox.queues_are_empty = True
        self._count_decision(self.clock_ns() - begun_ns)
        return True

    def release(self) -> None:
        """Give back the turn that ``acquire_if_idle`` took."""
        self._turn.release()

    def run(self) -> None:
        """Take a step 50 times a second: statistics move and deadlines come nearer without any event.

        The scheduler's own thread.
        """
        while not self._stopped.wait(TURN_EVERY_S):
            if self._turn.acquire(blocking=False):
                self.idle_turns += 1
                self._step_and_release()
                self.act_on_news()

    def drain_mailbox(self) -> None:
        """Take a step even if the mailbox holds only events that change nothing now. Any thread."""
        if not self.mailbox.is_empty and self._turn.acquire(blocking=False):
            self._step_and_release()
            self.act_on_news()

    @contextmanager
    def paused(self, timeout_s: float = 10.0) -> Iterator[None]:
        """Keep the turn: inside, nothing is decided and nothing is taken from the queues. Dispatched plans still run.

        Any thread that may wait.
        """
        if not self._turn.acquire(timeout=timeout_s):
            raise TimeoutError(f"the scheduler's turn did not become free within {timeout_s:.0f} s")
        try:
            yield
        finally:
            self._turn.release()
            self.act_on_news()

    def follow(self, policy: Policy) -> None:
        """Decide by another policy from the next step on. Any thread that may wait and does not have the turn."""
        with self._turn:
            self.policy = policy
            self.state.follow(make_index(policy))

    def stop(self) -> None:
        """Take the turn for good: no step after this. Tuples that wait stay on their queues."""
        self._stopped.set()
        if self.failure is None:  # else the turn is kept already
            self._turn.acquire()

    @property
    def is_resting(self) -> bool:
        """No thread has the turn and nothing is to be read."""
        return self.mailbox.is_empty and not self._turn.locked()

    # -- a step: everything below runs on the thread that has the turn -------------------------------------------------

    def _step_and_release(self, caller_runs: list[QueuedPlan] | None = None) -> None:
        try:
            self.step(caller_runs)
        except Exception as error:  # noqa: BLE001
            # A policy or the state is broken: nothing may be decided on it any more, so the turn is kept. The thread
            # that happens to be here (the I/O thread, a worker) is not at fault and goes on.
            self.failure = error
            self._on_failure(error)
        else:
            self._turn.release()

    def step(self, caller_runs: list[QueuedPlan] | None = None) -> None:
        """Read the mailbox, then fill the execution queue."""
        state, apply = self.state, self.state.apply
        begun_ns = self.clock_ns()
        now_ns = self.now_ns()
        for event in self.mailbox.drain():
            apply(event)
        while state.outstanding < self.plans_at_most:
            plan = self.decide(now_ns)
            if plan is None:
                break
            decided_ns = self.clock_ns()
            self.dispatch(plan, caller_runs)
            self._count_decision(decided_ns - begun_ns)
            begun_ns = self.clock_ns()
            self.storage_ns += begun_ns - decided_ns
        self.mailbox.has_plan_room = state.outstanding < self.plans_at_most
        self.mailbox.queues_are_empty = not state.waiting_trains
        self.decision_ns += self.clock_ns() - begun_ns

    def decide(self, now_ns: int) -> Plan | None:
        """Ask the policy for a plan."""
        state = self.state
        self._decided_ns = now_ns
        if now_ns >= self._refresh_ns:
            self._refresh(now_ns)
        if not state.ready:  # the policy has no unit to choose from
            return None
        if state.index is not None:
            state.apply(Clock(now_ns))
        return self.policy(state, now_ns)

    def dispatch(self, plan: Plan, caller_runs: list[QueuedPlan] | None = None) -> None:
        """Take the plan's trains, and hand it to the workers or to the caller."""
        observer = self._observer if self._observer is not None and self._observer.waiting else None
        if observer is not None:
            observer.note_decision(plan, self._priority(plan), self._decided_ns)
        self.state.apply(Dispatched(plan))
        claims = self._claims.take(plan, self._decided_ns)
        if observer is not None:
            observer.note_claims(plan, claims, self._decided_ns)
        work = QueuedPlan(plan, claims)
        if caller_runs is not None and not caller_runs and self._is_short(work):
            caller_runs.append(work)
        else:
            self.execution_queue.put(work)

    def _is_short(self, work: QueuedPlan) -> bool:
        """Return whether a plan has few tuples and only boxes that finish at once."""
        assert work.plan is not None
        tuples = sum([t.count for claim in work.claims.values() for t in claim.trains])
        return tuples <= SHORT_TUPLES and all(map(self._prompt.__getitem__, work.plan.boxes))

    def _priority(self, plan: Plan) -> Any:
        """Return the key by which the policy chose, if it keeps an order: that of the first box that the plan takes
        from."""
        index = self.state.index
        return None if index is None or not plan.claims else index.urgency(plan.claims[0].box)

    def _count_decision(self, decision_ns: int) -> None:
        self.steps += 1
        self.decision_ns += decision_ns
        self.decision_counts[decision_bucket(decision_ns)] += 1

    def _refresh(self, now_ns: int) -> None:
        """Read what changes without an event: the statistics, and whether storage has room."""
        state = self.state
        begun_ns = self.clock_ns()
        if self._refresh_ns:
            state.apply(StatisticsMoved())
        points = self.dead_points
        self._claims.hopeless_ns = hopeless_ages_ns(points, state.facts.paths_ns, state.network) if points else {}
        self._refresh_ns = now_ns + max(self.measured_every_ns, MEASURED_SHARE * (self.clock_ns() - begun_ns))
        if state.memory_short == self.storage.has_room:
            state.apply(MemoryShort(not self.storage.has_room))
        if self.storage.wants_rank:
            self.storage.rank(ranked_arcs(state))
