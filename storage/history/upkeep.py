"""What is removed from a history, and which segments are merged. Pure functions over the index."""

from __future__ import annotations

from collections.abc import Sequence

from storage.history.segment import SegmentInfo

MERGED_AT_ONCE = 8
MERGED_BYTES = 64 * 1024**2
SMALL_BYTES = 4 * 1024**2


def expired(
    segments: Sequence[SegmentInfo], now_ns: int, for_ns: int | None, size_bytes: int, needed_from: int | None
) -> list[SegmentInfo]:
    """Return the oldest segments that are too old or too much. A replay still needs those from ``needed_from`` on."""
    total = sum(s.nbytes for s in segments)
    found: list[SegmentInfo] = []
    for segment in segments:
        is_old = for_ns is not None and segment.arrivals[1] < now_ns - for_ns
        if not (is_old or total > size_bytes) or (needed_from is not None and segment.last >= needed_from):
            break
        found.append(segment)
        total -= segment.nbytes
    return found


def mergeable(segments: Sequence[SegmentInfo], below: int) -> list[SegmentInfo]:
    """Return neighbours that are worth merging, the smallest first; empty when there are none.

    Eight small segments of about one size become one: a tuple is written again once for each factor of eight in size.
    """
    limit = 64 * 1024
    while limit <= SMALL_BYTES:
        if run := _run(segments, below, limit):
            return run
        limit *= MERGED_AT_ONCE
    return []


def _run(segments: Sequence[SegmentInfo], below: int, limit: int) -> list[SegmentInfo]:
    run: list[SegmentInfo] = []
    for segment in segments:
        if segment.last >= below:
            break
        follows = not run or (segment.first == run[-1].last + 1 and segment.schema == run[-1].schema)
        if segment.nbytes > limit or not follows:
            run = [segment] if segment.nbytes <= limit else []
            continue
        run.append(segment)
        if len(run) >= MERGED_AT_ONCE:
            return run
    return []
