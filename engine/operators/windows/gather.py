"""Put groups together: the content of windows that close, from the slots of one table or several."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from engine.operators.state.columns import Array, Numbers
from engine.operators.windows.accumulators import Accumulator, Partial
from engine.operators.windows.groups import Gathered, Groups


def gather(
    parts: Sequence[tuple[Groups, Numbers]], order: Numbers | None = None, starts: Numbers | None = None
) -> Gathered:
    """Return the content of the slots of several tables, one after another.

    With ``order`` and ``starts`` the slots are put in that order and merged by segment.
    """
    first = parts[0][0]

    def column(name: str) -> Array:
        whole: Array = _joined([getattr(groups, name).take(slots) for groups, slots in parts])
        return whole if order is None else whole.take(order)

    names = ("key", "rows", "newest_ns", "first_ns", "last_ns")
    key, rows, newest_ns, first_ns, last_ns = [column(name) for name in names]
    if starts is not None:
        key = key.take(starts)
        rows = np.add.reduceat(rows, starts)
        newest_ns = np.maximum.reduceat(newest_ns, starts)
        first_ns = np.minimum.reduceat(first_ns, starts)
        last_ns = np.maximum.reduceat(last_ns, starts)
    partials: list[Partial] = []
    for at, accumulator in enumerate(first.accumulators):
        if accumulator.logged:
            partials.append(_log_entries(parts, at, order, starts))
            continue
        cells = [_joined([g.cells[at][c].take(s, axis=0) for g, s in parts]) for c in range(len(accumulator.cells))]
        if order is not None:
            cells = [c.take(order, axis=0) for c in cells]
        partials.append(cells if starts is None else accumulator.reduce(cells, starts))
    return Gathered(key, rows, newest_ns, first_ns, last_ns, partials)


def _log_entries(
    parts: Sequence[tuple[Groups, Numbers]], at: int, order: Numbers | None, starts: Numbers | None
) -> Partial:
    assert len(parts) == 1, "logs are kept in one table"
    groups, slots = parts[0]
    if order is not None:
        slots = slots.take(order)
    segments = np.arange(slots.shape[0])
    if starts is not None:
        segments = np.searchsorted(starts, segments, "right") - 1
    log = groups.logs[at]
    assert log is not None
    found, columns = log.read(groups.serial.take(slots), segments)
    return [found, *columns]


def take_windows(gathered: Gathered, windows: Numbers, accumulators: Sequence[Accumulator]) -> Gathered:
    """Return only these windows."""
    partials: list[Partial] = []
    for accumulator, partial in zip(accumulators, gathered.partials, strict=True):
        if accumulator.logged:
            place = np.full(gathered.rows.shape[0], -1)
            place[windows] = np.arange(windows.shape[0])
            segments = place.take(partial[0])
            partials.append([p[segments >= 0] for p in (segments, *partial[1:])])
        else:
            partials.append([p.take(windows, axis=0) for p in partial])
    columns = (gathered.key, gathered.rows, gathered.newest_ns, gathered.first_ns, gathered.last_ns)
    key, rows, newest_ns, first_ns, last_ns = [c.take(windows) for c in columns]
    return Gathered(key, rows, newest_ns, first_ns, last_ns, partials)


def _joined(arrays: Sequence[Array]) -> Array:
    return arrays[0] if len(arrays) == 1 else np.concatenate(arrays)
