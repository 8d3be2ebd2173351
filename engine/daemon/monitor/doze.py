"""When the daemon is at rest, so that the monitor need not tick ten times a second, and what wakes it.

The monitor dozes (``qos_monitor/loop``) while nothing can change before the next tuple comes:

- No tuple came, waits, runs or left since the last tick.
- The load is fine, and nothing is dropped: by no shed plan, and not at the edge.
- Time alone closes nothing. A box with a time-out, or with open windows behind a stream whose watermark moves in
  silence, still gets its ticks; when its windows are closed, nothing waits for time any more.

The first train that enters rings the alarm of the ingress, on the thread that brings it. Before the train is stamped,
the silent streams get the watermarks that the ticks would have given them. Then the monitor wakes.

Owner: the monitor's thread. ``_ring`` runs on the thread that brings a train.
"""

from __future__ import annotations

from collections.abc import Callable

from catalog.readings import Readings
from engine.run.core import Engine
from engine.run.ticker import Ticker
from router.event_time import EventTime

PAUSE_SECONDS = 0.1
SETTLE_SECONDS = 0.1  # until the watermarks that the last tick has moved are through


class Doze:
    """``is_fine`` tells whether there is no overload, and nothing is dropped for one."""

    def __init__(self, engine: Engine, event_time: EventTime, ticker: Ticker, is_fine: Callable[[], bool]) -> None:
        self._engine = engine
        self._ticker = ticker
        self._is_fine = is_fine
        self._counts: tuple[int, ...] = ()  # of tuples at the last look
        self._moves_in_silence = any(clock is not None and clock.idle_ns is not None for clock in event_time.clocks)
        boxes = [runtime.box for runtime in engine.runtimes]
        by_clock = [box.needs_clock for box in boxes]
        by_time = [box.needs_time and self._moves_in_silence for box in boxes]
        self._timed = [r for r, *needs in zip(engine.runtimes, by_clock, by_time, strict=True) if any(needs)]

    def is_quiet(self, readings: Readings) -> bool:
        """Tell whether no tuple has moved since the last look, and none waits. Called at every tick."""
        streams, outputs = readings.streams, readings.outputs
        counts = (
            *(s.received for s in streams),
            *(s.admitted for s in streams),
            *(o.emitted for o in outputs),
            *(sum(r.delivered + r.dropped for r in o.subscribers) for o in outputs),
        )
        has_moved, self._counts = counts != self._counts, counts
        return not has_moved and self._is_fine() and self._engine.is_quiet()

    def begin(self, wake: Callable[[], None]) -> bool:
        """Set the alarm, if nothing waits for time. False: the monitor must not doze."""
        if not self._engine.drain(SETTLE_SECONDS) or self._waits_for_time():
            return False
        ingress = self._engine.ingress
        admitted = sum(ingress.admitted)
        ingress.alarm = lambda: self._ring(wake)
        if self._engine.is_quiet() and sum(ingress.admitted) == admitted:
            return True
        ingress.alarm = None  # a train came before the alarm was set
        return False

    def end(self) -> None:
        self._engine.ingress.alarm = None

    def _ring(self, wake: Callable[[], None]) -> None:
        self._ticker.tick(self._engine.now_ns())
        wake()

    def _waits_for_time(self) -> bool:
        """Tell whether a box holds tuples that time alone brings out. Nothing runs meanwhile: a state may be read."""
        if not self._timed:
            return False
        engine = self._engine
        try:
            with engine.loop.paused(PAUSE_SECONDS):
                if engine.state.outstanding or not engine.loop.mailbox.is_empty:
                    return True
                return any(r.box.held_tuples(r.state) for r in self._timed)
        except TimeoutError:
            return True
