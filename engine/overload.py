"""Overload: the verdict and the load shedder on the monitor's tick.

    sample -> verdict (qos_monitor) -> plan (load_shedder) -> apply (masks on arcs)

The parts are pure or own what they change, and none knows another; here they are put in a row. A new network gets new
terms and a new shedder; what was learned of the capacity stays.

Owner: the monitor thread, or whoever drives it by hand (tests, the simulator). ``reading`` may be called from any.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from time import thread_time_ns

from catalog.catalog import Epoch
from catalog.network import Network
from catalog.readings import OverloadReading
from catalog.shed import NOTHING_SHED, ShedPlan, Values
from engine.shed.values import outputs_behind
from load_shedder.places import shed_arcs
from load_shedder.shedder import Demand, Shedder
from qos_monitor.sampler import Sample
from qos_monitor.verdict import Terms, Verdict, judge

log = logging.getLogger("aurorad.overload")

OTHERS_WORTH = 0.25  # of a tuple that ``prefer`` does not hold for: the last to go, and not the only ones that count


class Overload:
    """``apply`` puts a plan into force. ``values`` gives, by arc, what the tuples there are worth, as far as known."""

    def __init__(
        self,
        epoch: Epoch,
        apply: Callable[[ShedPlan], None],
        workers: int,
        *,
        semantic_arcs: frozenset[int] | None = None,
        values: Callable[[], Mapping[int, Values]] = dict,
        clock_ns: Callable[[], int] = thread_time_ns,
        tells: bool = True,
    ) -> None:
        self.verdict = Verdict()
        self.spent_ns = 0  # deciding
        self.values: Mapping[int, Values] = {}  # as of the last tick
        self._apply = apply
        self._workers = max(1, workers)
        self._values = values
        self._clock_ns = clock_ns
        self._semantic_arcs = semantic_arcs
        self._is_incurable = False
        self._tells = tells  # the log
        self._set_network(epoch)

    def _set_network(self, epoch: Epoch) -> None:
        self._epoch = epoch
        self._terms = Terms.of(epoch.network, shed_arcs(epoch.network))
        self.shedder = Shedder(epoch.network, epoch.stats, semantic_arcs=self._semantic_arcs, clock_ns=self._clock_ns)

    @property
    def plan(self) -> ShedPlan:
        return self.shedder.plan

    def on_sample(self, sample: Sample, read: Sequence[bool] = ()) -> ShedPlan | None:
        """One tick. ``read`` by output: whether somebody reads it. The new plan, which is in force by then."""
        begun_ns = self._clock_ns()
        before, self.verdict = self.verdict, judge(self.verdict, sample, self._terms, self._workers)
        verdict = self.verdict
        demand = Demand(
            now_ns=verdict.at_ns,
            load_ns=verdict.load_ns,
            load_ratio=verdict.load_ratio,
            excess_ns=verdict.excess_ns,
            is_overloaded=verdict.state == "overloaded",
            melt_ns=verdict.melt_ns,
        )
        was_shedding = bool(self.plan.drops)
        self.values = self._values() if self.shedder.places else {}
        plan = self.shedder.step(demand, read=read, values=self.values)
        if plan is not None:
            self._apply(plan)
        self.spent_ns += self._clock_ns() - begun_ns
        if self._tells:
            self._tell(before, plan, was_shedding, read)
        return plan

    def replace(self, epoch: Epoch) -> None:
        """Another network runs from now on, with nothing shed."""
        if self.plan.drops:
            self._apply(NOTHING_SHED)
        self._set_network(epoch)

    def reading(self) -> OverloadReading:
        verdict, plan, outputs = self.verdict, self.plan, self._epoch.network.outputs
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

    def _tell_unread(self, plan: ShedPlan, read: Sequence[bool]) -> None:
        outputs = self._epoch.network.outputs
        unread = {o for d in plan.drops for o in d.place.outputs if o < len(read) and not read[o]}
        if unread:
            names = ", ".join(outputs[o].name for o in sorted(unread)[:5])
            log.warning("nobody reads %s: worth nothing while that is so, it is shed first", names)

    def _tell(self, before: Verdict, plan: ShedPlan | None, was_shedding: bool, read: Sequence[bool]) -> None:
        """The log hears of beginnings and ends, not of every step."""
        if plan is not None and bool(plan.drops) != was_shedding:
            log.log(logging.WARNING if plan.drops else logging.INFO, "%s", plan.why)
            self._tell_unread(plan, read)
        verdict = self.verdict
        if verdict.state == "overloaded" and before.state != "overloaded" and not self.shedder.places:
            log.warning("load %.0f%% of capacity, and no stream may be shed: it waits", 100 * verdict.load_ratio)
        road_map, control = self.shedder.road_map, self.shedder.control
        incurable = road_map is not None and control.lacks > 0.001
        if incurable and not self._is_incurable and road_map is not None:
            most = road_map.most_ns / max(road_map.load_ns, 1.0)
            log.warning(
                "%.0f%% of the work is too much, and only %.0f%% may be shed: outputs without a loss graph keep theirs",
                100 * (most + control.lacks),
                100 * most,
            )
        self._is_incurable = incurable


def known_values(network: Network, distributions: Mapping[int, Values]) -> dict[int, Values]:
    """By arc where drops go by value: what the tuples there are worth to the output behind it.

    ``prefer`` says yes or no and not how much: what it does not hold for still counts for something.
    """
    found: dict[int, Values] = {}
    for arc, values in distributions.items():
        outputs = outputs_behind(network, network.arcs[arc])
        if outputs and all(network.outputs[o].qos.prefer for o in outputs):
            worths = tuple(OTHERS_WORTH + (1 - OTHERS_WORTH) * worth for worth in values.worths)
            values = Values(values.shares, worths)
        found[arc] = values
    return found
