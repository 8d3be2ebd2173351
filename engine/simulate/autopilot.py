"""``policy: auto`` in a simulation: measures rates and health as the daemon does, and asks the same chooser."""

from __future__ import annotations

from engine.simulate.chooser import Chooser, waiting_worth
from engine.simulate.core import Simulation
from engine.simulate.what_if import RECENT_NS, Snapshot, waiting_now
from scheduler.policies import policies

RATE_MEMORY = 0.7  # weight of the rate before; looks are half a second apart or more


class SimulatedAutopilot:
    """Ticked by the simulation; switches its policy between two steps."""

    def __init__(self, simulation: Simulation, chooser: Chooser) -> None:
        self._simulation = simulation
        self._chooser = chooser
        streams = len(simulation.network.streams)
        self._rates = [0.0] * streams
        self._reads = [1.0] * streams
        self._before = [(0, 0)] * streams  # tuples and trains
        self._begun_ns = self._before_ns = simulation.now_ns
        self._delivered = [(0.0, 0.0)] * len(simulation.recorders)  # utility and tuples until the last look
        simulation.tickers.append(self.tick)

    def tick(self) -> None:
        simulation, chooser = self._simulation, self._chooser
        now_ns = simulation.now_ns
        if not chooser.is_due(now_ns):
            return
        self._measure(now_ns)
        found = chooser.look(now_ns, self._health(now_ns), lambda: self._snapshot(now_ns), simulation.statistics)
        if found is not None:
            simulation.loop.follow(policies()[found.policy])

    def _measure(self, now_ns: int) -> None:
        """Measure how fast tuples come, and how many in one read."""
        elapsed_s = (now_ns - self._before_ns) / 1e9
        if elapsed_s <= 0:
            return
        came = list(zip(self._simulation.came_tuples, self._simulation.came_trains, strict=True))
        for stream, ((tuples, trains), (tuples0, trains0)) in enumerate(zip(came, self._before, strict=True)):
            rate = (tuples - tuples0) / elapsed_s
            known = self._before_ns > 0
            self._rates[stream] = RATE_MEMORY * self._rates[stream] + (1 - RATE_MEMORY) * rate if known else rate
            if trains > trains0:
                self._reads[stream] = (tuples - tuples0) / (trains - trains0)
        self._before, self._before_ns = came, now_ns

    def _health(self, now_ns: int) -> float:
        """Return the mean utility of the outputs since the last look, or of what waits now, whichever is less."""
        simulation = self._simulation
        for recorder in simulation.recorders:
            recorder.fold()
        before, self._delivered = self._delivered, [(r.utility, r.tuples) for r in simulation.recorders]
        found = [(u - u0) / (n - n0) for (u, n), (u0, n0) in zip(self._delivered, before, strict=True) if n > n0]
        return min(sum(found) / len(found) if found else 1.0, waiting_worth(simulation.state, now_ns))

    def _snapshot(self, now_ns: int) -> Snapshot:
        recent_ns = min(now_ns - self._begun_ns, RECENT_NS)
        recent = self._simulation.came_since(now_ns - recent_ns)
        waiting = waiting_now(self._simulation.state)
        drops = self._simulation.execution.drops
        return Snapshot(now_ns, waiting, tuple(self._rates), tuple(self._reads), recent, recent_ns, drops.plan)
