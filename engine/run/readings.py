"""The engine's counters at this moment, as plain data (``catalog/readings.py``).

This module reads counters that other threads write, without a lock: a reading that is one train behind does no harm.
Any thread.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from catalog.readings import ArcReading, BoxReading, SchedulerReading, WorkerReading

if TYPE_CHECKING:
    from engine.run.core import Engine

USUAL_EVERY_NS = 1_000_000_000


class EngineReadings:
    def __init__(self, engine: Engine, asked_policy: str) -> None:
        self._engine = engine
        self._asked_policy = asked_policy
        self._traversed: tuple[int, dict[str, int], str] = (
            0,
            {},
            "min_cost",
        )  # (since, the plans by traversal then, the usual one)

    def boxes(self) -> list[BoxReading]:
        return [runtime.reading() for runtime in self._engine.runtimes]

    def arcs(self) -> list[ArcReading]:
        """Return the queues, with the tuples that the shed plan dropped on their way to them."""
        engine = self._engine
        readings = engine.storage.readings([arc.name for arc in engine.network.arcs])
        for number, skipped in engine.ingress.skipped():  # an index has looked at them instead of the box
            mine = readings[number]
            readings[number] = mine._replace(enqueued=mine.enqueued + skipped, dequeued=mine.dequeued + skipped)
        for number, shed in list(engine.shedding.by_arc.items()):
            if dropped := {str(reason): count for reason, count in shed.dropped.items() if count}:
                mine = readings[number]
                for reason, count in mine.shed.items():
                    dropped[reason] = dropped.get(reason, 0) + count
                # A tuple that is dropped on its way to a queue counts as put on it: the arc's conservation law holds.
                enqueued = mine.enqueued + sum(dropped.values()) - sum(mine.shed.values())
                readings[number] = mine._replace(enqueued=enqueued, shed=dropped)
        return readings

    def workers(self) -> list[WorkerReading]:
        pool = self._engine.pool
        return [
            WorkerReading(i, *counts)
            for i, counts in enumerate(zip(pool.busy_ns, pool.plans, pool.replaced, strict=True))
        ]

    def scheduler(self) -> SchedulerReading:
        engine = self._engine
        loop, state, pool = engine.loop, engine.state, engine.pool
        boxes_ns = sum(runtime.cost_ns for runtime in engine.runtimes)
        return SchedulerReading(
            policy=engine.choice.policy,
            unit=state.settings.unit,
            steps=loop.steps,
            decision_ns=loop.decision_ns,
            decision_counts=tuple(loop.decision_counts),
            execution_queue=pool.execution_queue.qsize(),
            scheduler_ns=loop.decision_ns,
            storage_ns=loop.storage_ns,
            worker_ns=max(0, sum(pool.busy_ns) + pool.caller_ns - boxes_ns),
            asked=self._asked_policy,
            reason=engine.choice.reason,
            changes=engine.changes,
            traversal=self._usual_traversal(),
            plans=dict(state.traversed),
            plans_by={"scheduler": state.dispatched, "idle": loop.idle_plans},
            train=state.settings.train.kind,
            train_scale=state.train_scale,
            train_limit=min(state.auto_tuples, default=0),
            caller_ns=pool.caller_ns,
        )

    def _usual_traversal(self) -> str:
        """Return the traversal of most plans of the last second. With ``auto`` that is what the scheduler chose."""
        since_ns, before, usual = self._traversed
        now_ns, plans = self._engine.now_ns(), dict(self._engine.state.traversed)
        if now_ns - since_ns >= USUAL_EVERY_NS:
            usual = max(plans, key=lambda name: plans[name] - before.get(name, 0), default=usual)
            self._traversed = now_ns, plans, usual
        return usual
