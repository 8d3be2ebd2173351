"""Decide when the rows of a bulk job may enter: at the requested pace, and without delaying live tuples.

``pace`` is ``as_fast``, ``realtime``, or a speed such as ``10x``. Apart from ``as_fast`` it replays by event time. The
first row enters at once. Each other row enters later by the difference of the event times, divided by the speed. A row
out of order enters with the rows around it: time does not go back. Rows within a turn of 20 ms enter together. Only the
event times decide where a turn ends, so the same rows make the same trains whenever they are sent.

Live tuples have priority. A bulk job always has more rows. It would fill every queue, and a live tuple would wait
behind all of them. So its rows enter in short trains, and only while the queues are short (``may_enter``): at most a
train or two is in front of a live tuple. Meanwhile the daemon does not read the connection, so TCP makes the executor
wait.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from threading import Event

import numpy as np
import numpy.typing as npt

from storage.train import Train, constant_ns

TRAIN_ROWS = 8_192
RETRY_SECONDS = 0.0005  # how soon a job that yields looks at the queues again
TURN_NS = 20_000_000
WAIT_SECONDS = 0.25


class JobStoppedError(Exception):
    """The job was cancelled, or another attempt has taken its place."""


def parse_pace(text: str) -> float:
    """Return the speed; 0 for ``as_fast``. Raises ValueError."""
    if text == "as_fast":
        return 0.0
    if text == "realtime":
        return 1.0
    match = re.fullmatch(r"(\d+(?:\.\d+)?)x", text)
    if match is None or float(match[1]) <= 0:
        raise ValueError(f"a pace is as_fast, realtime or a speed such as 10x, not {text}")
    return float(match[1])


class Pacer:
    """The pace of one job. ``column`` holds the event time; ``speed`` 0 means as fast as possible."""

    def __init__(
        self,
        may_enter: Callable[[], bool],
        now_ns: Callable[[], int],
        *,
        speed: float = 0.0,
        column: int | None = None,
    ) -> None:
        assert not speed or column is not None
        self._may_enter = may_enter
        self._now_ns = now_ns
        self._speed = speed
        self._column = column
        self._begin: tuple[int, int] | None = None  # (the daemon's clock, event time) of the first row
        self.yielded_ns = 0

    def trains(self, train: Train, stopped: Event) -> Iterator[Train]:
        """Yield the rows in trains, each when it may enter, stamped with that moment. Raises JobStoppedError."""
        at = 0
        due = self._due(train)
        while at < train.count:
            stop = min(at + TRAIN_ROWS, train.count)
            if due is not None:
                turn_end_ns = (int(due[at]) // TURN_NS + 1) * TURN_NS
                stop = at + max(1, int(np.searchsorted(due[at:stop], turn_end_ns)))
                self._wait_until(int(due[at]), stopped)
            self._yield_to_live(stopped)
            part = train.slice(at, stop)
            yield Train(
                part.schema, part.columns, constant_ns(self._now_ns(), stop - at), valid=part.valid, pools=part.pools
            )
            at = stop

    def _yield_to_live(self, stopped: Event) -> None:
        if self._may_enter() and not stopped.is_set():
            return
        begun_ns = time.monotonic_ns()
        while not self._may_enter():
            if stopped.wait(RETRY_SECONDS):
                break
        self.yielded_ns += time.monotonic_ns() - begun_ns
        if stopped.is_set():
            raise JobStoppedError

    def _due(self, train: Train) -> npt.NDArray[np.int64] | None:
        """Return how long after the first row of the job each row may enter."""
        if not self._speed or not train.count:
            return None
        assert self._column is not None
        times = np.maximum.accumulate(train.columns[self._column])
        if self._begin is None:
            self._begin = (self._now_ns(), int(times[0]))
        due: npt.NDArray[np.int64] = ((times - self._begin[1]) / self._speed).astype(np.int64)
        return due

    def _wait_until(self, due_ns: int, stopped: Event) -> None:
        assert self._begin is not None
        while (early_ns := self._begin[0] + due_ns - self._now_ns()) > 0:
            if stopped.wait(min(early_ns / 1e9, WAIT_SECONDS)):
                raise JobStoppedError
