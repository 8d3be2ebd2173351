"""Shedding for urgent outputs alone: caps for the levels of urgency that are pressed.

Where the policy runs urgent outputs first, a level that is pressed (``LoadVerdict.levels``) is relieved by drops of its
own tuples only: its tuples do not wait for those of less urgent outputs. So each pressed level has a controller and a
road map of its own, in which only its work counts. The cheapest plan on that map becomes caps on places, and the caps
hold for the maps of the levels behind it and for the map of all work.

The last level has all work. The shedder itself has its controller and its map.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from catalog.load_verdict import LevelLoad, LoadVerdict
from load_shedder.decide.controller import ControllerState, steer
from load_shedder.decide.road_map import RoadMap

DrawLevel = Callable[[tuple[bool, ...]], RoadMap]
"""Draw the map of the work of these boxes alone."""


class UrgentLevels:
    """Owner: the monitor thread."""

    def __init__(self, draw: DrawLevel) -> None:
        self._draw = draw
        self._maps: dict[tuple[bool, ...], RoadMap] = {}
        self._controls: dict[tuple[bool, ...], ControllerState] = {}

    def forget_maps(self) -> None:
        """Draw the maps again when they are needed next: costs or rates have changed."""
        self._maps.clear()

    def step(self, verdict: LoadVerdict) -> None:
        """Move the controllers of the levels to this verdict."""
        levels = verdict.levels[:-1]
        before, self._controls = self._controls, {}
        for level in levels:
            control = before.get(level.boxes, ControllerState())
            if level.is_pressed or control.is_shedding:
                self._controls[level.boxes] = self._steer(control, level, verdict.at_ns)

    def caps(self, caps: Mapping[int, float]) -> dict[int, float]:
        """Return these caps, by place, and those of the levels, from the most urgent one on."""
        found = dict(caps)
        for boxes, control in self._controls.items():
            if control.is_shedding:
                road_map = self._map(boxes)
                found = road_map.caps(control.share * road_map.load_ns, found)
        return found

    def lacking(self, least: float) -> list[tuple[bool, ...]]:
        """Return the boxes of each level for which more must be saved than may be, by this share of its work."""
        return [boxes for boxes, control in self._controls.items() if control.lacks > least]

    def _steer(self, control: ControllerState, level: LevelLoad, now_ns: int) -> ControllerState:
        road_map = self._map(level.boxes)
        return steer(
            control,
            excess_ns=level.excess_ns,
            load_ns=level.load_ns,
            is_overloaded=level.is_pressed,
            now_ns=now_ns,
            catch_up_ns=level.catch_up_ns,
            most=road_map.most_ns / road_map.load_ns if road_map.load_ns > 0 else 0.0,
            slack_s=level.slack_s,
        )

    def _map(self, boxes: tuple[bool, ...]) -> RoadMap:
        if boxes not in self._maps:
            self._maps[boxes] = self._draw(boxes)
        return self._maps[boxes]
