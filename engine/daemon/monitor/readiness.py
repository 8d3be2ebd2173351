"""Readiness: whether the daemon takes tuples and works them off, check by check, each with its reason.

``/ready`` answers 503 while any check fails, and names it; ``aurorad_ready`` has one sample for each check. A check
that fails may pass again later, except where it says that a restart is needed.

| check | fails |
|---|---|
| state | while the daemon starts or drains, and after the engine has failed |
| disk | while the log refuses tuples or would: the disk is full, or the log has failed (until a restart) |
| workers | when a worker does not run, or a box processes nothing any more (until a restart) |
| connections | while every place is taken, so that a new sender or reader is refused |
| scheduler | when the scheduler has failed (until a restart), or has not taken a turn for five seconds |

Any thread.
"""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic
from typing import TYPE_CHECKING

from catalog.readings import ReadinessReading
from engine.run.core import Engine
from router.server import Server

if TYPE_CHECKING:
    from engine.daemon.durable.keeper import Keeper

TURN_SECONDS = 5.0


class Readiness:
    """``state`` returns why the daemon as a whole takes no tuples: "starting", "draining", "failed", or nothing."""

    def __init__(self, engine: Engine, server: Server, keeper: Keeper | None, state: Callable[[], str]) -> None:
        self._engine = engine
        self._server = server
        self._keeper = keeper
        self._state = state
        self._turns = -1  # the scheduler's count when it was looked at last ...
        self._unmoved_s: float | None = None  # ... and since when it has not moved although there was something to do

    def checks(self) -> dict[str, str]:
        """Return, by check, the reason why the daemon is not ready; empty where it is."""
        state = self._state()
        is_running = state not in ("starting", "failed")
        return {
            "state": state,
            "disk": "" if self._keeper is None else self._keeper.disk_trouble,
            "workers": self._workers() if is_running else "",
            "connections": self._connections(),
            "scheduler": self._scheduler() if is_running else "",
        }

    def reading(self) -> ReadinessReading:
        places, committer = self._server.places, None if self._keeper is None else self._keeper.committer
        return ReadinessReading(
            checks=self.checks(),
            connections=len(places),
            connections_limit=places.limit,
            workers_alive=self._engine.pool.alive,
            log_pending_bytes=0 if committer is None else committer.pending_bytes,
        )

    def _workers(self) -> str:
        pool = self._engine.pool
        failed = [f"box {r.node.name}: {why}" for r in self._engine.runtimes if (why := r.box.failure(r.state))]
        if (missing := len(pool.busy_ns) - pool.alive) > 0:
            failed.insert(0, f"{missing} of {len(pool.busy_ns)} workers do not run")
        return ", ".join(failed)

    def _connections(self) -> str:
        places = self._server.places
        return f"all {places.limit} places are taken (limits.connections)" if places.is_full else ""

    def _scheduler(self) -> str:
        loop, now = self._engine.loop, monotonic()
        if loop.failure is not None:
            return f"it has failed: {loop.failure}"
        if loop.turns != self._turns or loop.is_at_rest:  # at rest it takes no turn
            self._turns, self._unmoved_s = loop.turns, None
            return ""
        self._unmoved_s = now if self._unmoved_s is None else self._unmoved_s
        waited = now - self._unmoved_s
        return f"no turn for {waited:.0f} s" if waited > TURN_SECONDS else ""
