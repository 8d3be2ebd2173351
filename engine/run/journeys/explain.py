"""The answer to "why was this late?": the slowest sampled tuples of an output, and the boxes that their time went to.

A box is to blame for the time in which it served a tuple, for the time in which its state held one, and for its share
of the workers' time while a tuple waited. A tuple that waits before a fast box waits for the boxes that keep the
workers busy, so its wait is shared out among those.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from catalog.errors import AuroraError, ExpressionError
from catalog.network import Network, Output
from catalog.schema import Type
from engine.operators.expressions import Expression, Scope, compile_expression
from engine.run.journeys.journey import Hop, Journey
from engine.run.journeys.recorder import Follower, Journeys
from qos_monitor.busy import BusyHistory
from router.codecs.encode.text import iso
from scheduler.facts import INFINITE_NS
from storage.train import Train

WINDOW_NS = 60_000_000_000
MOMENT_NS = 10**17
"""A whole number above this is a time of day: no cost and no wait lasts three years."""
ENGINE = "(engine)"
"""Stands for the time that went to no box: admission, handing over, other trains of the same plan."""


NO_JOURNEYS = ("this daemon does not sample journeys", "it was started with engine: {explain: false}")


class ExplainError(AuroraError):
    """A question that cannot be answered."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


def explain(
    journeys: Journeys | None, busy: BusyHistory, network: Network, output: str, where: str, limit: int, now_ns: int
) -> dict[str, Any]:
    """Return the answer of ``/api/v1/explain`` as plain data. Raises ExplainError."""
    if journeys is None:
        raise ExplainError(*NO_JOURNEYS)
    target = network.output(output)
    return answer_for(
        matching(recent(journeys, target.number, now_ns), target, where), busy, network, target, where, limit
    )


def follow(
    journeys: Journeys | None, network: Network, output: str, where: str, found: Callable[[Journey], None]
) -> Callable[[], None]:
    """Call ``found`` with the next journeys to an output for which ``where`` holds, until the returned callable is
    called. Raises ExplainError."""
    if journeys is None:
        raise ExplainError(*NO_JOURNEYS)
    target = network.output(output)
    predicate = _compiled(where, target) if where else None

    def matches(train: Train) -> npt.NDArray[np.intp]:
        mask = None if predicate is None else predicate.mask(Scope(train))
        return np.arange(train.count) if mask is None else np.flatnonzero(mask)

    return journeys.follow(Follower(target.number, matches, found))


def answer_for(
    found: Sequence[Journey], busy: BusyHistory, network: Network, target: Output, where: str, limit: int
) -> dict[str, Any]:
    """Return the answer of ``/api/v1/explain`` for these journeys."""
    slowest = sorted(found, key=lambda j: -j.latency_ns)[:limit]
    return {
        "output": target.name,
        "window_s": WINDOW_NS / 1e9,
        "where": where,
        "policy": network.config.scheduler.policy if network.config is not None else "",
        "sampled": len(found),
        "latency": _quantiles(found),
        "blame": blame(slowest, busy, network),
        "journeys": [_journey_json(journey, network, target) for journey in slowest],
    }


def recent(journeys: Journeys, output: int, now_ns: int) -> list[Journey]:
    """Return the journeys of the last minute: those in the ring, and the slowest, which are kept longer."""
    kept = {id(j): j for j in [*journeys.finished, *(j for _, j in list(journeys.slowest[output]))]}
    return [j for j in kept.values() if j.output == output and now_ns - j.delivered_ns <= WINDOW_NS]


def matching(journeys: Sequence[Journey], output: Output, where: str) -> list[Journey]:
    """Return the journeys for whose fields the predicate ``where`` is true."""
    if not where:
        return list(journeys)
    predicate = _compiled(where, output)
    if not journeys:
        return []
    columns = {f.name: [j.row[i] for j in journeys] for i, f in enumerate(output.schema)}
    mask = predicate.mask(Scope(Train.from_pylists(output.schema, columns, 0)))
    return list(journeys) if mask is None else [j for j, ok in zip(journeys, mask.tolist(), strict=True) if ok]


def _compiled(where: str, output: Output) -> Expression:
    try:
        return compile_expression(where, output.schema, expect=Type.BOOLEAN)
    except ExpressionError as error:
        raise ExplainError(f"where: {error.message}", error.hint) from error


def blame(journeys: Sequence[Journey], busy: BusyHistory, network: Network) -> list[dict[str, Any]]:
    """Return the time of these journeys that went to each box, the most first. The shares add up to 1."""
    box_of_arc = [arc.box for arc in network.arcs]
    serving, waiting, held = (np.zeros(len(network.boxes) + 1) for _ in range(3))  # the last place is the engine's own
    for journey in journeys:
        for part in journey.parts(box_of_arc):
            if part.kind == "service":
                serving[_at(part.box)] += part.ns
            elif part.kind == "held":
                held[_at(part.box)] += part.ns
            elif part.kind in ("wait", "worker"):
                shares = busy.during(part.begun_ns, part.begun_ns + part.ns)
                if shares is None:
                    waiting[_at(part.box)] += part.ns
                else:
                    waiting[:-1] += part.ns * shares
            else:
                serving[-1] += part.ns
    total = serving + waiting + held
    names = [*(box.name for box in network.boxes), ENGINE]
    everything = max(float(total.sum()), 1.0)
    order = sorted(np.flatnonzero(total > 0.0005 * everything).tolist(), key=lambda b: (-total[b], b))
    return [
        {
            "box": names[b],
            "share": float(total[b]) / everything,
            "service_ns": float(serving[b]),
            "waited_for_ns": float(waiting[b]),
            "held_ns": float(held[b]),
        }
        for b in order
    ]


def _at(box: int | None) -> int:
    return -1 if box is None else box


def _quantiles(journeys: Sequence[Journey]) -> dict[str, float]:
    if not journeys:
        return {}
    latencies = np.array([j.latency_ns for j in journeys], np.float64)
    p50, p99 = np.quantile(latencies, (0.5, 0.99)).tolist()
    return {"p50_ns": p50, "p99_ns": p99, "max_ns": float(latencies.max())}


def _journey_json(journey: Journey, network: Network, output: Output) -> dict[str, Any]:
    box_of_arc = [arc.box for arc in network.arcs]
    parts = [p for p in journey.parts(box_of_arc) if p.ns]
    return {
        "latency_ns": journey.latency_ns,
        "stream": network.streams[journey.stream].name,
        "arrival_ns": journey.arrival_ns,
        "delivered_ns": journey.delivered_ns,
        "row": {
            f.name: iso(value) if f.type is Type.TIMESTAMP and value is not None else value
            for f, value in zip(output.schema, journey.row, strict=True)
        },
        "parts": [
            {"kind": p.kind, "box": "" if p.box is None else network.boxes[p.box].name, "ns": p.ns} for p in parts
        ],
        "hops": [_hop_json(hop, network) for hop in journey.hops],
    }


def _hop_json(hop: Hop, network: Network) -> Mapping[str, Any]:
    arc = network.arcs[hop.arc]
    assert arc.box is not None
    return {
        "arc": arc.name,
        "box": network.boxes[arc.box].name,
        "train_tuples": hop.train_tuples,
        "boxes_in_plan": hop.boxes_in_plan,
        "decisions_in_favour_of_others": hop.decisions,
        "priority": describe_priority(hop.priority, hop.dispatched_ns),
        "passed_over_by": [
            {
                "box": network.boxes[p.box].name,
                "times": p.times,
                "priority": describe_priority(p.priority, hop.dispatched_ns),
            }
            for p in hop.passed_over
        ],
    }


def describe_priority(priority: Any, now_ns: int) -> str:
    """Write a policy's key so that people can compare it: the smallest goes first. Empty if the policy has no order.

    A time of day is written as milliseconds before or after ``now_ns``.
    """
    if priority is None:
        return ""
    if isinstance(priority, tuple):
        return ", ".join(describe_priority(p, now_ns) for p in priority)
    if isinstance(priority, int) and priority >= INFINITE_NS:
        return "never"
    if isinstance(priority, int) and priority > MOMENT_NS:
        return f"{(priority - now_ns) / 1e6:+.4g} ms"
    return f"{priority + 0.0:.4g}" if isinstance(priority, float) else str(priority)
