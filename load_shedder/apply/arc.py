"""The drops on one arc: a mask over each train that is put on it, and the counts of the dropped tuples by reason.

``keep`` runs on the thread that moves the arc's trains, one thread at a time: the box before the arc runs in one plan
at a time, and a stream's arcs are under the router's lock. The monitor thread sets the drop. Any thread reads the
counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from catalog.loss import DROP_REASONS, DropReason
from catalog.network import Arc
from load_shedder.apply.picks import RandomPick, ValuePick, WindowPick
from load_shedder.decide.values import Valuation
from load_shedder.record.losses import ArcLosses, WindowGrid
from load_shedder.shed_plan import Drop
from storage.train import NO_WATERMARK, Train

Flags = npt.NDArray[np.bool_]
Times = npt.NDArray[np.int64]


class ArcDrops:
    def __init__(
        self, arc: Arc, seed: int, valuation: Valuation | None, grids: Sequence[WindowGrid], losses: ArcLosses | None
    ) -> None:
        """``grids`` are the windows behind the arc that must be dropped whole. ``losses`` is None when no windowed box
        lies behind it."""
        self.arc = arc
        self.drop: Drop | None = None  # by the plan in force; None: the plan drops nothing here
        self.dropped: dict[DropReason, int] = dict.fromkeys(DROP_REASONS, 0)
        self.latest_ns = NO_WATERMARK  # the latest event time seen here
        self._valuation = valuation
        self._random = RandomPick(seed)
        self.values = ValuePick(seed)
        self._grids = tuple(grids)
        self._windows: WindowPick | None = None
        self._losses = losses
        self._time = None if not arc.time_field else arc.schema.index(arc.time_field)
        self._has_time = arc.time_field != ""

    def set(self, drop: Drop | None) -> None:
        """Drop this share from now on. Any thread; a train in progress still goes by the old drop."""
        if drop is not None and drop.place.manner == "windows":
            windows = self._windows
            if windows is None or windows.span_ns < drop.place.window_ns:
                self._windows = WindowPick(self._grids, drop.place.window_ns)
            elif self.drop is None and not windows.is_open(self.latest_ns):
                windows.begin()
        if drop is not None and self.drop is None and self._losses is not None:
            for counts in self._losses.panes.values():
                counts.first = None
        self.drop = drop

    @property
    def is_over(self) -> bool:
        """Whether the mask may go: nothing is to be dropped, and no window that was dropped in part is still open."""
        return self.drop is None and (self._windows is None or not self._windows.is_open(self.latest_ns))

    @property
    def total(self) -> int:
        return sum(self.dropped.values())

    def keep(self, train: Train) -> Train:
        """Return the train without its dropped tuples. It may be empty and still carry a watermark."""
        if not train.count:
            return train
        reason, flags, times_ns = self._flags(train)
        gone = 0 if flags is None else int(np.count_nonzero(flags))
        if flags is None or not gone:
            if self._losses is not None and self._losses.panes:
                self._note(train, np.zeros(train.count, np.bool_), times_ns)
            return train
        if self._losses is not None:
            self._note(train, flags, times_ns)
        self.dropped[reason] += gone
        return train.slice(0, 0) if gone == train.count else train.where(~flags)

    def note_lost(self, train: Train) -> None:
        """Note that all tuples of this train are missing behind the arc; another counter has them."""
        if self._losses is not None:
            self._note(train, np.ones(train.count, np.bool_), self._times(train))

    def lose(self, train: Train, reason: DropReason) -> Train:
        """Drop the whole train, for this reason. Return what is left of it: its watermark."""
        self.note_lost(train)
        self.dropped[reason] += train.count
        return train.slice(0, 0)

    def observe(self, train: Train) -> None:
        """Sample the values of this train, while nothing is dropped by value."""
        if self._valuation is not None and train.count:
            self.values.observe(self._valuation(train))

    def _flags(self, train: Train) -> tuple[DropReason, Flags | None, Times | None]:
        """Return the reason, the tuples that go (None: none of them), and the event times where they are needed."""
        drop = self.drop
        times_ns = self._times(train) if self._losses is not None or self._windows is not None else None
        manner = "windows" if drop is None else drop.place.manner  # windows dropped in part still end as they began
        share = 0.0 if drop is None else drop.share
        if manner == "windows" and self._windows is not None and times_ns is not None:
            if times_ns.shape[0]:
                self.latest_ns = max(self.latest_ns, int(times_ns.max()))
            return "window", self._timed(self._windows, train, times_ns, share), times_ns
        if share <= 0.0:
            return "shed", None, times_ns
        if manner == "semantic" and self._valuation is not None:
            return "semantic", self.values.pick(self._valuation(train), share), times_ns
        return "shed", self._random.pick(train.count, share), times_ns

    def _timed(self, windows: WindowPick, train: Train, times_ns: Times, share: float) -> Flags | None:
        """Pick by window. A tuple without an event time is in no window, so it stays; the box behind counts it."""
        valid = None if self._time is None else train.null_mask(self._time)
        if valid is None:
            return windows.pick(times_ns, share)
        flags = np.zeros(train.count, np.bool_)
        if times_ns.shape[0]:
            flags[valid] = windows.pick(times_ns, share)
        return flags

    def _times(self, train: Train) -> Times | None:
        """Return the event times that are not NULL; None when the arc has no event time any more."""
        if not self._has_time:
            return None
        if self._time is None:
            return train.arrival_ns
        valid = train.null_mask(self._time)
        times_ns: Times = train.columns[self._time]
        return times_ns if valid is None else times_ns[valid]

    def _note(self, train: Train, flags: Flags, times_ns: Times | None) -> None:
        assert self._losses is not None
        if times_ns is None or not times_ns.shape[0]:
            return
        valid = None if self._time is None else train.null_mask(self._time)
        self._losses.note(times_ns, flags if valid is None else flags[valid])

    def snapshot(self) -> dict[str, Any]:
        return {str(reason): count for reason, count in self.dropped.items()}

    def restore(self, data: dict[str, Any]) -> None:
        self.dropped |= {reason: int(data.get(reason, 0)) for reason in DROP_REASONS}
