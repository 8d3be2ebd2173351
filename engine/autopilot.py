"""``policy: auto`` in the daemon: a thread of its own that looks, asks the simulator, and switches the policy.

A forecast is arithmetic in Python and holds its lock, so it takes from the workers. It is therefore rare (not while all
is well; and at most ``SHARE`` of the time goes into it, however large the network), and it sleeps as long as it
computes. The scheduler's turn is held only to copy what waits.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Sequence
from threading import Event, Thread
from time import sleep, thread_time_ns

import numpy as np

from catalog.readings import LatencyReading
from catalog.stats import Statistics
from engine.chooser import Chooser, waiting_worth
from engine.core import Engine
from engine.simulate.arrivals import READS_PER_S, Trains
from engine.simulate.what_if import RECENT_NS, Snapshot, Waiting, WhatIf, waiting_now

log = logging.getLogger("aurorad.scheduler")

TICK_S = 0.1
SHARE = 0.05
NOTED_AT_MOST = 20_000  # trains
SETTLE_NS = 1_000_000_000  # from the first tuple until its rate is worth anything
STOP_S = 15.0
BASE_NS = 3_600_000_000_000
"""What now is in a snapshot: small numbers, so that arithmetic in floats stays exact, with room for what has waited."""


class _Ended(Exception):
    """The daemon stops in the middle of a forecast."""


class Autopilot:
    """Its thread owns the chooser; ``stop`` from any other."""

    def __init__(
        self,
        engine: Engine,
        statistics: Statistics,
        latencies: Callable[[], Sequence[LatencyReading]],
        now_ns: Callable[[], int],
    ) -> None:
        self._engine = engine
        self._statistics = statistics
        self._latencies = latencies
        self._now_ns = now_ns
        self._ended = Event()
        self._breathed_ns = 0
        workers = len(engine.pool.busy_ns)
        what_if = WhatIf(engine.network, settings=engine.state.settings, workers=workers, breathe=self._breathe)
        self.chooser = Chooser(engine.network, what_if, now_ns())
        self._told = (0.0, 0)
        self._noted: deque[tuple[int, int, int]] = deque(maxlen=NOTED_AT_MOST)
        self._begun_ns = now_ns()
        engine.routes.noted = self._noted
        self._thread = Thread(target=self._run, name="aurorad-chooser", daemon=True)

    def start(self) -> None:
        log.info("policy %s: %s", *self.chooser.choice)
        self._thread.start()

    def stop(self) -> None:
        self._ended.set()
        if self._thread.is_alive():
            self._thread.join(STOP_S)

    def _run(self) -> None:
        try:
            while not self._ended.wait(TICK_S):
                self.tick()
        except _Ended:
            pass
        except Exception:  # forecasting is a luxury: whatever is wrong with it, tuples go on under the policy there is
            log.exception("the policy stays as it is: choosing another failed")

    def tick(self) -> None:
        chooser, now_ns = self.chooser, self._now_ns()
        if not self._statistics.rate_per_s.any():
            chooser.not_before(now_ns + SETTLE_NS)
        if not chooser.is_due(now_ns):
            return
        before, begun_ns = chooser.choice.policy, thread_time_ns()
        self._breathed_ns = begun_ns
        with self._engine.loop.held():
            waiting = waiting_now(self._engine.state)
            worth = waiting_worth(self._engine.state, now_ns)
        found = chooser.look(
            now_ns, min(self._utility(), worth), lambda: self._snapshot(now_ns, waiting), self._statistics
        )
        spent_ns = thread_time_ns() - begun_ns
        chooser.not_before(now_ns + int(spent_ns / SHARE))
        log.debug("looked for a better policy than %s: %d ms of processor time", before, spent_ns / 1e6)
        if found is not None:
            self._engine.follow(*found)
            log.info("policy %s instead of %s: %s", found.policy, before, found.reason)

    def _utility(self) -> float:
        """Of what came out since the last look."""
        readings = self._latencies()
        utility, tuples = sum(r.utility_sum for r in readings), sum(r.tuples for r in readings)
        before = self._told
        self._told = utility, tuples
        return (utility - before[0]) / (tuples - before[1]) if tuples > before[1] else 1.0

    def _snapshot(self, now_ns: int, waiting: Sequence[Waiting]) -> Snapshot:
        moved_ns = BASE_NS - now_ns
        rates = self._statistics.rate_per_s.tolist()
        recent, recent_ns = self._recent(now_ns)
        return Snapshot(
            BASE_NS,
            tuple(
                w._replace(first_ns=max(0, w.first_ns + moved_ns), mean_ns=max(0, w.mean_ns + moved_ns))
                for w in waiting
            ),
            tuple(rates),
            tuple(max(1.0, rate / READS_PER_S) for rate in rates),
            {stream: (times + moved_ns, tuples) for stream, (times, tuples) in recent.items()},
            recent_ns,
        )

    def _recent(self, now_ns: int) -> tuple[dict[int, Trains], int]:
        """What came of late by stream, and over how long that was."""
        noted = list(self._noted)
        since_ns = max(self._begun_ns, now_ns - RECENT_NS)
        if len(noted) == NOTED_AT_MOST:
            since_ns = max(since_ns, noted[0][0])
        rows = np.array([row for row in noted if since_ns <= row[0] < now_ns], np.int64).reshape(-1, 3)
        by_stream = {int(s): rows[rows[:, 1] == s] for s in np.unique(rows[:, 1])}
        return {s: (np.sort(part[:, 0]), part[:, 2]) for s, part in by_stream.items()}, now_ns - since_ns

    def _breathe(self) -> None:
        if self._ended.is_set():
            raise _Ended
        spent_ns = thread_time_ns() - self._breathed_ns
        if spent_ns > 1_000_000:
            sleep(spent_ns / 1e9)
            self._breathed_ns = thread_time_ns()
