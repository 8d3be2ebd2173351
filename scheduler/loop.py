"""The scheduler at work: drain events, apply them, ask the policy, claim trains, put the plan on the execution queue.

Deciding is the policy's; this file only does. One thread at a time has the scheduler's *turn*, and only it touches the
state or takes from the queues. The scheduler's own thread takes a turn some times a second, for what time alone
changes; otherwise whoever brings news (the I/O thread with a train, a worker with a finished plan) takes the turn right
there, if it is free, and whoever has it looks for more news before it goes. Handing a train to a sleeping thread costs
30 us and more under Python's lock; this way a tuple changes threads twice on its way through, and a worker that is done
finds its next plan without waiting for anyone. A thread that brings a few tuples may offer to run what they lead to
by itself (``here``): a plan of few tuples through boxes that are done at once costs less than waking a worker.

The execution queue stays short (two plans a worker), so that decisions are fresh: a plan that waits behind ten others
was decided on a state that is gone.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from queue import SimpleQueue
from threading import Event as Ended
from threading import Lock
from typing import Any, NamedTuple, Protocol

from catalog.readings import DECISION_BOUNDS_NS, decision_bucket
from scheduler.deadlines import dead_at_head, give_up_ns
from scheduler.events import Claimed, Clock, Dispatched, Event, Expired, Measured, MemoryShort
from scheduler.mailbox import Mailbox
from scheduler.plan import Plan
from scheduler.policies import Policy, make_index
from scheduler.ranks import ranked_arcs
from scheduler.state import SchedulerState
from storage.plants import planted
from storage.train import Train

log = logging.getLogger("aurorad.scheduler")

PLANS_PER_WORKER = 2
TURN_EVERY_S = 0.02
SHORT_TUPLES = 128
MEASURED_EVERY_NS = 1_000_000_000
"""How often priorities are drawn anew from the statistics: they move within seconds, and it costs all boxes ..."""
MEASURED_SHARE = 100
"""... so that in a large network it may take a hundredth of the time, and no more."""


class Claim(NamedTuple):
    """Trains taken from an arc for a plan. ``emptied``: nothing was left, so later tuples may bypass the queue."""

    trains: list[Train]
    emptied: bool


class Work(NamedTuple):
    """An entry of the execution queue. ``plan`` None tells a worker to end."""

    plan: Plan | None
    claims: dict[int, Claim]  # by arc


class Storage(Protocol):
    """What the loop needs of the storage manager."""

    @property
    def has_room(self) -> bool: ...

    @property
    def cut_arcs(self) -> int:
        """How many arcs have a part on disk."""

    @property
    def wants_rank(self) -> bool: ...

    def is_cut(self, arc: int) -> bool: ...

    def rank(self, arcs: Sequence[int]) -> None:
        """What the policy puts last is what goes to disk first."""

    def take(self, arc: int, tuples: int, trains: int) -> tuple[list[Train], int, int]: ...

    def expire(self, arc: int, tuples: int, trains: int) -> tuple[list[Train], int, int]:
        """Drop this many from the head; what must still reach the box (a watermark), tuples dropped, trains gone."""


class Observer(Protocol):
    """Who wants to know which decisions passed a tuple over, and which one took it."""

    waiting: dict[int, Any]  # the arcs on which such a tuple waits

    def decided(self, plan: Plan, priority: Any, now_ns: int) -> None: ...

    def claimed(self, plan: Plan, claims: Mapping[int, Claim], now_ns: int) -> None: ...


class SchedulerLoop:
    """Owner of the SchedulerState: whoever has the turn. ``run`` is the scheduler's thread; others ``post``."""

    def __init__(
        self,
        state: SchedulerState,
        policy: Policy,
        storage: Storage,
        execution_queue: SimpleQueue[Work],
        workers: int,
        now_ns: Callable[[], int],
        clock_ns: Callable[[], int],
    ) -> None:
        self.state = state
        self.policy = policy
        self.storage = storage
        self.execution_queue = execution_queue
        self.plans_at_most = PLANS_PER_WORKER * workers
        self.now_ns = now_ns  # wall clock: what arrival stamps are in
        self.clock_ns = clock_ns  # monotonic: for our own costs
        self.mailbox = Mailbox()
        self._turn = Lock()
        self._ended = Ended()
        self.failure: Exception | None = None
        self.on_failure: Callable[[Exception], None] = _log_failure
        self.observer: Observer | None = None
        self.steps = 0
        self.decision_ns = 0  # in the policy and the state
        self.decision_counts = [0] * (len(DECISION_BOUNDS_NS) + 1)
        self.storage_ns = 0  # in claiming trains
        self.measured_every_ns = MEASURED_EVERY_NS
        self._look_ns = 0  # when to look around next
        self.dead_points: Mapping[int, Sequence[tuple[int, int]]] = {}  # by arc: output and delay from which it is late
        self._give_up_ns: dict[int, int] = {}  # by arc: age from which on no output can be reached in time
        self._decided_ns = 0  # the time that the last decision went by
        self._prompt = [bool(getattr(node.box, "is_prompt", False)) for node in state.network.boxes]
        state.follow(make_index(policy))

    # -- whose turn it is -------------------------------------------------------------------------------------------

    def post(self, event: Event) -> None:
        """News for the scheduler. Any thread; it may be the one that acts on it."""
        self.mailbox.put(event)
        self.take_turn()

    def take_turn(self, here: list[Work] | None = None) -> None:
        """Act on what is in the mailbox, unless another thread is at it: it looks once more before it goes.

        ``here`` gets at most one short plan that the caller will run itself.
        """
        while self.mailbox.has_news and self._turn.acquire(blocking=False):
            self._step_and_release(here)

    def begin_rest(self, unit: int) -> bool:
        """Take the turn if nothing waits, runs or is to be read, so that there is nothing to decide, and ``unit`` is
        free. Whoever gets it may run that unit, and gives the turn back with ``end_rest``; whoever does not brings
        news, and looks again for a turn with it."""
        if not self._turn.acquire(blocking=False):
            return False
        begun_ns = self.clock_ns()
        state, mailbox = self.state, self.mailbox
        # Plans that have ended may be all that there is to read: then nothing runs.
        ended = len(mailbox) == state.outstanding == mailbox.finished()
        if not ended or not self._leaves_no_choice():
            self._turn.release()
            return False
        for event in mailbox.drain():
            state.apply(event)
        if state.outstanding or state.held[unit] or not self._leaves_no_choice():  # more came while we looked
            self._step_and_release()
            return False
        mailbox.is_hungry = mailbox.is_idle = True
        self.steps += 1
        decided_ns = self.clock_ns() - begun_ns
        self.decision_ns += decided_ns
        self.decision_counts[decision_bucket(decided_ns)] += 1
        return True

    def _leaves_no_choice(self) -> bool:
        state = self.state
        return not (state.waiting_trains or state.memory_short or (state.index is not None and state.index.learns))

    def end_rest(self) -> None:
        self._turn.release()

    def run(self) -> None:
        """The scheduler's thread: statistics move and deadlines come nearer also when nobody posts."""
        while not self._ended.wait(TURN_EVERY_S):
            if self._turn.acquire(blocking=False):
                self._step_and_release()
                self.take_turn()

    @contextmanager
    def held(self, timeout_s: float = 10.0) -> Iterator[None]:
        """Inside, nothing is decided and nothing taken from the queues. What was dispatched before still runs."""
        if not self._turn.acquire(timeout=timeout_s):
            raise TimeoutError(f"the scheduler's turn did not come within {timeout_s:.0f} s")
        try:
            yield
        finally:
            self._turn.release()
            self.take_turn()

    def stop(self) -> None:
        """No step after this one. What still waits stays where it is."""
        self._ended.set()
        if self.failure is None:
            self._turn.acquire()  # for good

    def settle(self) -> None:
        """Read what is in the mailbox even if nothing can be done about it now."""
        if not self.mailbox.is_empty and self._turn.acquire(blocking=False):
            self._step_and_release()
            self.take_turn()

    def follow(self, policy: Policy) -> None:
        """Another policy decides from the next step on. Any thread but the one that has the turn."""
        with self._turn:
            self.policy = policy
            self.state.follow(make_index(policy))

    @property
    def is_resting(self) -> bool:
        """Nobody has the turn and nothing is to be read."""
        return self.mailbox.is_empty and not self._turn.locked()

    def _step_and_release(self, here: list[Work] | None = None) -> None:
        try:
            self.step(here)
        except Exception as error:  # noqa: BLE001
            # A policy or the state is broken: nothing may be decided on it any more, so the turn is kept. The thread
            # that happens to be here (the I/O thread, a worker) is not at fault and goes on.
            self.failure = error
            self.on_failure(error)
        else:
            self._turn.release()

    # -- a step -----------------------------------------------------------------------------------------------------

    def step(self, here: list[Work] | None = None) -> None:
        """Read the news, then fill the execution queue. With the turn only."""
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
            self.dispatch(plan, here)
            self.steps += 1
            self.decision_ns += decided_ns - begun_ns
            self.decision_counts[decision_bucket(decided_ns - begun_ns)] += 1
            begun_ns = self.clock_ns()
            self.storage_ns += begun_ns - decided_ns
        self.mailbox.is_hungry = state.outstanding < self.plans_at_most
        self.mailbox.is_idle = not state.waiting_trains
        self.decision_ns += self.clock_ns() - begun_ns

    def decide(self, now_ns: int) -> Plan | None:
        """Ask the policy."""
        state = self.state
        self._decided_ns = now_ns
        if now_ns >= self._look_ns:
            self._look_around(now_ns)
        if not state.ready:  # nobody whom the policy could choose
            return None
        if state.index is not None:
            state.apply(Clock(now_ns))
        return self.policy(state, now_ns)

    def dispatch(self, plan: Plan, here: list[Work] | None = None) -> None:
        """Take what the plan asks for and hand it to the workers, or to the caller who offered."""
        state = self.state
        claims: dict[int, Claim] = {}
        observer = self.observer if self.observer is not None and self.observer.waiting else None
        if observer is not None:
            observer.decided(plan, self._priority(plan), self._decided_ns)
        state.apply(Dispatched(plan))
        for a, tuples in plan.expired:
            left, dropped, whole = self.storage.expire(a, tuples, len(state.arcs[a].entries))
            state.apply(Expired(a, dropped, whole))
            claims[a] = Claim(left, not state.arcs[a].entries)
        if self._give_up_ns:
            self._give_up(plan, claims)
        takes = plan.takes
        for box, limit in plan.claims:
            for a in state.network.boxes[box].in_arcs:
                arc = state.arcs[a]
                if arc.entries:
                    tuples = limit if takes is None else takes.get(a, 0)
                    # Never more than the state knows of: a train may be in storage whose event is still on its way.
                    trains, taken, whole = self.storage.take(a, min(tuples, arc.tuples), len(arc.entries))
                    state.apply(Claimed(a, taken, whole))
                    if a in claims:
                        trains = claims[a].trains + trains
                    claims[a] = Claim(trains, not arc.entries)
        if self.storage.cut_arcs:
            self._stop_at_disk(plan, claims)
        if observer is not None:
            observer.claimed(plan, claims, self._decided_ns)
        work = Work(plan, claims)
        if here is not None and not here and self._is_short(work):
            here.append(work)
        else:
            self.execution_queue.put(work)

    def _give_up(self, plan: Plan, claims: dict[int, Claim]) -> None:
        """Before a plan takes its tuples: those at the head that will not reach any output in time are dropped."""
        state = self.state
        for box, _ in plan.claims:
            for a in state.network.boxes[box].in_arcs:
                limit_ns = self._give_up_ns.get(a)
                if limit_ns is None or not (entries := state.arcs[a].entries):
                    continue
                dead = dead_at_head(entries, self._decided_ns - limit_ns)
                if dead:
                    left, dropped, whole = self.storage.expire(a, min(dead, state.arcs[a].tuples), len(entries))
                    state.apply(Expired(a, dropped, whole))
                    before = claims[a].trains if a in claims else []
                    claims[a] = Claim(before + left, not state.arcs[a].entries)

    def _priority(self, plan: Plan) -> Any:
        """What the policy went by, as far as it keeps an order: that of the first box the plan takes from."""
        index = self.state.index
        return None if index is None or not plan.claims else index.urgency(plan.claims[0].box)

    def _is_short(self, work: Work) -> bool:
        """Few tuples through boxes that are done at once."""
        assert work.plan is not None
        tuples = sum([t.count for claim in work.claims.values() for t in claim.trains])
        return tuples <= SHORT_TUPLES and all(map(self._prompt.__getitem__, work.plan.boxes))

    def _stop_at_disk(self, plan: Plan, claims: dict[int, Claim]) -> None:
        """A superbox ends at a queue of which a part is on disk: what went past it would overtake that part."""
        for box in plan.boxes:
            for a in self.state.network.boxes[box].in_arcs:
                if self.storage.is_cut(a) and not planted("spill_overtakes"):
                    claims[a] = Claim(claims[a].trains if a in claims else [], False)

    def _look_around(self, now_ns: int) -> None:
        """What changes by itself: the statistics, and whether there is room."""
        state = self.state
        begun_ns = self.clock_ns()
        if self._look_ns:
            state.apply(Measured())
        points = self.dead_points
        self._give_up_ns = give_up_ns(points, state.facts.paths_ns, state.network) if points else {}
        self._look_ns = now_ns + max(self.measured_every_ns, MEASURED_SHARE * (self.clock_ns() - begun_ns))
        if state.memory_short == self.storage.has_room:
            state.apply(MemoryShort(not self.storage.has_room))
        if self.storage.wants_rank:
            self.storage.rank(ranked_arcs(state))


def _log_failure(error: Exception) -> None:
    log.critical("the scheduler failed and decides nothing any more", exc_info=error)
