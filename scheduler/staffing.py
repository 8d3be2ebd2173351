"""How many workers are at work: another one only where measurement says that it pays (``workers: auto``).

Two workers under the GIL do more than one where most of the time goes into kernels that release it, and less where
trains are short: 0.6 to 1.9 times, by network and by load. So it is tried out. While one worker is busy all the time
and more waits, the engine runs for short windows with one worker and with two, in turn, and compares what was done a
second. Work is tuples, weighted by the time that a tuple of its unit took before the trial: the same for both sides.

- A second worker stays when the two have done ``PAYS`` times as much. The trial is repeated, because the load changes:
  soon at first, then with ever longer times in between. A trial with a clear outcome ends after its first round, and
  the next one waits until it has cost no more than a hundredth (``COST_SHARE``).
- Windows in which the workers had nothing to do for a while prove nothing, and the trial is given up. Under overload
  (``is_pressed``) the shedder sees to it that little waits. Then what was done in a second of the workers' own time
  counts, or tuples would be shed for lack of a worker that is there.
- When the load falls below what one worker does with ease, one worker is enough.

With more than two workers the same is asked for each step from n to n + 1.

Owner: the thread that has the scheduler's turn. Time is an argument.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

PAYS = 1.1
FULL = 0.9  # the share of a window in which the workers ran, from which they count as full
PRESSED = 0.6  # the same under overload
EASY = 0.7  # of one worker's time less than the present number: below this one of them is not needed
LOOK_NS = 50_000_000  # a window outside of trials
FULL_LOOKS = 4  # in a row, before a trial: a short burst is over before a trial could help
WINDOW_NS = 10_000_000  # at least, in a trial
LEAST_PLANS = 4  # in a window, for each worker
LONGEST_WINDOW_NS = 500_000_000
ROUNDS = 3  # of a trial: a window of each side
CLEAR = (0.95, 1.3)  # what the two have done over what one has done, outside of which one round is enough
FIRST_REST_NS = 1_000_000_000
LAST_REST_NS = 60_000_000_000
COST_SHARE = 0.01


class Staffing:
    """``most`` workers at most. ``employ`` sets how many work from now on."""

    def __init__(self, most: int, employ: Callable[[int], None]) -> None:
        self._most = most
        self._employ = employ
        self.settled = 1  # workers, trials left out
        self.is_pressed = False  # there is overload; the monitor says so
        self.trials = 0
        self._at_work = 1
        self._reference_ns: Sequence[float] = ()  # by unit, a tuple's time before the trial; empty: no trial
        self._side_ns = {0: 0, 1: 0}  # time and work of the trial's windows with one worker less and one more
        self._side_work = {0: 0.0, 1: 0.0}
        self._rounds = 0
        self._lower = 1  # the trial compares this number with the next one
        self._begun_ns = 0  # of the window
        self._plans = 0
        self._ran_ns = 0
        self._work = 0.0
        self._full_looks = 0
        self._rest_ns = FIRST_REST_NS
        self._next_ns = 0  # no trial before this

    def finished(self, units: Sequence[int], tuples: int, ran_ns: int) -> None:
        """Note that a plan has ended."""
        self._plans += 1
        self._ran_ns += ran_ns
        if self._reference_ns:
            self._work += tuples * self._reference_ns[units[0]]

    def look(self, now_ns: int, tuple_ns: Sequence[float], more_waits: bool) -> None:
        """End a window that is long enough, and decide. ``more_waits``: the execution queue is full."""
        elapsed_ns = now_ns - self._begun_ns
        if self._reference_ns:
            if not more_waits and not self.is_pressed:
                self._give_up(now_ns)
            elif elapsed_ns >= WINDOW_NS and self._plans >= LEAST_PLANS * self._at_work:
                self._end_window(now_ns, elapsed_ns)
            elif elapsed_ns >= LONGEST_WINDOW_NS:
                self._give_up(now_ns)
        elif elapsed_ns >= LOOK_NS:
            busy = self._ran_ns / elapsed_ns  # in workers
            full = PRESSED if self.is_pressed else FULL
            is_full = (more_waits or self.is_pressed) and busy >= full * self._at_work
            self._full_looks = self._full_looks + 1 if is_full else 0
            if self._full_looks >= FULL_LOOKS and now_ns >= self._next_ns:
                self._begin_trial(tuple_ns)
            elif busy < EASY * (self._at_work - 1):
                self.settled -= 1
                self._set(self.settled)
            self._begin_window(now_ns)

    # -- a trial ------------------------------------------------------------------------------------------------------

    def _begin_trial(self, tuple_ns: Sequence[float]) -> None:
        is_up = self.settled < self._most and (self.settled == 1 or self.trials % 2 == 0)
        self._lower = self.settled if is_up else self.settled - 1
        self.trials += 1
        self._reference_ns = list(tuple_ns)
        self._side_ns, self._side_work, self._rounds = {0: 0, 1: 0}, {0: 0.0, 1: 0.0}, 0
        self._set(self._lower)

    def _end_window(self, now_ns: int, elapsed_ns: int) -> None:
        side = self._at_work - self._lower
        self._side_ns[side] += self._ran_ns // self._at_work if self.is_pressed else elapsed_ns
        self._side_work[side] += self._work
        self._rounds += side
        if self._rounds >= ROUNDS or (side and not CLEAR[0] <= self._gain <= CLEAR[1]):
            self._end_trial(now_ns)
        else:
            self._set(self._lower + 1 - side)
        self._begin_window(now_ns)

    def _end_trial(self, now_ns: int) -> None:
        gain, before = self._gain, self.settled
        self.settled = self._lower + (gain > PAYS)
        self._reference_ns = ()
        self._set(self.settled)
        lost_ns = abs(1.0 - gain) * self._side_ns[self.settled == self._lower]
        self._rest_ns = min(2 * self._rest_ns, LAST_REST_NS) if self.settled == before else FIRST_REST_NS
        self._next_ns = now_ns + max(self._rest_ns, int(lost_ns / COST_SHARE))

    @property
    def _gain(self) -> float:
        """What one worker more has done in the trial, over what was done without it."""
        less, more = (self._side_work[side] / max(self._side_ns[side], 1) for side in (0, 1))
        return more / less if less else 1.0

    def _give_up(self, now_ns: int) -> None:
        self._reference_ns = ()
        self._set(self.settled)
        self._next_ns = now_ns + self._rest_ns
        self._begin_window(now_ns)

    def _set(self, workers: int) -> None:
        if workers != self._at_work:
            self._at_work = workers
            self._employ(workers)

    def _begin_window(self, now_ns: int) -> None:
        self._begun_ns, self._plans, self._ran_ns, self._work = now_ns, 0, 0, 0.0
