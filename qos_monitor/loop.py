"""The monitor: a tick of 100 ms that reads, folds and publishes.

The tick itself is arithmetic (``sampler``, ``conservation``). This module holds the thread around it and the results
that other threads read. On a network so large that a tick would take more than a few per cent of the time, ticks become
rarer: monitoring must not become the load. The measure is the CPU time of the tick and not the time that passed: under
overload the monitor thread waits for the GIL like every other thread, and that is when its verdict is needed most.

A tick is a millisecond or more of Python when its code has left the caches. A thread with a tuple to deliver would wait
half of that for the GIL. So the tick releases the GIL between its parts.

When nothing has happened for a second, the monitor dozes: it ticks once a second until it is woken. At rest ten ticks a
second and their releases of the GIL were 70 wake-ups and 1 % of a core, for nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from threading import Event, Thread
from time import sleep, thread_time_ns
from typing import Any, Protocol

from catalog.catalog import Catalog
from catalog.loss import ValueCells
from catalog.readings import Readings
from catalog.stats import Floats
from qos_monitor.bills import Ledger
from qos_monitor.conservation import LAWS, PersistentBreaches
from qos_monitor.histogram import IDEAL_FLOOR_NS
from qos_monitor.report import bills_json, stats_json
from qos_monitor.sampler import Sample, Sampler, enrich

TICK_NS = 100_000_000
SHARE_OF_TIME = 0.02  # at least 200 ms pass after a tick that took 4 ms
REST_AT_MOST_NS = 2_000_000_000
DOZE_AFTER_TICKS = 10
DOZE_FACTOR = 10  # how many times as long the monitor rests between two ticks while it dozes
DOZE_AT_MOST_S = 20.0
YIELD_GIL_S = 20e-6  # long enough for a waiting thread to wake up and take the GIL


class RecorderSettings(Protocol):
    """The part of an output's latency recorder that the monitor sets."""

    ideal_ns: float
    lag_ns: int


class Rest(Protocol):
    """Knows whether the engine is at rest (``engine/daemon/monitor/doze``)."""

    def is_quiet(self, readings: Readings) -> bool:
        """Tell whether nothing has happened since the last tick. Called at every tick."""

    def begin(self, wake: Callable[[], None]) -> bool:
        """Have ``wake`` called when anything happens. False when the monitor must go on ticking."""

    def end(self) -> None:
        """Forget ``wake``."""


def release_gil() -> None:
    """Let another thread of the process run."""
    sleep(YIELD_GIL_S)


class Monitor:
    """``source`` returns the engine's raw readings; the monitor thread and the HTTP threads call it.

    ``recorders`` are the outputs' latency recorders, by number. ``values`` returns the worth of tuples, by arc with
    drops by value. ``on_sample`` receives each sample on the monitor thread; the load shedder runs there. ``on_error``
    receives the error of a failed tick; the monitor has ended then. ``yield_gil`` lets the other threads run. Without
    ``rest`` the monitor never dozes. ``ledger`` goes on with the bills of the network before.
    """

    def __init__(
        self,
        catalog: Catalog,
        source: Callable[[], Readings],
        recorders: Sequence[RecorderSettings] = (),
        *,
        values: Callable[[], Mapping[int, ValueCells]] | None = None,
        on_sample: Callable[[Sample, Readings], None] | None = None,
        on_error: Callable[[BaseException], None] | None = None,
        yield_gil: Callable[[], None] = release_gil,
        tick_ns: int = TICK_NS,
        rest: Rest | None = None,
        ledger: Ledger | None = None,
    ) -> None:
        self.catalog = catalog
        self.ledger = ledger or Ledger(catalog.epoch)
        self.recorders = recorders
        self.sample: Sample | None = None
        self.residuals: dict[str, int] = dict.fromkeys(LAWS, 0)
        self._source = source
        self._values = values
        self._sampler = Sampler(catalog.epoch)
        self._persistent = PersistentBreaches()
        self._on_sample = on_sample
        self._on_error = on_error
        self._release_gil = yield_gil
        self._tick_ns = tick_ns
        self._rest = rest
        self._quiet_ticks = 0  # in a row
        self.is_dozing = False
        self._bell = Event()  # rung to stop the monitor, or to end its doze
        self._is_over = False
        self._thread: Thread | None = None
        first = catalog.stats  # until the first tick, declared costs give a better ideal than none
        self._set_ideals(catalog.load.ideal_ns(first.cost_per_call_ns, first.cost_per_tuple_ns))

    # -- one tick -----------------------------------------------------------------------------------------------------

    def tick(self) -> Sample | None:
        """Read once and fold. Runs on the monitor thread, or on the caller's (tests, the simulator)."""
        epoch = self.catalog.epoch
        if self._sampler.epoch is not epoch:
            self._sampler, self._persistent, self.sample = Sampler(epoch), PersistentBreaches(), None
            self.ledger = Ledger(epoch)
        readings = self._source()
        for recorder, output in zip(self.recorders, readings.outputs, strict=False):
            recorder.lag_ns = output.lag_ns
        self._yield_gil()
        self._quiet_ticks = self._quiet_ticks + 1 if self._rest is not None and self._rest.is_quiet(readings) else 0
        self.residuals = self._persistent.by_law(readings)
        if self._values is not None:
            self._sampler.values = self._values()
        self._yield_gil()
        sample = self._sampler.fold(readings, self._yield_gil)
        if sample is None:
            return None
        self._set_ideals(sample.output_ideal_ns)
        self.sample = sample
        self._yield_gil()
        self.ledger.fold(readings)
        self._yield_gil()
        if self._on_sample is not None:
            self._on_sample(sample, readings)
        return sample

    def _set_ideals(self, ideals_ns: Floats) -> None:
        for recorder, ideal_ns in zip(self.recorders, ideals_ns.tolist(), strict=False):
            recorder.ideal_ns = max(ideal_ns, IDEAL_FLOOR_NS)

    # -- results --------------------------------------------------------------------------------------------------

    def readings(self) -> Readings:
        """Return a fresh reading with rates, load, shares and bills. Any thread."""
        readings = enrich(self._source(), self.sample, self._sampler.epoch)
        return readings._replace(billing=self.ledger.reading(readings))

    def bills(self) -> dict[str, Any]:
        """Return the answer of ``/api/v1/bills``. Any thread."""
        return bills_json(self.readings(), self._sampler.epoch.network)

    def stats(self) -> dict[str, Any]:
        """Return the answer of ``/api/v1/stats``. Any thread."""
        epoch, sample = self._sampler.epoch, self.sample  # the source's own network, also while the next one takes over
        return stats_json(enrich(self._source(), sample, epoch), sample, epoch, self.residuals)

    # -- the thread ---------------------------------------------------------------------------------------------------

    def start(self) -> None:
        assert self._thread is None, "started twice"
        self._thread = Thread(target=self._run, name="aurorad-monitor", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._is_over = True
        self._bell.set()
        if self._thread is not None:
            self._thread.join()

    def wake(self) -> None:
        """End the monitor's doze. Any thread."""
        self._quiet_ticks = 0
        self._bell.set()

    def _wait(self, seconds: float) -> bool:
        """Rest, for longer while nothing happens. True when the monitor is to end."""
        rest = self._rest
        self.is_dozing = rest is not None and self._quiet_ticks >= DOZE_AFTER_TICKS and rest.begin(self.wake)
        if self._quiet_ticks and self._quiet_ticks % DOZE_AFTER_TICKS == 0 and not self.is_dozing:
            self._quiet_ticks = 0  # something waits for time: look again in a second
        self._bell.wait(min(seconds * DOZE_FACTOR, DOZE_AT_MOST_S) if self.is_dozing else seconds)
        self._bell.clear()
        if self.is_dozing and rest is not None:
            rest.end()
        return self._is_over

    def _yield_gil(self) -> None:
        if not self.is_dozing:  # else no thread waits for it
            self._release_gil()

    def _run(self) -> None:
        try:
            run_ticks(self.tick, self._wait, thread_time_ns, self._tick_ns)
        except BaseException as error:  # reported, not swallowed
            if self._on_error is None:
                raise
            self._on_error(error)


def run_ticks(
    tick: Callable[[], object], wait: Callable[[float], bool], clock_ns: Callable[[], int], tick_ns: int
) -> None:
    """Tick and rest until ``wait``, which takes seconds, returns True."""
    while True:
        began_ns = clock_ns()
        tick()
        took_ns = clock_ns() - began_ns
        if wait(rest_ns(took_ns, tick_ns) / 1e9):
            return


def rest_ns(took_ns: int, tick_ns: int) -> int:
    """Return the rest after a tick: until the next one, and long enough to stay within the share of time."""
    return max(tick_ns - took_ns, min(int(took_ns / SHARE_OF_TIME), REST_AT_MOST_NS), 1_000_000)
