"""The monitor: a tick of 100 ms that reads, folds and publishes.

The tick is arithmetic (``sampler``, ``conservation``); this file is the thread around it and the place where others
pick up what it found. The tick slows down by itself when a network is so large that reading it would take more than
a few per cent of the time: watching must not be the load. What counts is the time that the tick itself took and not
the time that passed: under overload it waits for its turn as everybody does, and that is when it is needed most.

A tick is a millisecond and more of Python when its code has left the caches, and whoever has a tuple to deliver would
wait for half of one until Python's lock is taken from it. So it gives way between its parts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from threading import Event, Thread
from time import thread_time_ns
from typing import Any, Protocol

from catalog.catalog import Catalog
from catalog.readings import Readings
from catalog.shed import Values
from catalog.stats import Floats
from qos_monitor.conservation import LAWS, Persistent
from qos_monitor.histogram import IDEAL_FLOOR_NS
from qos_monitor.report import stats_json
from qos_monitor.sampler import Sample, Sampler, enrich

TICK_NS = 100_000_000
SHARE_OF_TIME = 0.02  # a tick that took 4 ms is followed by at least 200 ms of rest
REST_AT_MOST_NS = 2_000_000_000


class Recorder(Protocol):
    """What the monitor sets on an output's latency recorder."""

    ideal_ns: float


class Monitor:
    """``source`` gives the engine's raw readings; it is called on the monitor's thread and on those of HTTP.

    ``recorders`` are the outputs' latency recorders, by number. ``on_sample`` hears of each tick on the monitor's
    thread (the load shedder's door). ``on_error`` hears of a tick that failed; the monitor has ended then.
    ``give_way`` lets the other threads of the process go first.
    """

    def __init__(
        self,
        catalog: Catalog,
        source: Callable[[], Readings],
        recorders: Sequence[Recorder] = (),
        *,
        on_sample: Callable[[Sample, Readings], None] | None = None,
        on_error: Callable[[BaseException], None] | None = None,
        give_way: Callable[[], None] = lambda: None,
        tick_ns: int = TICK_NS,
    ) -> None:
        self.catalog = catalog
        self.recorders = recorders
        self.sample: Sample | None = None
        self.values: Callable[[], Mapping[int, Values]] = dict  # by arc with drops by value: what the tuples are worth
        self.residuals: dict[str, int] = dict.fromkeys(LAWS, 0)
        self._source = source
        self._sampler = Sampler(catalog.epoch)
        self._persistent = Persistent()
        self._on_sample = on_sample
        self._on_error = on_error
        self._give_way = give_way
        self._tick_ns = tick_ns
        self._stop = Event()
        self._thread: Thread | None = None
        first = catalog.stats  # declared costs are a better ideal than none, until the first tick
        self._set_ideals(catalog.load.ideal_ns(first.cost_per_call_ns, first.cost_per_tuple_ns))

    # -- one tick -----------------------------------------------------------------------------------------------------

    def tick(self) -> Sample | None:
        """Read once and fold. Monitor thread, or whoever drives it by hand (tests, the simulator)."""
        epoch = self.catalog.epoch
        if self._sampler.epoch is not epoch:
            self._sampler, self._persistent, self.sample = Sampler(epoch), Persistent(), None
        readings = self._source()
        self._give_way()
        self.residuals = self._persistent.by_law(readings)
        self._sampler.values = self.values()
        self._give_way()
        sample = self._sampler.fold(readings, self._give_way)
        if sample is None:
            return None
        self._set_ideals(sample.output_ideal_ns)
        self.sample = sample
        self._give_way()
        if self._on_sample is not None:
            self._on_sample(sample, readings)
        return sample

    def _set_ideals(self, ideals_ns: Floats) -> None:
        for recorder, ideal_ns in zip(self.recorders, ideals_ns.tolist(), strict=False):
            recorder.ideal_ns = max(ideal_ns, IDEAL_FLOOR_NS)

    # -- what others read -----------------------------------------------------------------------------------------

    def readings(self) -> Readings:
        """A fresh reading with rates, load and shares. Any thread."""
        return enrich(self._source(), self.sample, self.catalog.epoch)

    def stats(self) -> dict[str, Any]:
        """What ``/api/v1/stats`` answers. Any thread."""
        epoch, sample = self.catalog.epoch, self.sample
        return stats_json(enrich(self._source(), sample, epoch), sample, epoch, self.residuals)

    # -- the thread ---------------------------------------------------------------------------------------------------

    def start(self) -> None:
        assert self._thread is None, "started twice"
        self._thread = Thread(target=self._run, name="aurorad-monitor", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        try:
            run_ticks(self.tick, self._stop.wait, thread_time_ns, self._tick_ns)
        except BaseException as error:  # handed over, not swallowed
            if self._on_error is None:
                raise
            self._on_error(error)


def run_ticks(
    tick: Callable[[], object], wait: Callable[[float], bool], clock_ns: Callable[[], int], tick_ns: int
) -> None:
    """Tick and rest until ``wait`` (seconds in, True: stop) says so."""
    while True:
        began_ns = clock_ns()
        tick()
        took_ns = clock_ns() - began_ns
        if wait(rest_ns(took_ns, tick_ns) / 1e9):
            return


def rest_ns(took_ns: int, tick_ns: int) -> int:
    """How long to rest after a tick: to the next one, and long enough to stay within the share of time."""
    return max(tick_ns - took_ns, min(int(took_ns / SHARE_OF_TIME), REST_AT_MOST_NS), 1_000_000)
