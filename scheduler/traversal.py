"""In which order the boxes of a superbox run, once a policy has chosen it: the second of Aurora's two decisions."""

from __future__ import annotations

from scheduler.plan import Plan, Step
from scheduler.state import SchedulerState
from storage.queue import ALL


def min_cost(state: SchedulerState, boxes: tuple[int, ...]) -> Plan | None:
    """Each box once, leaves first: the fewest box calls. Boxes that nothing can reach in this plan are left out."""
    rule = state.settings.train
    waiting = state.waiting
    if len(boxes) == 1:
        box = boxes[0]
        return Plan((Step(box, rule.tuples(state.box_tuples(box))),))
    fed_within = state.network.feeders
    live: set[int] = set()
    steps: list[Step] = []
    for box in boxes:
        if waiting[box]:
            live.add(box)
            steps.append(Step(box, rule.tuples(state.box_tuples(box))))
        elif not live.isdisjoint(fed_within[box]):
            live.add(box)
            steps.append(Step(box, ALL))
    return Plan(tuple(steps)) if steps else None


def expand(state: SchedulerState, unit: int) -> Plan | None:
    """The plan for a unit that a policy has chosen."""
    if state.settings.unit == "tuple":
        return Plan((Step(unit, 1),))
    return min_cost(state, state.unit_boxes[unit])
