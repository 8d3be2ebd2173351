"""``policy: auto`` in the daemon: a thread that watches utility, asks the simulator, and switches the policy.

A forecast computes in Python and holds the GIL, so it takes time from the workers, and just when they have too little
of it. The thread limits that in four ways. It makes no forecast while utility is good. Its forecasts are short
(``STEPS``), and take at most ``SHARE`` of the time, however large the network is. Within a forecast it computes for a
millisecond and then sleeps for nine. (A sleep as long as the work cost a network of 50 outputs a fifth of its utility
at three times the knee: workers waited for the GIL.) It has the scheduler's turn only while it copies the queues.
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
from engine.run.core import Engine
from engine.simulate.arrivals import READS_PER_S, Trains
from engine.simulate.chooser import Chooser, waiting_worth
from engine.simulate.what_if import RECENT_NS, Snapshot, WaitingTuples, WhatIf, waiting_now
from scheduler.choice import Choice, FeltLevel, Pressure

log = logging.getLogger("aurorad.scheduler")

TICK_S = 0.1
REST_S = 1.0  # while nothing waits or runs
SHARE = 0.05
STEPS = (800, 3_000)  # of a candidate in the short round and in the long one
COMPUTE_NS, SLEEP = 1_000_000, 9.0  # within a forecast: at a time, and how many times as long it sleeps then
RECENT_AT_MOST = 20_000  # trains
SETTLE_NS = 2_000_000_000  # from the first tuple until the rates, and the shed plan of an overload, mean something
STOP_S = 15.0
BASE_NS = 3_600_000_000_000
"""The time of a snapshot: an hour. Times so small are exact as floats, and earlier arrivals are still positive."""


class _Ended(Exception):
    """Raised to break off a forecast when the daemon stops."""


class Autopilot:
    """Chooses the policy of an engine. Its thread owns the chooser; any other thread calls ``stop``."""

    def __init__(
        self,
        engine: Engine,
        statistics: Statistics,
        latencies: Callable[[], Sequence[LatencyReading]],
        now_ns: Callable[[], int],
    ) -> None:
        self._engine = engine
        self._felt = [1.0] * len(engine.network.outputs)  # by output: utility by latency, when it last got something
        self._felt_before: Sequence[LatencyReading] = ()
        self._has_graph = [o.qos.latency is not None for o in engine.network.outputs]
        self._statistics = statistics
        self._latencies = latencies
        self._now_ns = now_ns
        self._ended = Event()
        self._slept_ns = 0  # processor time at the end of the last pause
        workers = len(engine.pool.busy_ns)
        self._what_if = WhatIf(
            engine.network,
            settings=engine.state.settings,
            workers=workers,
            let_others_work=self._let_others_work,
            steps=STEPS,
        )
        self.chooser = Chooser(engine.network, self._what_if, now_ns(), first_looks=0)
        self._before: Sequence[LatencyReading] = ()  # at the last look
        self._recent_trains: deque[tuple[int, int, int]] = deque(maxlen=RECENT_AT_MOST)
        self._begun_ns = now_ns()
        engine.ingress.recent = self._recent_trains
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
            while not self._ended.wait(REST_S if self._engine.loop.is_at_rest else TICK_S):
                self.tick()
        except _Ended:
            pass
        except Exception:  # the engine can do without forecasts: tuples go on under the present policy
            log.exception("choosing a policy failed: policy %s stays", self._engine.choice.policy)

    def tick(self) -> None:
        """Look for a better policy if that is due, and switch to it."""
        chooser, now_ns = self.chooser, self._now_ns()
        if not self._statistics.rate_per_s.any():
            chooser.not_before(now_ns + SETTLE_NS)
        before = chooser.choice.policy
        if (back := chooser.feel(now_ns, self._feel())) is not None:
            self._follow(before, back)
            return
        if not chooser.is_due(now_ns):
            return
        begun_ns = self._slept_ns = thread_time_ns()
        self._what_if.workers = self._engine.workers_at_work
        with self._engine.loop.paused():
            waiting = waiting_now(self._engine.state)
            worth = waiting_worth(self._engine.state, now_ns)
        utility, pressure = self._news()
        found = chooser.look(
            now_ns, min(utility, worth), lambda: self._snapshot(now_ns, waiting), self._statistics, pressure
        )
        spent_ns = thread_time_ns() - begun_ns
        chooser.not_before(now_ns + int(spent_ns / SHARE))
        log.debug("looked for a better policy than %s: %d ms of processor time", before, spent_ns / 1e6)
        if found is not None:
            self._follow(before, found)

    def _follow(self, before: str, choice: Choice) -> None:
        self._engine.follow(*choice)
        log.info("policy %s instead of %s: %s", choice.policy, before, choice.reason)

    def _feel(self) -> FeltLevel:
        """Return what the outputs get now: their mean utility by latency, less what the shed plan costs them."""
        now = self._latencies()
        before, self._felt_before = self._felt_before or [LatencyReading()] * len(now), now
        for number, (a, b) in enumerate(zip(before, now, strict=True)):
            if b.tuples > a.tuples:
                self._felt[number] = (b.utility_sum - a.utility_sum) / (b.tuples - a.tuples)
        lost = self._engine.shedding.plan.loss / max(len(self._felt), 1)
        mean = sum(self._felt) / max(len(self._felt), 1)
        return FeltLevel(mean - lost, float(self._statistics.rate_per_s.sum()))

    def _news(self) -> tuple[float, Pressure]:
        """Return the mean utility of the outputs that got something since the last look (1 if none did), and how short
        the engine is of memory, of speed and of time to its deadlines."""
        now = self._latencies()
        before, self._before = self._before or [LatencyReading()] * len(now), now
        news = [(a, b, b.tuples - a.tuples) for a, b in zip(before, now, strict=True)]
        utilities = [(b.utility_sum - a.utility_sum) / n for a, b, n in news if n > 0]
        waits = [
            (b.slowdown_sum - a.slowdown_sum) / n
            for (a, b, n), has in zip(news, self._has_graph, strict=False)
            if n > 0 and not has
        ]
        tuples = sum(n for _, _, n in news if n > 0)
        storage = self._engine.storage
        pressure = Pressure(
            storage.held_bytes / max(storage.budget_bytes, 1),
            sum(waits) / len(waits) if waits else 1.0,
            sum(b.missed - a.missed for a, b, _ in news) / tuples if tuples > 0 else 0.0,
        )
        return sum(utilities) / len(utilities) if utilities else 1.0, pressure

    def _snapshot(self, now_ns: int, waiting: Sequence[WaitingTuples]) -> Snapshot:
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
            self._engine.shedding.plan,
            self._engine.shedding.values(),
        )

    def _recent(self, now_ns: int) -> tuple[dict[int, Trains], int]:
        """Return the recent trains of each stream, and the time that they cover."""
        noted = list(self._recent_trains)
        since_ns = max(self._begun_ns, now_ns - RECENT_NS)
        if len(noted) == RECENT_AT_MOST:
            since_ns = max(since_ns, noted[0][0])
        rows = np.array([row for row in noted if since_ns <= row[0] < now_ns], np.int64).reshape(-1, 3)
        by_stream = {int(s): rows[rows[:, 1] == s] for s in np.unique(rows[:, 1])}
        return {s: (np.sort(part[:, 0]), part[:, 2]) for s, part in by_stream.items()}, now_ns - since_ns

    def _let_others_work(self) -> None:
        if self._ended.is_set():
            raise _Ended
        spent_ns = thread_time_ns() - self._slept_ns
        if spent_ns > COMPUTE_NS:
            sleep(SLEEP * spent_ns / 1e9)
            self._slept_ns = thread_time_ns()
