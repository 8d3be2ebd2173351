"""Decide which share of each stream's rows is decoded: when decoding is full, no drop behind it helps.

A stream that is late at the edge gets a smaller share at once: what decoding can do, by the cost of a row (the *room*).
If it is still late when the rows from before have left, it gets a twentieth less. A share that was too large is
remembered as a *ceiling*, relative to the room: near it the share rises slowly, so that it settles a little below what
holds. When decoding can do all of the demand, the share comes back to 1 fast.

A stream whose share leaves part of the room free is late because of a hiccup, of this machine or of its sender: a
smaller share would not help. It is lowered only if it stays late. Rows that a hiccup makes overdue are dropped anyway.
No share goes below ``BY_COST`` of the room, however late the rows are, unless the I/O thread is full: with less in use
the decoder is idle, and a drop frees only time that is there already.

Streams that may not be shed at the edge come first: their decoding is taken from the room of the others. The others get
the same share each.

A stream whose outputs must lose nothing waits some ticks longer: a short burst is not worth a lost row. Where the
demand fits by the cost of a row, a stream is late because of a hiccup, and its rows wait longer still.

``steer_edge`` is a pure function of the last state and the load.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from catalog.edge_load import EdgeLoad

FULL = 0.98  # of the decode thread's time, that may be planned for: rows that come too late for it become overdue
BY_COST, IO_FULL = 0.75, 0.8  # of the room; of the I/O thread's time
LATE_TICKS, STRICT_TICKS = 2, 4  # in a row, before rows are dropped
FITS_TICKS = 5  # times as many, where the demand fits
USED, HICCUP_TICKS = 0.9, 5  # of the room: with less in use, this many late ticks in a row are a hiccup
DOWN, UP, UP_SLOWLY = 0.95, 1.25, 1.015  # of the share, in a tick
NEAR = 0.95  # of the ceiling: from here on the share rises slowly
LEAST = 0.01
SETTLE_NS = 400_000_000  # after a change: the rows from before may still be late
FORGET_CEILING_NS = 3_000_000_000


class StreamShare(NamedTuple):
    share: float = 1.0
    late_ticks: int = 0  # in a row
    ceiling: float = 1.0  # the share that was too large last, over the room at that time
    lowered_ns: int = 0  # when


def steer_edge(
    before: Sequence[StreamShare], load: EdgeLoad, strict: Sequence[bool], floors: Sequence[float] = ()
) -> tuple[StreamShare, ...]:
    """Return the next shares by stream. ``strict`` says which streams lead to an output that must lose nothing,
    ``floors`` which share an output with ``max_error`` needs: no stream goes below it, and the others get less."""
    least = [floors[i] if floors else 0.0 for i in range(len(load.streams))]
    equal = _room(load, least)
    by_cost = 0.0 if load.resources.get("io", 0.0) >= IO_FULL else BY_COST
    found = []
    for i, stream in enumerate(load.streams):
        was = before[i] if i < len(before) else StreamShare()
        room = max(equal, least[i])
        patience = (STRICT_TICKS if strict[i] else LATE_TICKS) * (FITS_TICKS if room >= 1.0 else 1)
        room = min(room, 1.0)
        found.append(_next(was, stream.is_late, room, patience, load.at_ns) if stream.sheds else StreamShare())
        found[-1] = found[-1]._replace(share=max(found[-1].share, by_cost * room, min(least[i], 1.0)))
    return tuple(found)


def _room(load: EdgeLoad, least: Sequence[float]) -> float:
    """Return the share that decoding can do of the streams that shed, where each gets the same or what it needs."""
    held: set[int] = set()
    while True:
        fixed_ns = sum(
            s.demand_ns * (least[i] if s.sheds else 1.0) for i, s in enumerate(load.streams) if not s.sheds or i in held
        )
        asked_ns = sum(s.demand_ns for i, s in enumerate(load.streams) if s.sheds and i not in held)
        room = max(FULL * 1e9 - fixed_ns, 0.0) / asked_ns if asked_ns > 0 else 1.0
        more = {i for i, s in enumerate(load.streams) if s.sheds and i not in held and least[i] > room}
        if not more:
            return room
        held |= more


def _next(was: StreamShare, is_late: bool, room: float, patience: int, now_ns: int) -> StreamShare:
    late_ticks = was.late_ticks + 1 if is_late else 0
    if is_late:
        if was.share >= 1.0 and late_ticks < patience:
            return was._replace(late_ticks=late_ticks)
        if now_ns - was.lowered_ns < SETTLE_NS:
            return was._replace(share=max(min(was.share, room), LEAST), late_ticks=late_ticks)
        if was.share < USED * room and late_ticks < HICCUP_TICKS:
            return was._replace(late_ticks=late_ticks)
        share = min(was.share * DOWN, room)
        return StreamShare(max(share, LEAST), late_ticks, min(was.share / max(room, LEAST), 1.0), now_ns)
    if was.share >= room:
        return was._replace(late_ticks=0)
    share = was.share * UP
    if room < 1.0 and now_ns - was.lowered_ns < FORGET_CEILING_NS:
        share = min(share, max(NEAR * was.ceiling * room, was.share * UP_SLOWLY))
    share = min(share, room)
    return was._replace(share=1.0 if share > 0.99 else share, late_ticks=0)


def edge_news(stream: str, was: float, share: float, load_ratio: float) -> str:
    """Return a line for the log where dropping undecoded rows begins and ends; "" for every step in between."""
    if was >= 1.0 > share:
        return f"decoding is full (load {load_ratio:.0%}): rows of {stream} are dropped before they are decoded"
    return f"decoding has room again: all rows of {stream} are decoded" if was < 1.0 <= share else ""
