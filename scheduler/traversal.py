"""Traversals: in which order the boxes of a chosen superbox run, the second of Aurora's two decisions (P0 section 4.1).

- ``min_cost``: each box once, leaves first. The fewest box calls, so the most throughput.
- ``min_latency``: the tuples that are nearest to the output first, all the way to the output; the root runs again for
  each. The first tuples come out early, at the price of more calls.
- ``min_memory``: again and again the box that frees the most memory in a second.
- ``auto``: of the first two the one that delays tuples less, here and elsewhere, by the cost model; ``min_memory``
  while memory is short.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from heapq import heapify, heappop, heappush, merge
from itertools import islice, repeat

from scheduler.costs import predict
from scheduler.plan import Plan, Step
from scheduler.state import SchedulerState
from scheduler.trains import arrival_times_ns, arrived_before, nth_arrival_ns
from storage.queue import ALL

STEPS_AT_MOST = 1_024
"""A sequence that would be longer is run by min_cost instead: deciding it would take longer than it gains."""

PLANS_AT_MOST = 4_096


def expand(state: SchedulerState, unit: int) -> Plan:
    """Return the plan for a unit that a policy has chosen. Tuples wait for one of its boxes."""
    live = state.unit_live[unit]
    if len(live) == 1 and state.is_plain:
        # The usual case: one box is busy, and train lengths do not depend on how much waits.
        for box in live:
            plan = state.plans.get(box)
            if plan is None:
                plan = state.plans[box] = _cheapest(state, state.unit_boxes[unit])
            return plan
    return _ordered(state, unit, state.unit_boxes[unit])


def output_segment(state: SchedulerState, box: int) -> Plan:
    """Return the plan for E_x, the operators from a box to the output, as far as they are in its unit (P1 section 3.3):
    "executing O_x implies the pipelined execution of all the operators on E_x unless it is interrupted by a higher
    priority operator". Boxes beside the path keep their tuples."""
    unit = state.unit_of[box]
    if len(state.unit_live[unit]) == 1 or state.spanner:
        return expand(state, unit)  # nothing else waits in the unit
    return _ordered(state, unit, state.downstream_in_unit(box))


def _ordered(state: SchedulerState, unit: int, boxes: Sequence[int]) -> Plan:
    """Return the plan for these boxes of a unit, in the order of the traversal."""
    settings = state.settings
    if settings.unit == "tuple":
        return one_tuple(state, boxes[0])
    if settings.unit == "vpipe":
        return line_plan(state, boxes)
    if state.spanner and len(boxes) > 1:
        boxes = spanned(state, unit, state.spanner)
    if len(boxes) == 1 or settings.traversal == "min_cost":
        return min_cost(state, boxes)
    return TRAVERSALS[settings.traversal](state, boxes)


def one_tuple(state: SchedulerState, box: int) -> Plan:
    """Run only the oldest tuple that waits for the box (TAAT in the papers)."""
    in_arcs = state.network.boxes[box].in_arcs
    if len(in_arcs) == 1:
        return Plan((Step(box, 1),))
    waiting = [a for a in in_arcs if state.arcs[a].entries]
    return Plan((Step(box, 1),), {min(waiting, key=lambda a: (state.arcs[a].entries[0].first_arrival_ns, a)): 1})


def min_cost(state: SchedulerState, boxes: Sequence[int]) -> Plan:
    """Run each box once, leaves first. Boxes that no tuple can reach in this plan are left out."""
    rule = state.settings.train
    if rule.kind != "auto":
        return _cheapest(state, boxes)
    # Train lengths do not depend on how much waits: the same busy boxes give the same plan. (The plan object can be
    # shared: a plan runs once at a time, because its boxes do.)
    live = frozenset([b for b in boxes if state.waiting[b]] if len(boxes) > 1 else boxes)
    plan = state.plans.get(live)
    if plan is None:
        if len(state.plans) >= PLANS_AT_MOST:
            state.plans.clear()
        plan = state.plans[live] = _cheapest(state, boxes)
    return plan


def _cheapest(state: SchedulerState, boxes: Sequence[int]) -> Plan:
    tuples = state.settings.train.tuples
    if len(boxes) == 1:
        return Plan((Step(boxes[0], tuples(state, boxes[0])),))
    waiting = state.waiting
    feeders = state.network.feeders
    live: set[int] = set()
    steps: list[Step] = []
    claims: list[Step] = []
    for box in boxes:
        if waiting[box]:
            live.add(box)
            steps.append(Step(box, tuples(state, box)))
            claims.append(steps[-1])
        elif not live.isdisjoint(feeders[box]):
            live.add(box)
            steps.append(Step(box, ALL))
    return Plan(tuple(steps), claims=tuple(claims))


def segment_plan(state: SchedulerState, box: int, segment: Sequence[int]) -> Plan:
    """Return the plan for a segment of a progress chart, the unit that Chain schedules: as far as its boxes are in the
    unit of the box that was chosen."""
    unit = state.unit_of[box]
    if state.settings.unit == "tuple":
        return one_tuple(state, box)
    boxes = [b for b in segment if state.unit_of[b] == unit]
    return line_plan(state, boxes) if state.settings.unit == "vpipe" else _cheapest(state, boxes)


def line_plan(state: SchedulerState, boxes: Sequence[int]) -> Plan:
    """Run a part of the line. It takes the oldest tuples of all its arcs, up to one time, as from one queue. A count of
    tuples is a count over all arcs."""
    plan = _cheapest(state, boxes)
    limits = {a: step.tuples for step in plan.claims for a in state.network.boxes[step.box].in_arcs}
    if state.settings.train.kind == "tuples":
        return Plan(plan.steps, oldest_tuples(state, limits, int(state.settings.train.value)), claims=plan.claims)
    ends_ns = [nth_arrival_ns(state.arcs[a], n) for a, n in limits.items() if state.arcs[a].tuples > n]
    if not ends_ns:
        return plan
    until_ns = min(ends_ns)
    takes = {a: min(n, arrived_before(state.arcs[a], until_ns)) for a, n in limits.items()}
    return Plan(plan.steps, takes, claims=plan.claims)


def oldest_tuples(state: SchedulerState, arcs: Iterable[int], tuples: int) -> dict[int, int]:
    """Return by arc how many of the oldest tuples over all these arcs, as many as asked for, wait on it."""
    takes = dict.fromkeys(arcs, 0)
    waiting = [zip(arrival_times_ns(state.arcs[a]), repeat(a)) for a in takes]
    for _, arc in islice(merge(*waiting), tuples):
        takes[arc] += 1
    return takes


def min_latency(state: SchedulerState, boxes: Sequence[int]) -> Plan:
    """Run the busy boxes by rising output cost, each followed by all boxes downstream of it."""
    sequence = latency_sequence(state, boxes)
    return min_cost(state, boxes) if len(sequence) > STEPS_AT_MOST else _as_plan(state, sequence, "min_latency")


def latency_sequence(state: SchedulerState, boxes: Sequence[int]) -> list[int]:
    members = frozenset(boxes)
    cost_ns = state.facts.output_cost_ns
    sequence: list[int] = []
    for box in sorted((b for b in boxes if state.waiting[b]), key=lambda b: (cost_ns[b], b)):
        sequence += [b for b in state.downstream_in_unit(box) if b in members]
        if len(sequence) > STEPS_AT_MOST:
            break
    return sequence


def min_memory(state: SchedulerState, boxes: Sequence[int]) -> Plan:
    """Run the box of the highest memory reduction rate whose queue is not empty, until all queues are empty."""
    members = frozenset(boxes)
    rate, selectivity, fed = state.facts.memory_rate, state.facts.selectivity, state.network.fed
    queued = {b for b in boxes if state.waiting[b]}
    heap = [(-rate[b], b) for b in queued]
    heapify(heap)
    sequence: list[int] = []
    while heap:
        _, box = heappop(heap)
        queued.remove(box)
        sequence.append(box)
        if len(sequence) > STEPS_AT_MOST:
            return min_cost(state, boxes)
        if selectivity[box] > 0:
            for consumer in fed[box]:
                if consumer in members and consumer not in queued:
                    queued.add(consumer)
                    heappush(heap, (-rate[consumer], consumer))
    return _as_plan(state, sequence, "min_memory")


def auto(state: SchedulerState, boxes: Sequence[int]) -> Plan:
    """Compare min_cost and min_latency for this superbox now, and take the better one.

    A longer run also makes the tuples of other superboxes wait. So the extra time of min_latency counts once for every
    tuple that waits elsewhere.
    """
    if state.memory_short:
        return min_memory(state, boxes)
    busy = [b for b in boxes if state.waiting[b]]
    if len(busy) <= 1:
        return min_cost(state, boxes)
    quick = latency_sequence(state, boxes)
    if len(quick) > STEPS_AT_MOST:
        return min_cost(state, boxes)
    waiting = {b: float(state.box_tuples(b)) for b in busy}
    cheap_plan = min_cost(state, boxes)
    cheap, early = predict(state.facts, cheap_plan.boxes, waiting), predict(state.facts, quick, waiting)
    elsewhere = state.waiting_tuples - sum(waiting.values())
    saved_ns = (cheap.latency_ns - early.latency_ns) * cheap.tuples_out
    dearer_ns = (early.total_ns - cheap.total_ns) * elsewhere
    return _as_plan(state, quick, "min_latency") if saved_ns > dearer_ns else cheap_plan


def _as_plan(state: SchedulerState, sequence: Sequence[int], traversal: str) -> Plan:
    tuples, waiting = state.settings.train.tuples, state.waiting
    limits = {b: tuples(state, b) if waiting[b] else ALL for b in set(sequence)}
    return Plan(tuple([Step(b, limits[b]) for b in sequence]), traversal=traversal)


def spanned(state: SchedulerState, unit: int, k: int) -> tuple[int, ...]:
    """Return the top-k spanner: the boxes of the tree that spans the k most urgent boxes of an application and its
    root."""
    busy = [b for b in state.unit_boxes[unit] if state.waiting[b]]
    if len(busy) > k:
        index = state.index
        busy = sorted(busy, key=lambda b: (state.head_ns(b) if index is None else index.urgency(b), b))[:k]
    tree = {b for start in busy for b in state.downstream_in_unit(start)}
    return tuple([b for b in state.unit_boxes[unit] if b in tree])


TRAVERSALS: dict[str, Callable[[SchedulerState, Sequence[int]], Plan]] = {
    "min_cost": min_cost,
    "min_latency": min_latency,
    "min_memory": min_memory,
    "auto": auto,
}
