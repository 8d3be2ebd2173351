"""The scheduler's state: counts and times, and nothing of threads, clocks, sockets or trains.

``apply(event)`` is the only mutator. Its only caller is the thread that has the scheduler's turn (in the simulator, the
simulation). Policies read the state and decide. The same events in the same order give the same state, so a test, the
daemon and the simulator see the same scheduler.

A *unit* is scheduled as a whole: a box, or a superbox. A unit is *ready* when tuples wait for one of its boxes and
nothing holds it: it is in no plan that runs, and no output that it feeds is blocked. ``ready`` keeps the units in the
order in which they became ready. A box with windows may have to wait for a window's worth of tuples first (``unripe``,
off by default). Neither the state nor the cost of a step grows with the number of idle boxes.

A policy that needs another order has an *index* (``scheduler/index``), which the state keeps up to date.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from catalog.load import LoadModel
from catalog.network import Network
from catalog.stats import Statistics
from scheduler.events import (
    Claimed,
    Clock,
    Dispatched,
    Enqueued,
    Event,
    Expired,
    Finished,
    MemoryShort,
    MissedShares,
    OutputBlocked,
    OutputFreed,
    StatisticsMoved,
)
from scheduler.facts import INFINITE_NS, Facts
from scheduler.index import Index
from scheduler.plan import Plan
from scheduler.superbox import Superbox, lines, static_superboxes
from scheduler.trains import TrainRule, TrainTuner, auto_tuples
from scheduler.tuner import spanner_of, spanner_tuner
from scheduler.window_worth import WindowWorth
from storage.train import NO_WATERMARK

UNMEASURED_NS = 1e9  # no plan of the unit has ended yet
MEASURE_GAIN = 0.25  # of the latest plan in the time of a tuple


@dataclass(frozen=True, slots=True)
class BatchRule:
    """Batches of tasks with a deadline (P4): their length, and the controller of how many run at once."""

    basic_ns: int = 100_000_000  # phi: deadlines closer than this count as the same
    k: int = 1  # basic batches in one scheduling batch: fixed (bts), or at the start (ats)
    proportional: float = 1.0  # Kp
    integral: float = 10.0  # Ki
    interval_ns: int = 0  # the shortest interval between two readings of the controller; 0: from plan to plan
    step_ns: int = 50_000  # C_sched: what a scheduling step costs
    window: float = 0.0  # phi_w: the error that a window's hop may have, as a share of the hop
    # Off unless the network file asks for them, on in the experiments of P4 (``batches``):
    whole: bool = False  # a basic batch waits until its interval is over
    overdue: bool = False  # every policy of deadlines drops the tasks whose deadline is over
    total: bool = False  # the controller's SDMR is that of the whole run, and dropped tasks count as missed


@dataclass(frozen=True, slots=True)
class SchedulerSettings:
    """The section ``scheduler`` of the network file, without the policy."""

    unit: str = "superbox"  # tuple | box | superbox | vpipe
    traversal: str = "min_cost"  # min_cost | min_latency | min_memory | auto
    train: TrainRule = field(default_factory=TrainRule)
    spanner: int = 0  # a superbox spans only the k most urgent boxes of an application; 0: all of them
    grid: int = 20  # parts into which qos_buckets divides losses and slacks
    batch: BatchRule = field(default_factory=BatchRule)
    window_worth: bool = False  # boxes with windows wait for a window's worth of tuples (``window_worth``)
    tune: frozenset[str] = frozenset()  # grid, spanner, controller: tuned while the engine runs (``tuner``)
    idle_fast_path: bool = True  # a few tuples that find the engine at rest need no decision
    seed: int = 0  # of the policy `random`


class ArcState:
    """The tuples that wait on one arc, as far as events have said."""

    __slots__ = ("arrival_total_ns", "entries", "nbytes", "tuples")

    def __init__(self) -> None:
        self.entries: deque[Enqueued] = deque()  # one a train, oldest first; the head may be partly taken
        self.tuples = 0
        self.nbytes = 0
        self.arrival_total_ns = 0  # summed over the tuples: the mean wait then costs nothing to read


class SchedulerState:
    """``statistics`` is only read; without it the declared costs and selectivities count."""

    def __init__(
        self, network: Network, settings: SchedulerSettings | None = None, statistics: Statistics | None = None
    ) -> None:
        self.network = network
        self.settings = settings or SchedulerSettings()
        is_line = self.settings.unit == "vpipe"
        self.superboxes: tuple[Superbox, ...] = lines(network) if is_line else static_superboxes(network)
        self.arcs = [ArcState() for _ in network.arcs]
        boxes = len(network.boxes)
        self.unit_of = list(range(boxes))  # box -> its unit
        self.unit_boxes: list[tuple[int, ...]] = [(b,) for b in range(boxes)]
        if self.settings.unit in ("superbox", "vpipe"):
            self.unit_boxes = [s.boxes for s in self.superboxes]
            for superbox in self.superboxes:
                for box in superbox.boxes:
                    self.unit_of[box] = superbox.number
        self.waiting = [0] * boxes  # trains on the inputs of each box
        self.unit_live: list[dict[int, None]] = [{} for _ in self.unit_boxes]  # boxes with something to do, by unit
        self._worth = WindowWorth(network) if self.settings.window_worth else None
        self.unripe: dict[int, None] = {}  # boxes that wait for a window's worth; in no unit_live
        self.held = [0] * len(self.unit_boxes)  # reasons why a unit may not run: plans under way, blocked outputs
        self.ready: dict[int, None] = {}  # units, in the order in which they became ready
        self.outstanding = 0  # plans dispatched and not finished
        self.outstanding_ns = 0.0  # for which these plans will keep workers
        self.unit_tuple_ns = [UNMEASURED_NS] * len(self.unit_boxes)  # a worker's time for one tuple, measured lately
        self.dispatched = 0  # plans since the start
        self.traversed = dict.fromkeys(("min_cost", "min_latency", "min_memory"), 0)  # of these, by traversal
        self.waiting_tuples = 0  # on all arcs to boxes
        self.waiting_trains = 0  # on all arcs to boxes, punctuations included
        self.memory_short = False
        self.spanner = self.settings.spanner  # as set, or as tuned
        self._spanner_tuner = spanner_tuner(self.spanner) if "spanner" in self.settings.tune else None
        self.is_plain = self._is_plain()  # a plan for one busy box does not depend on how much waits
        self.index: Index | None = None
        self._last = Plan(())  # the plan that was dispatched last
        self._consumer = [-1 if arc.box is None else arc.box for arc in network.arcs]
        self.arc_unit = [-1 if arc.box is None else self.unit_of[arc.box] for arc in network.arcs]  # the unit behind it
        self._units_of_output = [self._feeding_units(output.arc) for output in network.outputs]
        # Plans by the busy boxes of a unit, where a plan depends on nothing else; emptied when the statistics change.
        self.plans: dict[frozenset[int] | int, Plan] = {}
        self._within: dict[int, tuple[int, ...]] = {}  # D(b) inside its unit, by box, as asked for
        self._statistics = statistics if statistics is not None else Statistics(network)
        self._load = LoadModel(network)
        self._tuner = TrainTuner()
        self._compute_facts()

    def follow(self, make_index: Callable[[SchedulerState], Index | None]) -> None:
        """Let a policy take over: build the index that it needs from the tuples that wait now."""
        self.index = make_index(self)

    # -- the only mutator --------------------------------------------------------------------------------------------

    def apply(self, event: Event) -> None:
        """Change the state by one event."""
        kind = type(event)
        if kind is Enqueued:
            self._enqueued(event)  # type: ignore[arg-type]
        elif kind is Claimed:
            self._claimed(*event)
        elif kind is Clock:
            if self.index is not None:
                self.index.clock(event.now_ns)  # type: ignore[union-attr]
        elif kind is Dispatched:
            self._dispatched(event.plan)  # type: ignore[union-attr]
        elif kind is Finished:
            self._finished(*event)
        else:
            self._apply_rare(event)

    def _dispatched(self, plan: Plan) -> None:
        self.outstanding += 1
        self.dispatched += 1
        self._last = plan
        plan.tuples, plan.work_ns, plan.rival = 0, 0.0, 0.0
        plan.priorities, plan.is_begun = None, False
        self.traversed[plan.traversal] += 1
        if self.index is not None:
            self.index.dispatched(plan)
        for unit in plan.units or self._units_of(plan):
            self._hold(unit)

    def _finished(self, plan: Plan, ran_ns: int) -> None:
        self.outstanding -= 1
        self.outstanding_ns = self.outstanding_ns - plan.work_ns if self.outstanding else 0.0
        if self.index is not None:
            self.index.finished(plan)
        units = plan.units or self._units_of(plan)
        if ran_ns:
            self._measure(units, ran_ns / max(plan.tuples, 1))
        for unit in units:
            self._release(unit)
        if self.unripe and not self.ready and not self.outstanding:
            self._ripen()

    def _measure(self, units: tuple[int, ...], tuple_ns: float) -> None:
        """Note how long a worker took for a tuple of these units. The latest plans count most."""
        known = self.unit_tuple_ns
        for unit in units:
            old_ns = known[unit]
            known[unit] = tuple_ns if old_ns == UNMEASURED_NS else old_ns + (tuple_ns - old_ns) * MEASURE_GAIN

    def _apply_rare(self, event: Event) -> None:
        if isinstance(event, OutputBlocked):
            for unit in self._units_of_output[event.output]:
                self._hold(unit)
        elif isinstance(event, OutputFreed):
            for unit in self._units_of_output[event.output]:
                self._release(unit)
        elif isinstance(event, Expired):
            self._expired(event)
        elif isinstance(event, StatisticsMoved):
            self._compute_facts()
            if self.index is not None:
                self.index.refresh()
        elif isinstance(event, MissedShares):
            held = [m for m, ok in zip(event.missed, self.facts.feasible, strict=True) if ok]
            if self._tuner.outcome(held, self._has_backlog()):
                self._tune()
            self._observe_missed([m for m in event.missed if m >= 0])
        else:
            assert isinstance(event, MemoryShort), event
            self.memory_short = event.short
            self.is_plain = self._is_plain()
            if event.short:
                self._ripen()

    def _observe_missed(self, shares: Sequence[float]) -> None:
        """Tell what tunes itself of the mean share of missed deadlines, over the outputs that got tuples."""
        if not shares or not self.settings.tune:
            return
        share = sum(shares) / len(shares)
        if self._spanner_tuner is not None and self._spanner_tuner.observe(share):
            self.spanner = spanner_of(self._spanner_tuner.value)
        if self.index is not None:
            self.index.missed(share)

    def _enqueued(self, event: Enqueued) -> None:
        arcs, tuples, _, mean_arrival_ns, nbytes, watermark_ns = event
        # One event may be for two hundred arcs: look up once what is the same for all of them.
        states, consumer, waiting, held, index = self.arcs, self._consumer, self.waiting, self.held, self.index
        worth, unripe = self._worth, self.unripe
        arrival_total_ns = mean_arrival_ns * tuples
        self.waiting_trains += len(arcs)
        self.waiting_tuples += tuples * len(arcs)
        for a in arcs:
            arc = states[a]
            arc.entries.append(event)
            arc.tuples += tuples
            arc.nbytes += nbytes
            arc.arrival_total_ns += arrival_total_ns
            box = consumer[a]
            waiting[box] += 1
            if worth is not None and box in worth:
                worth.came(box, watermark_ns)
                if (waiting[box] == 1 or box in unripe) and not self._is_ripe(box):
                    unripe[box] = None
                    continue
            if waiting[box] == 1 or box in unripe:
                unripe.pop(box, None)
                unit = self.unit_of[box]
                self.unit_live[unit][box] = None
                if not held[unit]:
                    self.ready[unit] = None
            if index is not None and not held[self.unit_of[box]]:
                index.list(box)
        if unripe and not self.ready and not self.outstanding:
            self._ripen()

    def _is_ripe(self, box: int) -> bool:
        """Return whether a box with windows may run: P3's window's worth, or one of the exceptions."""
        assert self._worth is not None
        return self.memory_short or self.box_tuples(box) >= self.auto_tuples[box] or self._worth.is_there(box)

    def _ripen(self) -> None:
        """Let the boxes run that wait for a window's worth."""
        for box in self.unripe:
            unit = self.unit_of[box]
            self.unit_live[unit][box] = None
            if not self.held[unit]:
                self.ready[unit] = None
                if self.index is not None:
                    self.index.list(box)
        self.unripe.clear()

    def _claimed(self, a: int, tuples: int, trains: int) -> None:
        index = self.index
        work_ns = tuples * self.unit_tuple_ns[self.arc_unit[a]]
        self._last.tuples += tuples
        self._last.work_ns += work_ns
        self.outstanding_ns += work_ns
        if index is None:
            self._take(a, tuples, trains)
            return
        first_ns = self.arcs[a].entries[0].first_arrival_ns if tuples else 0
        taken_ns = self._take(a, tuples, trains)
        box = self._consumer[a]
        if tuples:
            index.claimed(box, tuples, first_ns, taken_ns // tuples)
        if not self.held[self.unit_of[box]]:
            index.changed(box)

    def _expired(self, event: Expired) -> None:
        taken_ns = self._take(*event)
        box = self._consumer[event.arc]
        if self.index is not None:
            if event.tuples:
                self.index.expired(box, event.tuples, taken_ns // event.tuples)
            self.index.changed(box)

    def _take(self, a: int, tuples: int, trains: int) -> int:
        """Remove tuples from the head of an arc. Return the sum of their arrival times."""
        arc = self.arcs[a]
        left = tuples
        before_ns = arc.arrival_total_ns
        watermark_ns = NO_WATERMARK
        for _ in range(trains):
            entry = arc.entries.popleft()
            if entry.watermark_ns > watermark_ns:
                watermark_ns = entry.watermark_ns
            left -= entry.tuples
            arc.nbytes -= entry.nbytes
            arc.arrival_total_ns -= entry.mean_arrival_ns * entry.tuples
        assert left >= 0, f"arc {a}: {tuples} tuples of {trains} trains"
        if left > 0:  # the head was split: the rest keeps all its bytes, as the memory stays in use
            self._split_head(arc, left)
        arc.tuples -= tuples
        box = self._consumer[a]
        self.waiting_tuples -= tuples
        if trains:
            self.waiting_trains -= trains
            self.waiting[box] -= trains
            if not self.waiting[box]:
                self.unit_live[self.unit_of[box]].pop(box, None)
                self.unripe.pop(box, None)
            if self._worth is not None and box in self._worth:
                self._worth.taken(box, watermark_ns)
                if self.waiting[box] and not self._is_ripe(box):
                    self.unit_live[self.unit_of[box]].pop(box, None)
                    self.unripe[box] = None
        return before_ns - arc.arrival_total_ns

    def _split_head(self, arc: ArcState, tuples: int) -> None:
        """Remove a part of the first train. Its tuples count as evenly spaced between its first and last arrival."""
        entry = arc.entries[0]
        last_ns = 2 * entry.mean_arrival_ns - entry.first_arrival_ns
        first_ns = entry.first_arrival_ns + (last_ns - entry.first_arrival_ns) * tuples // max(1, entry.tuples - 1)
        rest = entry._replace(
            tuples=entry.tuples - tuples, first_arrival_ns=first_ns, mean_arrival_ns=(first_ns + last_ns) // 2
        )
        assert rest.tuples > 0
        arc.entries[0] = rest
        arc.arrival_total_ns += rest.mean_arrival_ns * rest.tuples - entry.mean_arrival_ns * entry.tuples

    def _hold(self, unit: int) -> None:
        self.held[unit] += 1
        if self.held[unit] == 1:
            self.ready.pop(unit, None)
            if self.index is not None:
                self.index.held(unit)

    def _release(self, unit: int) -> None:
        self.held[unit] -= 1
        assert self.held[unit] >= 0
        if not self.held[unit] and self.unit_live[unit]:
            self.ready[unit] = None
            if self.index is not None:
                self.index.freed(unit)

    def _compute_facts(self) -> None:
        self.facts = Facts(self.network, self._statistics, self._load)
        self._tune()

    def _tune(self) -> None:
        self.auto_tuples = auto_tuples(self.facts, self._tuner.scale)
        self.plans.clear()

    def _is_plain(self) -> bool:
        settings = self.settings
        fewest_calls = settings.traversal == "min_cost" or (settings.traversal == "auto" and not self.memory_short)
        return (
            settings.unit in ("box", "superbox")
            and not settings.spanner
            and "spanner" not in settings.tune
            and not settings.window_worth
            and settings.train.kind == "auto"
            and fewest_calls
        )

    @property
    def train_scale(self) -> float:
        """The factor by which the train rule `auto` has shortened trains."""
        return self._tuner.scale

    # -- reading ----------------------------------------------------------------------------------------------------

    def box_tuples(self, box: int) -> int:
        """Count the tuples that wait on the inputs of a box."""
        return sum([self.arcs[a].tuples for a in self.network.boxes[box].in_arcs])

    def waiting_arcs(self, box: int) -> Sequence[int]:
        """Return the inputs of a box on which something waits. Something waits for the box."""
        in_arcs = self.network.boxes[box].in_arcs
        return in_arcs if len(in_arcs) == 1 else [a for a in in_arcs if self.arcs[a].entries]

    def longest_input(self, box: int) -> int:
        """Count the tuples on the longest queue of a box."""
        in_arcs = self.network.boxes[box].in_arcs
        return self.arcs[in_arcs[0]].tuples if len(in_arcs) == 1 else max([self.arcs[a].tuples for a in in_arcs])

    def head_ns(self, box: int) -> int:
        """Return when the oldest tuple that waits for a box arrived. A punctuation counts as the oldest: it costs
        nothing."""
        in_arcs = self.network.boxes[box].in_arcs
        if len(in_arcs) == 1:
            return self.arcs[in_arcs[0]].entries[0].first_arrival_ns
        return min([entries[0].first_arrival_ns for a in in_arcs if (entries := self.arcs[a].entries)])

    def mean_arrival_ns(self, box: int) -> int:
        """Return the mean arrival of the tuples that wait for a box; infinite where only punctuations wait."""
        in_arcs = self.network.boxes[box].in_arcs
        if len(in_arcs) == 1:
            arc = self.arcs[in_arcs[0]]
            return arc.arrival_total_ns // arc.tuples if arc.tuples else INFINITE_NS
        total_ns = tuples = 0
        for a in in_arcs:
            arc = self.arcs[a]
            total_ns += arc.arrival_total_ns
            tuples += arc.tuples
        return total_ns // tuples if tuples else INFINITE_NS

    def downstream_in_unit(self, box: int) -> tuple[int, ...]:
        """Return the boxes of D(b) that are in the same unit."""
        path = self._within.get(box)
        if path is None:
            unit = self.unit_of[box]
            path = tuple([b for b in self.facts.downstream(box) if self.unit_of[b] == unit])
            self._within[box] = path
        return path

    def is_quiet(self) -> bool:
        """Nothing waits and nothing runs."""
        return not self.outstanding and not any(self.unit_live)

    def leaves_no_choice(self) -> bool:
        """Return whether every policy would decide the same for the next train: nothing waits, memory is not short, and
        the policy does not learn from plans."""
        return not (self.waiting_trains or self.memory_short or (self.index is not None and self.index.learns))

    def _has_backlog(self) -> bool:
        """Return whether more tuples wait than two plans for each unit would take.

        Then there is too much work; deadlines do not slip because trains are too long. Units that run or are queued
        count too: under overload nearly every unit with tuples is held, and none may be ready.
        """
        room = sum([self.auto_tuples[b] for live in self.unit_live for b in live])
        return self.waiting_tuples > 2 * room > 0

    def _units_of(self, plan: Plan) -> tuple[int, ...]:
        if plan.units is None:
            plan.units = tuple(dict.fromkeys([self.unit_of[b] for b in plan.boxes]))
        return plan.units

    def _feeding_units(self, arc: int) -> tuple[int, ...]:
        source = self.network.arcs[arc].source
        return () if source.box is None else (self.unit_of[source.box],)
