"""The load shedder: a load verdict comes in, and a new plan comes out when one is due.

The shedder keeps the places of one network and their road map. It draws the map again when the mix of rates, the costs,
the selectivities or the readers have changed by more than ``DRIFT``, and only while the engine is near its knee: a map
that nothing needs is not drawn. The map of a large network takes tens of milliseconds. After such a map the shedder
waits a hundred times as long before the next one: shedding must not become the load.

A new map takes over only the numbers that have changed by more than ``DRIFT``. Where two moves cost nearly the same,
measured costs would swap them again and again: a plan would drop one output, then the other, and windows of both.

Owner: the monitor thread. Time is an argument; only the time that a map took comes from the clock handed in.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from catalog.load_verdict import LoadVerdict
from catalog.loss import ValueCells
from catalog.network import Network
from catalog.stats import Floats, Statistics
from load_shedder.decide.controller import STEP, ControllerState, steer
from load_shedder.decide.incurable import GivenUp, give_up
from load_shedder.decide.places import find_places
from load_shedder.decide.road_map import RoadMap, draw_map
from load_shedder.decide.segments import ModelCosts, makes_pairs, order_places
from load_shedder.decide.unit_caps import UnitCaps, cap_units, places_before
from load_shedder.decide.urgent_levels import UrgentLevels
from load_shedder.shed_plan import NOTHING_SHED, DropPlace, ShedPlan

Flags = npt.NDArray[np.bool_]

DRIFT = 0.1
NEAR_KNEE = 0.7  # of capacity: above this a map is kept
SHARE_OF_TIME = 0.01
LACKS = 0.02  # of the work: what must be saved, beyond what may be shed
FLOOR_STEP = 0.02  # of a floor: a smaller change is chance
REDRAWN_AT_MOST_NS = 250_000_000  # short: after a start costs are learned tick by tick, and a guessed map must go


class Shedder:
    def __init__(
        self,
        network: Network,
        statistics: Statistics,
        *,
        semantic_arcs: frozenset[int] | None = None,
        clock_ns: Callable[[], int] = lambda: 0,
        units: Sequence[Sequence[int]] = (),
    ) -> None:
        """``units`` lists the boxes of each unit, in the order of ``LoadVerdict.unit_ns``."""
        self.network = network
        self.units = units
        self.caps = UnitCaps()
        self.given_up = GivenUp()
        self._semantic_arcs = semantic_arcs
        self._strict = frozenset(o.number for o in network.outputs if o.qos.shed_by is None)
        self._before_unit: list[tuple[frozenset[int], bool]] = []
        self._urgent = UrgentLevels(self._draw)
        self._values: Mapping[int, ValueCells] | None = None
        self._caps_in_force: dict[int, float] = {}
        self._floors: dict[int, float] = {}  # by output with max_error: the share that it needs
        self._drawn_floors: dict[int, float] = {}
        self._set_places(find_places(network, semantic_arcs))
        self.plan: ShedPlan = NOTHING_SHED
        self.control = ControllerState()
        self.maps = 0  # drawn so far
        self._statistics = statistics
        self._clock_ns = clock_ns
        self._drawn_for: Floats = np.zeros(0)
        self._read: tuple[bool, ...] = ()
        self._plans = 0
        self._in_force = 0.0  # the share of the work that the plan in force saves
        self._has_joins = any(makes_pairs(network, node.number) for node in network.boxes)
        self._sheds = np.array([s.overload == "shed" for s in network.streams], np.bool_)

    def step(
        self,
        verdict: LoadVerdict,
        *,
        read: Sequence[bool] = (),
        values: Mapping[int, ValueCells] | None = None,
        floors: Mapping[int, float] | None = None,
    ) -> ShedPlan | None:
        """Run one tick. Return the new plan, or None when the old one stays. ``read`` says by output whether it has a
        reader; empty: all have one. ``floors`` are the shares that outputs with ``max_error`` need."""
        if not self.places and not self._strict:
            return None
        self._floors = dict(floors or {})
        self.caps = cap_units(self.caps, verdict) if self.units else self.caps
        self._give_up(verdict)
        if not self.places:
            return None
        redrawn = self._redraw(verdict, tuple(read), values)
        self._urgent.step(verdict)
        self.control = steer(
            self.control,
            excess_ns=verdict.excess_ns,
            load_ns=verdict.load_ns,
            is_overloaded=verdict.levels[-1].is_pressed if verdict.levels else verdict.state == "overloaded",
            now_ns=verdict.at_ns,
            catch_up_ns=verdict.catch_up_ns,
            most=self._most_share(),
            slack_s=verdict.levels[-1].slack_s if verdict.levels else 0.0,
        )
        if self.road_map is None:
            return None
        wanted, caps = self.control.share, self._above_floors(self._urgent.caps(self._place_caps()))
        same = abs(wanted - self._in_force) < STEP and bool(wanted) == bool(self._in_force)
        if not redrawn and same and not self._caps_differ(caps):
            return None
        return self._make_plan(wanted, caps, verdict)

    def current_map(self) -> RoadMap | None:
        """Return the map in force, or one of the present statistics where none is drawn yet. For people; any thread."""
        if self.road_map is not None or not self.places:
            return self.road_map
        return self._draw()

    # -- what one worker cannot do, and what no plan can save --------------------------------------------------------

    def _set_places(self, places: tuple[DropPlace, ...]) -> None:
        self.places = places
        self.road_map: RoadMap | None = None
        self._urgent.forget_maps()
        self._not_before_ns = 0
        self._find_before_units()

    def _find_before_units(self, flow: Sequence[float] = ()) -> None:
        """Find the places before each unit. ``flow`` holds the tuples per second by arc, as far as it is known."""
        index = {place.arc: i for i, place in enumerate(order_places(self.network, self.places))}
        self._before_unit = [places_before(self.network, boxes, index, flow) for boxes in self.units]

    def _place_caps(self) -> dict[int, float]:
        """Return, by place, the largest share of its tuples that the units behind it can take."""
        found: dict[int, float] = {}
        for unit in self.caps.full:
            for place in self._before_unit[unit][0]:
                found[place] = min(self.caps.kept[unit], found.get(place, 1.0))
        return found

    def behind_full_units(self) -> frozenset[int]:
        """Return the outputs whose tuples pass a unit of which more is demanded than one worker can do."""
        boxes = {b for unit in self.caps.full for b in self.units[unit]}
        return frozenset(o for b in boxes for o in self.network.box_outputs[b])

    def _above_floors(self, caps: Mapping[int, float]) -> dict[int, float]:
        """Return the caps, raised to what the outputs behind their places need."""
        if not self._floors_in_force or self.road_map is None:
            return dict(caps)
        return {i: max(share, self._floor_at(self.road_map.places[i].outputs)) for i, share in caps.items()}

    @property
    def _floors_in_force(self) -> dict[int, float]:
        return {o: floor for o, floor in self._floors.items() if o not in self.given_up.outputs}

    def _floor_at(self, outputs: Iterable[int]) -> float:
        floors = self._floors_in_force
        return max((floors.get(o, 0.0) for o in outputs), default=0.0)

    def _caps_differ(self, caps: Mapping[int, float]) -> bool:
        before = self._caps_in_force
        return caps.keys() != before.keys() or any(abs(share - before[i]) >= STEP for i, share in caps.items())

    def _give_up(self, verdict: LoadVerdict) -> None:
        """Give up the outputs that no plan can save; take those back that can be saved again."""
        hopeless = self._hopeless(verdict)
        before, self.given_up = self.given_up, give_up(self.given_up, hopeless, self._short_outputs(), verdict.at_ns)
        if self.given_up.outputs != before.outputs:
            self._set_places(find_places(self.network, self._semantic_arcs, self.given_up.outputs))

    def _short_outputs(self) -> frozenset[int]:
        """Return the outputs of which the plan in force drops more than they may lose."""
        kept: dict[int, float] = {}
        for drop in self.plan.drops:
            for o in drop.place.outputs:
                kept[o] = kept.get(o, 1.0) * (1.0 - drop.share)  # at worst all of its drops lie on one path
        return frozenset(o for o, share in kept.items() if share < self._floors.get(o, 1.0) - FLOOR_STEP)

    def _hopeless(self, verdict: LoadVerdict) -> frozenset[int]:
        """Return the outputs without a loss graph that are late now, and that no plan can save."""
        late = (self._strict | self._floors_in_force.keys()).intersection(verdict.late)
        if not late:
            return frozenset()
        if self.control.lacks > LACKS or (not self.places and verdict.state == "overloaded"):
            return late
        boxes = {b for unit in self.caps.full if not self._before_unit[unit][1] for b in self.units[unit]}
        boxes |= {b for level in self._urgent.lacking(LACKS) for b, is_urgent in enumerate(level) if is_urgent}
        for unit in self.caps.full:  # a unit that is full although its outputs get no more than they need
            outputs = {o for b in self.units[unit] for o in self.network.box_outputs[b]}
            if self.caps.kept[unit] < self._floor_at(outputs):
                boxes.update(self.units[unit])
        return late & {o for b in boxes for o in self.network.box_outputs[b]}

    # -- inside -------------------------------------------------------------------------------------------------------

    def _most_share(self) -> float:
        """Return the largest share of the arriving work that a plan can save."""
        road_map = self.road_map
        return 1.0 if road_map is None or road_map.load_ns <= 0 else road_map.most_ns / road_map.load_ns

    def _make_plan(self, share: float, caps: dict[int, float], verdict: LoadVerdict) -> ShedPlan | None:
        assert self.road_map is not None
        self._in_force, self._caps_in_force = share, caps
        # The share is of the work of the shedding streams. The map may be of other rates, so the plan scales with load.
        saving_ns = share * self.road_map.load_ns
        plan = self.road_map.plan(saving_ns, caps)
        if not plan.drops and not self.plan.drops:
            return None
        self._plans += 1
        scale = verdict.load_ns / self.road_map.load_ns if self.road_map.load_ns > 0 else 0.0
        self.plan = ShedPlan(
            number=self._plans,
            level=plan.level,
            drops=plan.drops,
            excess_ns=max(0.0, verdict.excess_ns),
            saved_ns=plan.saved_ns * scale,
            load_ns=verdict.load_ns,
            capacity_ns=verdict.capacity_ns,
            loss=plan.loss,
            why=self._why(plan, verdict),
        )
        return self.plan

    def _why(self, plan: ShedPlan, verdict: LoadVerdict) -> str:
        if not plan.drops:
            return f"load {verdict.load_ratio:.0%} of capacity: shedding ends"
        arcs = self.network.arcs
        most = sorted(plan.drops, key=lambda d: -d.gain_ns)[:3]
        named = ", ".join(f"{d.share:.0%} of {arcs[d.place.arc].name}" for d in most)
        more = f" and {len(plan.drops) - 3} more" if len(plan.drops) > 3 else ""
        return f"load {verdict.load_ratio:.0%} of capacity: drops {named}{more}; costs {plan.loss:.3f} of utility"

    def _redraw(self, verdict: LoadVerdict, read: tuple[bool, ...], values: Mapping[int, ValueCells] | None) -> bool:
        """Draw the map again if it is due. Return whether the plan in force was made from an older map."""
        if verdict.load_ratio < NEAR_KNEE and not self.control.is_shedding and verdict.state != "overloaded":
            return False
        if self.road_map is not None and (verdict.at_ns < self._not_before_ns or not self._has_drifted(read, values)):
            return False
        begun_ns = self._clock_ns()
        self._drawn_for, self._read, self._values = self._settled(self._basis(values)), read, values
        self._drawn_floors = self._floors_in_force
        self._urgent.forget_maps()
        drawn = self._draw()
        self.maps += 1
        self.road_map = drawn
        if self._has_joins:
            self._find_before_units(drawn.flow_into_joins(self.network))
        took_ns = self._clock_ns() - begun_ns
        self._not_before_ns = verdict.at_ns + max(REDRAWN_AT_MOST_NS, int(took_ns / SHARE_OF_TIME))
        return self.control.is_shedding or bool(self.plan.drops)

    def _draw(self, boxes: Sequence[bool] = ()) -> RoadMap:
        """Draw a map of all work, or of the work of these boxes alone."""
        s, at = self._statistics, 0
        parts = []
        for scale in (*self._relative(), s.unshed_selectivity()):
            parts.append(self._drawn_for[at : at + len(scale)])
            at += len(scale)
        means = [_mean(part) for part in self._relative()]
        every_ns, output_ns, rates = (part * mean for part, mean in zip(parts, means, strict=False))
        box_ns = np.where(boxes, every_ns, 0.0) if boxes else every_ns
        # Shares are of the work of the shedding streams alone.
        return draw_map(
            self.network,
            self.places,
            ModelCosts(
                box_ns.tolist(),
                parts[3].tolist(),
                s.port_start.tolist(),
                [0.0] * len(output_ns) if boxes else output_ns.tolist(),
                rates.tolist(),
            ),
            values=self._values,
            read=self._read or None,
            given_up=self.given_up.outputs,
            floors=self._floors_in_force,
        )

    def _relative(self) -> tuple[Floats, Floats, Floats]:
        """Return the costs of boxes and outputs and the rates that may be shed: a map takes them relative to their
        means."""
        s = self._statistics
        return s.unshed_cost_ns(), s.output_cost_ns, s.rate_per_s * self._sheds

    def _basis(self, values: Mapping[int, ValueCells] | None) -> Floats:
        """Return the inputs of a map, free of scale: costs and rates relative to their means, selectivities, worths."""
        relative = [part / _mean(part) for part in self._relative()]
        known = values or {}
        worth = [known[p.arc].carried(0.5) if p.arc in known else 0.5 for p in self.places if p.manner == "semantic"]
        return np.concatenate([*relative, self._statistics.unshed_selectivity(), worth])

    def _settled(self, now: Floats) -> Floats:
        """Return the inputs of the next map: those of the last one where they have not drifted."""
        before = self._drawn_for
        if len(before) != len(now):
            return now
        settled: Floats = np.where(_drifted(before, now), now, before)
        return settled

    def _has_drifted(self, read: tuple[bool, ...], values: Mapping[int, ValueCells] | None) -> bool:
        now, floors, drawn = self._basis(values), self._floors_in_force, self._drawn_floors
        if floors.keys() != drawn.keys() or any(abs(f - drawn[o]) > FLOOR_STEP * drawn[o] for o, f in floors.items()):
            return True
        if read != self._read or len(now) != len(self._drawn_for):
            return True
        return bool(_drifted(self._drawn_for, now).any())


def _mean(part: Floats) -> float:
    return float(part.mean()) or 1.0 if len(part) else 1.0


def _drifted(before: Floats, now: Floats) -> Flags:
    drifted: Flags = np.abs(now - before) > DRIFT * np.maximum(np.abs(before), DRIFT)
    return drifted
