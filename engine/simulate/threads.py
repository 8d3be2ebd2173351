"""The daemon's threads in a simulation, as far as a tuple feels them: the GIL, the I/O thread, the workers, the cores.

- The GIL. All overheads and the part of a box's cost that does not grow with the train need it, so they
  run one after the other. The work on the tuples needs no GIL and runs side by side; a worker that comes back from it
  needs the GIL again. A thread that finds the GIL taken sleeps, is woken when it is released, and may find it taken
  once more: a thread that is awake (the I/O thread with its next read, a worker with its next plan) is there first.
  After ``SWITCH_NS`` Python gives the GIL to the thread that asks.
- The I/O thread, where there is one (``Overheads.admit_ns``). It takes in one read after the other, and takes the idle
  fast path where nothing waits and nothing runs (``engine/run/idle_path``). With nothing to read it sleeps. The next
  read wakes it and finds cold caches. A read is stamped when the thread has it, and the GIL: its wait before that is
  not measured, here or there.
- The scheduler's thread. It sleeps while there is nothing that it could decide. To wake it costs time, for the thread
  that wakes it and until it takes its step. The time of the step itself is added to the plan.
- Workers. To wake one that sleeps costs time, for the thread that wakes it and until the worker runs. A worker that has
  ended a plan takes the next one at once.
- Cores. Where there are more threads than cores, the threads share them evenly. Threads also slow each other down where
  there are enough cores: the system runs a thread near the one that woke it (``Overheads.sharing``).
"""

from __future__ import annotations

from statistics import median

from engine.run.tuning import SWITCH_INTERVAL_S
from engine.simulate.overheads import Overheads

SWITCH_NS = int(SWITCH_INTERVAL_S * 1e9)
GOLDEN = 0.6180339887498949  # the fractional parts of its multiples lie evenly between 0 and 1


class SimulatedThreads:
    """Who is at work, and until when. Owner: the simulation, which passes the virtual time in."""

    def __init__(self, overheads: Overheads, workers: int, start_ns: int) -> None:
        self.has_io = overheads.admit_ns > 0
        self.idle = workers  # workers that run no plan ...
        self.waking = 0  # ... and how many of these have been woken
        self.lock_ns = start_ns  # until when the GIL is held
        self.io_ns = start_ns  # until when the I/O thread is busy
        self.io_busy_ns = 0  # time that the I/O thread has been busy, with anything
        self._overheads = overheads
        self._workers = workers
        self._start_ns = start_ns
        self._is_crowded = workers + self.has_io > overheads.cores or overheads.sharing > 0
        self._lock_is_io = False  # the I/O thread holds the GIL
        self._io_slept = False  # the I/O thread sleeps before the next read
        self._woken = [int(ns) for ns in overheads.woken_ns]
        self._again_ns = int(median(overheads.woken_ns))  # to wake a thread that slept on the GIL: its core is free

    # -- the GIL ------------------------------------------------------------------------------------------------------

    def lock_free_ns(self, now_ns: int) -> int:
        """Return when a thread that wants the GIL now has it."""
        return max(now_ns, self.lock_ns)

    def hold_as_io(self, until_ns: int) -> None:
        """Have the I/O thread busy, and holding the GIL, until then."""
        self.io_ns = self.lock_ns = until_ns
        self._lock_is_io = True

    def hold_as_worker(self, until_ns: int) -> None:
        """Have a worker hold the GIL until then."""
        self.lock_ns = until_ns
        self._lock_is_io = False

    def must_wait(self, now_ns: int, since_ns: int) -> bool:
        """Return whether a thread that has wanted the GIL since then has to go on sleeping."""
        return self.lock_ns > now_ns and now_ns - since_ns < SWITCH_NS

    @property
    def retry_ns(self) -> int:
        """When a thread that sleeps on the GIL runs again."""
        return self.lock_ns + self._again_ns

    # -- the I/O thread -----------------------------------------------------------------------------------------------

    def read_ns(self, due_ns: int, number: int) -> int:
        """Return when a read is taken in: at once if the I/O thread is awake, else after it was woken."""
        if not self.has_io:
            return due_ns
        self._io_slept = due_ns > self.io_ns
        return due_ns + self.woken_ns(number) if self._io_slept else self.io_ns

    def io_must_wait(self, now_ns: int, due_ns: int) -> bool:
        """Return whether the I/O thread has to sleep on the GIL before it takes in a read that is due."""
        if self.lock_ns <= now_ns or self._lock_is_io or not self.has_io:
            return False
        return self.must_wait(now_ns, max(due_ns, self.io_ns))

    @property
    def cold_ns(self) -> float:
        """The extra cost of the next read if the I/O thread has slept."""
        return self._overheads.cold_ns if self._io_slept else 0.0

    # -- workers ------------------------------------------------------------------------------------------------------

    def wake(self, now_ns: int, workers: int) -> int:
        """Wake workers that sleep. Return when the scheduler's thread is done with it."""
        self.waking += workers
        awake_ns = now_ns + int(self._overheads.wake_ns * workers)
        self.lock_ns = max(self.lock_ns, awake_ns)
        return awake_ns

    def wake_scheduler(self, now_ns: int, by_io: bool) -> int:
        """Wake the scheduler's thread. Return when the thread that brought the news (I/O or a worker) goes on."""
        awake_ns = self.lock_free_ns(now_ns) + int(self._overheads.wake_ns)
        if by_io:
            self.hold_as_io(awake_ns)
        else:
            self.hold_as_worker(awake_ns)
        return awake_ns

    def woken_ns(self, number: int) -> int:
        """Return how long a thread that slept takes until it runs, the ``number``-th time.

        The system is quick where it finds a free core near, and ten times as slow where it finds none. Each measured
        time comes up as often as it was measured, spread evenly over any number of times, and without chance.
        """
        woken = self._woken
        return woken[int(number * GOLDEN % 1.0 * len(woken))]

    # -- the cores ----------------------------------------------------------------------------------------------------

    def stretch(self, now_ns: int) -> float:
        """Return how many times as long work on tuples takes now.

        The I/O thread has its share of the cores; the workers share the rest.
        """
        if not self._is_crowded:
            return 1.0
        io_share = min(1.0, self.io_busy_ns / max(now_ns - self._start_ns, 1))
        at_work = self._workers - self.idle  # with the one that asks
        shared = 1.0 + self._overheads.sharing * (io_share + at_work - 1)
        return max(1.0, at_work / max(self._overheads.cores - io_share, 0.5), shared)
