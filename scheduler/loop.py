"""The scheduler's loop: read the mailbox, ask the policy, take the trains, put the plan on the execution queue.

Deciding is the policy's; this file only acts. ``run`` is the loop of the scheduler's thread, and ``step`` is what it
does each time, from top to bottom. Whenever anything waits, the plan comes from this thread and goes through the
execution queue, where a worker finds it without asking.

Waking a thread costs 30 us and more under the GIL. Three things make it rare:

- The execution queue is filled ahead: two plans a worker, more while they are short (``AHEAD_NS``), and none while they
  are long (``LONG_PLAN_NS``). A worker that ends a plan takes the next one at once. The scheduler's thread fills the
  queue again when little work is left in it (``LEFT_NS``). The queue is not longer, so that decisions are fresh: a plan
  that waits behind ten long ones was decided on a state that is gone.
- An event that changes nothing now wakes nobody (``mailbox``). One step reads all events since the last one.
- The idle fast path (``engine/run/idle_path``): a few tuples that find the engine at rest leave no choice, so they need
  no decision.

The *turn* is the lock on the state. The thread that has it is the only one that touches the state or takes from the
queues. The ways to take it, from the most frequent to the rarest:

- ``run``: the scheduler's thread, when it is woken. While anything waits or runs also 50 times a second, for what time
  alone changes; at rest never.
- ``acquire_if_idle`` ... ``release``: the I/O thread, which runs a train on the idle fast path and keeps the turn
  meanwhile. Fails while another thread has the turn, or when there is anything to decide.
- ``drain_mailbox``: a measurement, or a test, that cannot wait for ``run``.
- ``paused``: a checkpoint, or a thread that copies the state.
- ``follow``: a thread that changes the policy.
- ``stop``: the thread that stops the engine. No step is taken after it.

Refused: the thread that brings news takes the turn and decides. That saves one wake-up for each plan, but every thread
of the engine then runs the policy, and no thread can be pointed at when decisions are slow.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from math import ceil
from queue import Empty, SimpleQueue
from threading import Lock
from typing import Any, Protocol

from catalog.readings import DECISION_BOUNDS_NS, decision_bucket
from scheduler.claims import Claim, Claims, QueuedPlan, Storage
from scheduler.deadlines import hopeless_ages_ns
from scheduler.events import Clock, Dispatched, Enqueued, Event, Finished, MemoryShort, StatisticsMoved
from scheduler.mailbox import Mailbox
from scheduler.plan import Plan
from scheduler.policies import Policy, make_index
from scheduler.ranks import ranked_arcs
from scheduler.staffing import Staffing
from scheduler.state import UNMEASURED_NS, SchedulerState

log = logging.getLogger("aurorad.scheduler")

PLANS_PER_WORKER = 2
PLANS_AT_MOST = 64  # a worker
AHEAD_NS = 4_000_000
"""The execution queue holds this much work for each worker, as its plans have taken lately, and at least
``PLANS_PER_WORKER`` plans. To wake the scheduler's thread takes 40 to 90 us from a worker, because both need the GIL.
With two plans of 0.4 ms each, a wake-up for every plan took a tenth of the throughput; with 1.6 ms of work it took a
twentieth, with 3.2 ms it is lost in the noise."""
AHEAD_SHARE = 0.02
LEAST_AHEAD_NS = 1_000_000
"""Where a deadline is tight, the queue holds only this share of it, so that an urgent tuple does not wait long behind
decisions of the past; but not less than 1 ms."""
LEFT_NS = 1_000_000
"""The queue is filled again when less than this is left for each worker: the scheduler's thread may wait half of that
for the GIL."""

LONG_PLAN_NS = 10_000_000
"""Plans of this much work are not decided ahead. The wake-up after such a plan costs a hundredth of it; a plan that
waits behind another one of 40 ms runs by a choice that is as old. With three units that always have tuples, two plans a
worker made a round robin of every policy."""

STEP_EVERY_S = 0.02
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
    ``ahead_ns``: the work that is on the execution queue for each worker at most, if two plans are less; 0: two plans.
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
        ahead_ns: int = AHEAD_NS,
    ) -> None:
        self.state = state
        self.policy = policy
        self.storage = storage
        self.execution_queue = execution_queue
        self.staff(workers)
        self.staffing: Staffing | None = None  # decides how many workers there are; None: always the same number
        self.ahead_ns = ahead_ns  # for each worker; a tight deadline shortens it
        self.refill_at = 0  # while the queue is full: it is filled again when this many plans are left
        self.now_ns = now_ns
        self.clock_ns = clock_ns
        self.mailbox = Mailbox(state.arc_unit, state.held)
        self.failure: Exception | None = None
        self.dead_points = dead_points or {}
        self.measured_every_ns = measured_every_ns
        self.steps = 0
        self.idle_plans = 0  # of these, on the idle fast path
        self.turns = 0  # of the scheduler's own thread: they show that it is alive
        self.decision_ns = 0  # in the policy and the state
        self.decision_counts = [0] * (len(DECISION_BOUNDS_NS) + 1)
        self.storage_ns = 0  # in taking trains
        self._observer = observer
        self._on_failure = on_failure
        self._turn = Lock()
        self._bell: SimpleQueue[None] = SimpleQueue()  # wakes the scheduler's thread
        self._is_asleep = False  # the scheduler's thread waits for the bell
        self._is_over = False  # stopped or failed; changed only with the turn
        self._claims = Claims(state, storage)
        self._ahead_at_most_ns = ahead_ns
        self._decided_ns = 0  # the time by which the last decision was made
        self._refresh_ns = 0  # when the statistics are read next; 0: never yet
        state.follow(make_index(policy))

    def staff(self, workers: int) -> None:
        """Fill the execution queue for this many workers."""
        self.workers = workers
        self.plans_at_least = PLANS_PER_WORKER * workers
        self.plans_at_most = PLANS_AT_MOST * workers

    # -- any thread ---------------------------------------------------------------------------------------------------

    def post(self, event: Event) -> None:
        """Tell the scheduler. Any thread."""
        self.mailbox.put(event)
        self.wake()

    def wake(self) -> None:
        """Wake the scheduler's thread if it sleeps and the mailbox has news. Any thread.

        Two threads may both find it asleep and ring twice: the scheduler's thread then takes one step for nothing.
        """
        if self._is_asleep and self.mailbox.has_news:
            self._is_asleep = False
            self._bell.put(None)

    @property
    def is_resting(self) -> bool:
        """No thread has the turn and nothing is to be read."""
        return self.mailbox.is_empty and not self._turn.locked() and self.failure is None

    # -- the scheduler's thread ---------------------------------------------------------------------------------------

    def run(self) -> None:
        """Sleep until there is news, then take a step, until ``stop``.

        Statistics move and deadlines come nearer without any event, so the sleep has an end while anything waits, runs
        or is to be read. At rest it has none.
        """
        while not self._is_over:
            self._is_asleep = True
            if not self.mailbox.has_news:  # else it came before the flag was set, and rang no bell
                try:
                    self._bell.get(timeout=None if self.is_at_rest else STEP_EVERY_S)
                except Empty:
                    pass
            self._is_asleep = False
            with self._turn:
                self.turns += 1
                self._step_safely()

    # -- other threads that take the turn -----------------------------------------------------------------------------

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
        if not ended or not state.leaves_no_choice() or self._is_over:
            self._turn.release()
            return False
        for event in mailbox.drain():
            state.apply(event)
        if state.outstanding or state.held[unit] or not state.leaves_no_choice():  # more came since the check
            self._step_safely()
            self._turn.release()
            return False
        mailbox.has_plan_room = mailbox.queues_are_empty = True
        self.idle_plans += 1
        self._count_decision(self.clock_ns() - begun_ns)
        return True

    def release(self) -> None:
        """Give back the turn that ``acquire_if_idle`` took."""
        self._turn.release()

    def drain_mailbox(self) -> None:
        """Take a step now, even if the mailbox holds only events that change nothing. Any thread that may wait."""
        with self._turn:
            self._step_safely()

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

    def follow(self, policy: Policy) -> None:
        """Decide by another policy from the next step on. Any thread that may wait and does not have the turn."""
        with self._turn:
            self.policy = policy
            self.state.follow(make_index(policy))

    def retire(self) -> None:
        """Take no step after this. The caller has the turn, by ``paused``: another loop takes the queues over."""
        self._is_over = True

    def stop(self) -> None:
        """End ``run``: no step after this. Tuples that wait stay on their queues."""
        with self._turn:
            self._is_over = True
        self._bell.put(None)

    # -- a step: everything below runs on the thread that has the turn -------------------------------------------------

    def _step_safely(self) -> None:
        if self._is_over:
            return
        try:
            self.step()
        except Exception as error:  # noqa: BLE001
            # A policy or the state is broken: nothing may be decided on it any more.
            self.failure = error
            self._is_over = True
            self._on_failure(error)

    def step(self) -> None:
        """Read the mailbox, then fill the execution queue."""
        state, mailbox = self.state, self.mailbox
        begun_ns = self.clock_ns()
        now_ns = self.now_ns()
        self._read_mailbox()
        if self.staffing is not None:
            self.staffing.look(begun_ns, state.unit_tuple_ns, not mailbox.has_plan_room or bool(state.ready))
        while not self.is_queue_full:
            plan = self.decide(now_ns)
            if plan is None:
                break
            decided_ns = self.clock_ns()
            self.dispatch(plan)
            self._count_decision(decided_ns - begun_ns)
            begun_ns = self.clock_ns()
            self.storage_ns += begun_ns - decided_ns
        self.note_room()
        mailbox.queues_are_empty = not state.waiting_trains
        self.decision_ns += self.clock_ns() - begun_ns

    def note_room(self) -> None:
        """Note whether the execution queue has room, and when to fill it again if it has none."""
        outstanding, mailbox = self.state.outstanding, self.mailbox
        is_full, index = self.is_queue_full, self.state.index
        mailbox.has_plan_room = not is_full or (index is not None and index.may_interrupt)
        if is_full:
            left_ns = min(LEFT_NS, self.ahead_ns / 4) * self.workers
            left = ceil(left_ns * outstanding / max(self.state.outstanding_ns, 1.0))
            self.refill_at = min(max(left, self.workers), outstanding - 1)
            mailbox.refill_after = outstanding - self.refill_at

    def _read_mailbox(self) -> None:
        """Apply all events. Read once more after the end of a plan: a train that came for its unit just before the end
        was applied counted as no news."""
        apply, mailbox = self.state.apply, self.mailbox
        while True:
            events = mailbox.drain()
            for event in events:
                apply(event)
                if self.staffing is not None and type(event) is Finished:
                    self.staffing.finished(event.plan.units or (), event.plan.tuples, event.ran_ns)
            if mailbox.is_empty or all(type(event) is Enqueued for event in events):
                return

    @property
    def is_queue_full(self) -> bool:
        """Return whether the workers have enough to do until the next step."""
        state = self.state
        if state.outstanding < self.plans_at_least:
            return state.outstanding >= self.workers and self._are_long(state.outstanding_ns / state.outstanding)
        return state.outstanding_ns >= self.ahead_ns * self.workers or state.outstanding >= self.plans_at_most

    @staticmethod
    def _are_long(plan_ns: float) -> bool:
        return LONG_PLAN_NS <= plan_ns < UNMEASURED_NS

    @property
    def is_at_rest(self) -> bool:
        """Return whether nothing waits, runs or is to be read, so that nothing changes without news."""
        state = self.state
        return not state.outstanding and not state.ready and self.mailbox.is_empty

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

    def dispatch(self, plan: Plan) -> None:
        """Take the plan's trains, and put the plan on the execution queue."""
        observer = self._observer if self._observer is not None and self._observer.waiting else None
        if observer is not None:
            observer.note_decision(plan, self._priority(plan), self._decided_ns)
        self.state.apply(Dispatched(plan))
        claims = self._claims.take(plan, self._decided_ns)
        if observer is not None:
            observer.note_claims(plan, claims, self._decided_ns)
        self.execution_queue.put(QueuedPlan(plan, claims))

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
        share_ns = int(state.facts.tightest_ns * AHEAD_SHARE)
        self.ahead_ns = min(self._ahead_at_most_ns, max(LEAST_AHEAD_NS, share_ns))
        points = self.dead_points
        self._claims.hopeless_ns = hopeless_ages_ns(points, state.facts.paths_ns, state.network) if points else {}
        self._refresh_ns = now_ns + max(self.measured_every_ns, MEASURED_SHARE * (self.clock_ns() - begun_ns))
        if state.memory_short == self.storage.has_room:
            state.apply(MemoryShort(not self.storage.has_room))
        if self.storage.wants_rank:
            self.storage.rank(ranked_arcs(state))
