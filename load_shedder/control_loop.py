"""The control loop of shedding, one turn for each tick of the monitor.

    sample -> verdict (qos_monitor) -> shed plan (decide) -> masks on arcs (apply)

The parts are pure or own their state, and none knows another; this module calls them in order. The monitor's half
comes in as a callable (``judge``), because ``load_shedder`` and ``qos_monitor`` never import each other.

Owner: the monitor thread, or the caller that drives it by hand (tests, the simulator). ``reading`` may be called from
any thread.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Generic, TypeVar

from catalog.catalog import Epoch
from catalog.config.models import FileSource, StdinSource
from catalog.load_verdict import LoadVerdict
from catalog.loss import ValueCells
from catalog.readings import OverloadReading
from load_shedder.decide.shedder import Shedder
from load_shedder.record.error_limits import OutputError
from load_shedder.shed_plan import ShedPlan

log = logging.getLogger("aurorad.overload")

Sample = TypeVar("Sample")  # of the monitor: this loop only passes it on


class OverloadControl(Generic[Sample]):
    def __init__(
        self,
        epoch: Epoch,
        judge: Callable[[Sample], LoadVerdict],
        apply: Callable[[ShedPlan], None],
        *,
        semantic_arcs: frozenset[int] | None,
        values: Callable[[], Mapping[int, ValueCells]],
        clock_ns: Callable[[], int],
        units: Sequence[Sequence[int]] = (),
        is_logging: bool = True,
    ) -> None:
        """``apply`` puts a plan into force. ``values`` returns, by arc, the worth of the tuples there, as far as it is
        known. ``clock_ns`` measures the time spent deciding. ``units`` lists the boxes of each unit that never runs
        twice at once, as the judge knows them."""
        self.verdict = LoadVerdict()
        self.shedder = Shedder(epoch.network, epoch.stats, semantic_arcs=semantic_arcs, clock_ns=clock_ns, units=units)
        self.spent_ns = 0  # deciding, since the start
        self.values: Mapping[int, ValueCells] = {}  # as of the last tick
        self._outputs = epoch.network.outputs
        sources = [stream.source for stream in epoch.network.streams]
        self._can_all_wait = all(isinstance(source, FileSource | StdinSource) for source in sources)  # for room
        self._judge = judge
        self._apply = apply
        self._values = values
        self._clock_ns = clock_ns
        self._lacks = False  # as last logged: more is excess than may be shed
        self._incurable: frozenset[int] = frozenset()  # as last logged
        self.errors: Mapping[int, OutputError] = {}  # as of the last tick
        self._too_wrong: frozenset[int] = frozenset()  # as last logged
        self._is_logging = is_logging

    @property
    def plan(self) -> ShedPlan:
        return self.shedder.plan

    @property
    def is_fine(self) -> bool:
        """Whether there is no overload, and no plan drops anything."""
        return self.verdict.state == "fine" and not self.plan.drops

    @property
    def floors(self) -> dict[int, float]:
        """By output with ``max_error`` that a plan can keep: the share of its tuples that it needs."""
        return {o: error.floor for o, error in self.errors.items() if o not in self.shedder.given_up.outputs}

    def on_sample(
        self,
        sample: Sample,
        read: Sequence[bool] = (),
        errors: Mapping[int, OutputError] | None = None,
        decoded: Callable[[int], float] | None = None,
    ) -> ShedPlan | None:
        """Run one turn; return the new plan, which is in force by then, or None when the old one stays.

        ``read`` says by output whether it has a reader; empty: every output has one. ``errors`` are those of the
        outputs with ``max_error``. ``decoded`` returns the share that the edge decodes for an output: the plan keeps
        the more of what is left.
        """
        self.errors = errors or {}
        begun_ns = self._clock_ns()
        before, self.verdict = self.verdict, self._judge(sample)
        was_shedding = bool(self.plan.drops)
        self.values = self._values() if self.shedder.places else {}
        floors = {o: min(1.0, e.floor / max(decoded(o) if decoded else 1.0, 1e-3)) for o, e in self.errors.items()}
        plan = self.shedder.step(self.verdict, read=read, values=self.values, floors=floors)
        if plan is not None:
            self._apply(plan)
        self.spent_ns += self._clock_ns() - begun_ns
        if self._is_logging:
            self._log(before, plan, was_shedding, read)
        return plan

    def reading(self) -> OverloadReading:
        verdict, plan, outputs = self.verdict, self.plan, self._outputs
        return OverloadReading(
            state=verdict.state,
            load_ns=verdict.load_ns,
            capacity_ns=verdict.capacity_ns,
            load_ratio=verdict.load_ratio,
            trend_per_s=verdict.trend_per_s,
            backlog_ns=verdict.backlog_ns,
            wait_ns=verdict.wait_ns,
            excess_ns=verdict.excess_ns,
            headroom_ratio=verdict.headroom_ratio,
            suffering=tuple(outputs[o].name for o in verdict.suffering if o < len(outputs)),
            shed_level=plan.level,
            plan=plan.number,
            loss=plan.loss,
            why=plan.why,
            spent_ns=self.spent_ns,
        )

    def _log(self, before: LoadVerdict, plan: ShedPlan | None, was_shedding: bool, read: Sequence[bool]) -> None:
        """Log where shedding begins and ends, not every step in between."""
        if plan is not None and bool(plan.drops) != was_shedding:
            log.log(logging.WARNING if plan.drops else logging.INFO, "%s", plan.why)
            self._log_unread(plan, read)
        verdict = self.verdict
        begins = verdict.state == "overloaded" and before.state != "overloaded"
        if begins and not self.shedder.places and not self._can_all_wait:
            log.warning("load %.0f%% of capacity, and no stream may be shed: tuples wait", 100 * verdict.load_ratio)
        road_map, control = self.shedder.road_map, self.shedder.control
        lacks = road_map is not None and control.lacks > 0.001
        if lacks and not self._lacks and road_map is not None:
            most = road_map.most_ns / max(road_map.load_ns, 1.0)
            log.warning(
                "%.0f%% of the work is excess, but only %.0f%% may be shed: outputs without a loss graph lose nothing",
                100 * (most + control.lacks),
                100 * most,
            )
        self._lacks = lacks
        self._log_incurable()
        self._log_errors()

    def _log_incurable(self) -> None:
        """Log which outputs no plan can save, and which can be saved again."""
        given_up = self.shedder.given_up.outputs
        before, self._incurable = self._incurable, given_up
        for o in sorted((given_up - before) & self.errors.keys()):
            log.warning("max_error of %s cannot be kept: nothing else is left to shed", self._outputs[o].name)
        if fresh := given_up - before - self.errors.keys():
            bound = fresh & self.shedder.behind_full_units()
            if bound:
                log.warning(
                    "%s cannot be saved: one worker cannot do its work; it gets what is left", self._names(bound)
                )
            if other := fresh - bound:
                road_map = self.shedder.road_map
                most = 0.0 if road_map is None else 100 * road_map.most_ns / max(road_map.load_ns, 1.0)
                log.warning(
                    "%s cannot be saved: only %.0f%% of the work may be shed; it gets what is left",
                    self._names(other),
                    most,
                )
        if back := before - given_up - self.errors.keys():
            log.info("%s can be saved again: it loses nothing from now on", self._names(back))

    def _log_errors(self) -> None:
        """Log where results begin to be more wrong than ``max_error`` allows, and where they are right again."""
        now = frozenset(o for o, error in self.errors.items() if not error.is_kept)
        before, self._too_wrong = self._too_wrong, now
        for o in sorted(now - before):
            error = self.errors[o]
            why = "nothing else is left to shed" if o in self._incurable else "the plan has not answered yet"
            log.warning(
                "%s: results are off by up to %.2g%%, max_error is %.2g%%: it needs %.0f%% of its tuples, and %s",
                self._outputs[o].name, 100 * (error.error or 0.0), 100 * error.limit, 100 * error.floor, why,
            )  # fmt: skip
        if back := before - now:
            log.info("%s: max_error is kept again", self._names(back))

    def _names(self, outputs: Iterable[int]) -> str:
        return ", ".join(self._outputs[o].name for o in sorted(outputs)[:5])

    def _log_unread(self, plan: ShedPlan, read: Sequence[bool]) -> None:
        unread = {o for d in plan.drops for o in d.place.outputs if o < len(read) and not read[o]}
        if unread:
            names = ", ".join(self._outputs[o].name for o in sorted(unread)[:5])
            log.warning(
                "no reader is connected to %s, and other outputs have one: it is worth nothing now and is shed first",
                names,
            )
