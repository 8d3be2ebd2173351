"""When rows of a bulk job may enter: at the pace that was asked for, and never in the way of live tuples.

``pace`` is ``as_fast``, ``realtime``, or a speed such as ``10x``. A pace replays by event time: the first row enters at
once and every other one so much later as its event time is later, divided by the speed. A row that comes out of order
enters with the rows around it: time does not go back. Rows of one turn (20 ms) enter together; where a turn ends is
a matter of the event times alone, so that the same rows make the same trains whenever they are sent.

Live tuples come first. A bulk job always has more rows, so it would fill every queue, and a live tuple would wait
behind all of them. So its rows enter in short trains, and only while the queues are short (``may_enter``): what a
live tuple can meet in front of it is a train or two. The executors feel that through TCP.
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
LOOK_SECONDS = 0.0005  # how soon a job that stood back looks again
TURN_NS = 20_000_000
WAIT_SECONDS = 0.25


class StoppedError(Exception):
    """The job was cancelled, or another attempt has taken its place."""


def parse_pace(text: str) -> float:
    """The speed; 0 for as fast as can be. Raises ValueError."""
    if text == "as_fast":
        return 0.0
    if text == "realtime":
        return 1.0
    match = re.fullmatch(r"(\d+(?:\.\d+)?)x", text)
    if match is None or float(match[1]) <= 0:
        raise ValueError(f"a pace is as_fast, realtime or a speed such as 10x, not {text}")
    return float(match[1])


class Pacer:
    """Of one job. ``column``: where the event time is; ``speed`` 0: no pace."""

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
        self._begin: tuple[int, int] | None = None  # (our clock, event time) of the first row
        self.yielded_ns = 0

    def trains(self, train: Train, stopped: Event) -> Iterator[Train]:
        """The rows in trains, each when it may enter, stamped with that moment. Raises StoppedError."""
        at = 0
        due = self._due(train)
        while at < train.count:
            stop = min(at + TRAIN_ROWS, train.count)
            if due is not None:
                turn_end_ns = (int(due[at]) // TURN_NS + 1) * TURN_NS
                stop = at + max(1, int(np.searchsorted(due[at:stop], turn_end_ns)))
                self._wait_until(int(due[at]), stopped)
            self._stand_back(stopped)
            part = train.slice(at, stop)
            yield Train(
                part.schema, part.columns, constant_ns(self._now_ns(), stop - at), valid=part.valid, pools=part.pools
            )
            at = stop

    def _stand_back(self, stopped: Event) -> None:
        if self._may_enter() and not stopped.is_set():
            return
        begun_ns = time.monotonic_ns()
        while not self._may_enter():
            if stopped.wait(LOOK_SECONDS):
                break
        self.yielded_ns += time.monotonic_ns() - begun_ns
        if stopped.is_set():
            raise StoppedError

    def _due(self, train: Train) -> npt.NDArray[np.int64] | None:
        """How long after the first row of the job each may enter."""
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
                raise StoppedError
