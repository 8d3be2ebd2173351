"""The load shedder: a verdict in, a plan out when another one is due.

It keeps the places of one network and a road map of them, which is drawn again when the mix of rates, the costs, the
selectivities or the readers have changed by more than ``DRIFT``, and only when the engine is near its knee: a map that
nobody needs is not drawn. A large network's map takes tens of milliseconds, so after one that took long there is none
for a hundred times as long: shedding must not be the load.

Owner: the monitor thread. Time is an argument (``took_ns`` of the last map comes from the clock that is handed in).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from catalog.network import Network
from catalog.shed import NOTHING_SHED, ShedPlan, Values
from catalog.stats import Floats, Statistics
from load_shedder.controller import STEP, Control, steer
from load_shedder.places import find_places
from load_shedder.road_map import RoadMap, draw_map
from load_shedder.segments import Costs

DRIFT = 0.1
NEAR_KNEE = 0.7  # of capacity: from here on there is a map
SHARE_OF_TIME = 0.01
REDRAWN_AT_MOST_NS = 250_000_000  # after a start costs come in tick by tick, and a map of guesses must not last


class Demand(NamedTuple):
    """What the verdict says, as far as the shedder needs it."""

    now_ns: int
    load_ns: float  # work a second that is asked for by the streams that shed
    load_ratio: float
    excess_ns: float
    is_overloaded: bool
    melt_ns: float = 0.0  # the part of the excess that is for the backlog


class Shedder:
    def __init__(
        self,
        network: Network,
        statistics: Statistics,
        *,
        semantic_arcs: frozenset[int] | None = None,
        clock_ns: Callable[[], int] = lambda: 0,
    ) -> None:
        self.network = network
        self.places = find_places(network, semantic_arcs)
        self.plan: ShedPlan = NOTHING_SHED
        self.control = Control()
        self.road_map: RoadMap | None = None
        self.maps = 0  # drawn so far
        self._statistics = statistics
        self._clock_ns = clock_ns
        self._drawn_for: Floats = np.zeros(0)
        self._read: tuple[bool, ...] = ()
        self._not_before_ns = 0
        self._plans = 0
        self._in_force = 0.0  # the share that the plan was made for
        self._sheds = np.array([s.overload == "shed" for s in network.streams], np.bool_)

    def step(
        self, demand: Demand, *, read: Sequence[bool] = (), values: Mapping[int, Values] | None = None
    ) -> ShedPlan | None:
        """One tick: the plan from now on, None when it stays. ``read`` by output; none given: all are."""
        if not self.places:
            return None
        redrawn = self._redraw(demand, tuple(read), values)
        self.control = steer(
            self.control,
            excess_ns=demand.excess_ns,
            load_ns=demand.load_ns,
            is_overloaded=demand.is_overloaded,
            now_ns=demand.now_ns,
            melt_ns=demand.melt_ns,
            most=self._most_share(),
        )
        if self.road_map is None:
            return None
        wanted = self.control.share
        if not redrawn and abs(wanted - self._in_force) < STEP and bool(wanted) == bool(self._in_force):
            return None
        return self._put(wanted, demand)

    # -- inside -------------------------------------------------------------------------------------------------------

    def _most_share(self) -> float:
        """Of the work that arrives: more than this no plan saves."""
        road_map = self.road_map
        return 1.0 if road_map is None or road_map.load_ns <= 0 else road_map.most_ns / road_map.load_ns

    def _put(self, share: float, demand: Demand) -> ShedPlan | None:
        assert self.road_map is not None
        self._in_force = share
        # A share of what the streams that shed bring, on a map that may be of other rates: it scales with the load.
        saving_ns = share * self.road_map.load_ns
        plan = self.road_map.plan(saving_ns)
        if not plan.drops and not self.plan.drops:
            return None
        self._plans += 1
        scale = demand.load_ns / self.road_map.load_ns if self.road_map.load_ns > 0 else 0.0
        self.plan = ShedPlan(
            number=self._plans,
            level=plan.level,
            drops=plan.drops,
            excess_ns=max(0.0, demand.excess_ns),
            saved_ns=plan.saved_ns * scale,
            loss=plan.loss,
            why=self._why(plan, demand),
        )
        return self.plan

    def _why(self, plan: ShedPlan, demand: Demand) -> str:
        if not plan.drops:
            return f"load {demand.load_ratio:.0%} of capacity: nothing needs to be shed any more"
        arcs = self.network.arcs
        most = sorted(plan.drops, key=lambda d: -d.gain_ns)[:3]
        named = ", ".join(f"{d.share:.0%} of {arcs[d.place.arc].name}" for d in most)
        more = f" and {len(plan.drops) - 3} more" if len(plan.drops) > 3 else ""
        return f"load {demand.load_ratio:.0%} of capacity: drops {named}{more}, for {plan.loss:.3f} of utility"

    def _redraw(self, demand: Demand, read: tuple[bool, ...], values: Mapping[int, Values] | None) -> bool:
        if demand.load_ratio < NEAR_KNEE and not self.control.is_shedding and not demand.is_overloaded:
            return False
        if self.road_map is not None and (demand.now_ns < self._not_before_ns or not self._has_drifted(read, values)):
            return False
        begun_ns = self._clock_ns()
        costs = Costs.of(self._statistics)
        self._drawn_for, self._read = self._basis(values), read
        # Only what the streams that shed bring is the load that shares are of.
        rates = [r if s else 0.0 for r, s in zip(costs.rate_per_s, self._sheds.tolist(), strict=True)]
        drawn = draw_map(
            self.network,
            self.places,
            Costs(costs.box_ns, costs.port_selectivity, costs.port_start, costs.output_ns, rates),
            values=values,
            read=read or None,
        )
        self.maps += 1
        self.road_map = drawn
        took_ns = self._clock_ns() - begun_ns
        self._not_before_ns = demand.now_ns + max(REDRAWN_AT_MOST_NS, int(took_ns / SHARE_OF_TIME))
        return self.control.is_shedding

    def _basis(self, values: Mapping[int, Values] | None) -> Floats:
        """What a map depends on, free of scale: costs relative to each other, rates likewise, selectivities, worths."""
        s = self._statistics
        parts = (s.effective_cost_ns(), s.output_cost_ns, s.rate_per_s * self._sheds)
        relative = [p / (p.mean() or 1.0) if len(p) else p for p in parts]
        known = values or {}
        worth = [known[p.arc].carried(0.5) if p.arc in known else 0.5 for p in self.places if p.manner == "semantic"]
        return np.concatenate([*relative, s.port_selectivity, worth])

    def _has_drifted(self, read: tuple[bool, ...], values: Mapping[int, Values] | None) -> bool:
        now = self._basis(values)
        if read != self._read or len(now) != len(self._drawn_for):
            return True
        return bool((np.abs(now - self._drawn_for) > DRIFT * np.maximum(np.abs(self._drawn_for), DRIFT)).any())
