"""Move everything that a change keeps from the old engine to the new one: states, counts, waiting tuples, clocks.

The caller has stopped the world: no plan of the old engine runs and none is started (``SchedulerLoop.paused``), nothing
enters (``Ingress.closed``), and the new engine has not started. Nothing is copied: the states and the queues themselves
change hands, so the time that it takes depends on the number of boxes and not on their content. Afterwards the old
engine must not run again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from catalog.network import Arc, Network
from engine.run.change.compare import Change
from engine.run.core import Engine
from router.event_time import EventTime
from storage.queue import ArcQueue


class MovedNumbers(NamedTuple):
    """From the numbers of the new network to those of the old one."""

    streams: Mapping[int, int]
    boxes: Mapping[int, int]
    outputs: Mapping[int, int]


def moved_numbers(before: Network, after: Network, change: Change) -> MovedNumbers:
    return MovedNumbers(
        {after.stream(now).number: before.stream(was).number for now, was in change.streams.items()},
        {after.box(now).number: before.box(was).number for now, was in change.boxes.items()},
        {after.output(now).number: before.output(was).number for now, was in change.outputs.items()},
    )


def move(
    old: Engine, new: Engine, change: Change, event_times: tuple[EventTime, EventTime] | None = None
) -> dict[str, int]:
    """Move what is kept. Returns the tuples that waited on arcs which are gone, by the arc's name: they are dropped.

    ``event_times`` are those of the old and of the new engine.
    """
    numbers = moved_numbers(old.network, new.network, change)
    old.loop.retire()
    for now, was in change.boxes.items():
        new.runtimes[new.network.box(now).number].take_over(old.runtimes[old.network.box(was).number])
    for now, was in change.copied_boxes.items():
        new.runtimes[new.network.box(now).number].copy_state(old.runtimes[old.network.box(was).number])
    kept_boxes = set(change.boxes.values())
    for runtime in old.runtimes:
        if runtime.node.name not in kept_boxes:
            runtime.retire()
    if event_times is not None:
        event_times[1].take_over(event_times[0], numbers.streams)
    arcs = _same_arcs(old.network, new.network, change)
    behind = [old.storage.waiting_behind(arc.number) for arc in old.network.arcs]
    _move_losses(old, new, arcs, change)
    for here, there in numbers.outputs.items():
        new.deliveries[here].cost_ns = old.deliveries[there].cost_ns
        new.deliveries[here].replayed = old.deliveries[there].replayed
    _move_counts(old, new)
    old.ingress.hand_over(new.ingress, numbers.streams)
    _move_queues(old, new, arcs)
    kept = set(arcs.values())
    gone = [arc for arc in old.network.arcs if arc.number not in kept]
    waited = {arc.name: old.storage.queues[arc.number].tuples + behind[arc.number] for arc in gone}
    return {name: tuples for name, tuples in waited.items() if tuples}


def _same_arcs(before: Network, after: Network, change: Change) -> dict[int, int]:
    """Return the arcs whose waiting tuples stay, from new to old: the same input of the same box, with the same
    fields. The tuples may have come from elsewhere: they were on their way to this box when the change came. Several
    new arcs have one old arc where a box was one for several and is not any more."""
    by_end = {_end(before, arc): arc for arc in before.arcs if arc.box is not None}
    found: dict[int, int] = {}
    for arc in after.arcs:
        if arc.box is not None:
            name, port = _end(after, arc)
            was = by_end.get((change.same_boxes.get(name, ""), port))
            if was is not None and was.schema == arc.schema:
                found[arc.number] = was.number
    return found


def _end(network: Network, arc: Arc) -> tuple[str, int]:
    assert arc.box is not None
    return network.boxes[arc.box].name, arc.port


def _move_queues(old: Engine, new: Engine, arcs: Mapping[int, int]) -> None:
    """Move the queues with their trains, and announce the trains to the new scheduler."""
    queues: dict[int, ArcQueue] = {}
    taken: set[int] = set()
    for now, was in arcs.items():
        queues[now] = old.storage.queues[was].copy() if was in taken else old.storage.queues[was]
        if was in taken:
            queues[now].enqueued += old.storage.waiting_behind(was)
        taken.add(was)
    new.storage.take_over(queues)
    new.storage.take_over_blocks(old.storage, arcs)
    new.storage.peak_bytes = max(new.storage.peak_bytes, old.storage.peak_bytes)
    for arc, queue in queues.items():
        for train, lease in queue.entries:
            new.announce((arc,), train, lease.nbytes)


def _move_losses(old: Engine, new: Engine, arcs: Mapping[int, int], change: Change) -> None:
    """Move the counts of dropped tuples, and the record of what open windows lack. The shedder plans anew."""
    data = old.shedding.snapshot()
    names = {old.network.arcs[was].name: new.network.arcs[now].name for now, was in reversed(list(arcs.items()))}
    names |= _direct_arcs(old.network, new.network, change)
    boxes = {was: now for now, was in change.boxes.items()}
    moved: dict[str, dict[str, Any]] = {
        "arcs": {names[name]: drops for name, drops in data["arcs"].items() if name in names},
        "losses": {names[name]: losses for name, losses in data["losses"].items() if name in names},
        "withheld": {boxes[name]: count for name, count in data["withheld"].items() if name in boxes},
    }
    new.shedding.restore(moved)


def _direct_arcs(before: Network, after: Network, change: Change) -> dict[str, str]:
    """Return the arcs to kept outputs, by their names, from old to new."""
    return {
        before.arcs[before.output(was).arc].name: after.arcs[after.output(now).arc].name
        for now, was in change.outputs.items()
    }


def _move_counts(old: Engine, new: Engine) -> None:
    """Let the counts of the scheduler and of the workers go on: metrics never go back."""
    for number in range(min(len(old.pool.busy_ns), len(new.pool.busy_ns))):
        new.pool.busy_ns[number] = old.pool.busy_ns[number]
        new.pool.plans[number] = old.pool.plans[number]
        new.pool.replaced[number] = old.pool.replaced[number]
    new.pool.caller_ns = old.pool.caller_ns
    for name in ("steps", "idle_plans", "turns", "decision_ns", "decision_counts", "storage_ns"):
        setattr(new.loop, name, getattr(old.loop, name))
    new.state.dispatched = old.state.dispatched
    new.state.traversed.update(old.state.traversed)
    new.changes = old.changes
