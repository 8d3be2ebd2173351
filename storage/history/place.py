"""The history of one place: its tail in memory, its segments on disk, and their upkeep.

Threads: one thread at a time appends (under the ingress' lock, or the worker that runs the box). The history's thread
and the checkpoint's thread write segments, one at a time. Any thread reads.
"""

from __future__ import annotations

import errno
import logging
from collections import deque
from collections.abc import Callable, Iterator
from threading import Lock
from typing import Any

import numpy as np

from catalog.network import KeptPlace
from catalog.readings import HistoryReading
from storage.files import Files
from storage.history.segment import (
    PIECE_TUPLES,
    HistorySegment,
    KeptTrain,
    SegmentError,
    SegmentInfo,
    encode_segment,
    load_segment,
    merge_segments,
)
from storage.history.upkeep import expired, mergeable
from storage.train import NO_WATERMARK, Train

log = logging.getLogger("aurorad.history")

SEGMENT_BYTES = 32 * 1024**2
"""Of tuples in memory. Shorter segments come of checkpoints at a low rate; they are merged."""

TAIL_AT_MOST_BYTES = 128 * 1024**2
RESERVE_BYTES = 128 * 1024**2
"""Left free for the log and the checkpoints. On a small disk: an eighth of it."""


class PlaceHistory:
    """``open`` first. ``wake`` is called when a whole segment waits to be written."""

    def __init__(self, place: KeptPlace, files: Files, wake: Callable[[], None] | None = None) -> None:
        self._wake = wake
        self.place = place
        self.folder = f"history/{place.name}"
        self._files = files
        self._time_column = None if place.time_field is None else place.schema.index(place.time_field)
        self._lock = Lock()  # of the tail and the list of segments
        self._writing = Lock()  # one segment at a time is written, merged or removed
        self._tail: deque[KeptTrain] = deque()
        self._tail_rows = 0
        self._segments: list[SegmentInfo] = []
        self._cuts: deque[int] = deque()  # numbers at which a segment must end
        self._pins: dict[object, int] = {}  # by reader: the next number that it needs
        self.next = 1  # the number of the next tuple
        self.tail_bytes = 0
        self.written_bytes = 0
        self.merged = 0
        self.lost = 0
        self.trouble = ""  # why the disk took nothing the last time

    # -- a start ------------------------------------------------------------------------------------------------------

    def open(self, cut: dict[str, Any] | None) -> None:
        """Go on at the cut of a checkpoint. Segments behind it are removed: the replay of the log brings them again."""
        self.next = 1 if cut is None else int(cut["next"])
        found: list[SegmentInfo] = []
        names = self._files.list(self.folder)
        ends = dict(sorted(numbers for name in names if (numbers := _numbers(name)) is not None))  # the longest of each
        reached = 0
        for name in names:
            numbers = _numbers(name)
            if numbers is None:
                if name.endswith(".tmp"):
                    self._files.remove(f"{self.folder}/{name}")
            elif numbers[0] >= self.next or numbers[1] <= reached or numbers[1] < ends[numbers[0]]:
                self._files.remove(f"{self.folder}/{name}")  # behind the cut, or merged into another segment
            else:
                reached = numbers[1]
                found += self._examine(name, found)
        self._segments = found
        if cut is not None and cut["watermark"] != NO_WATERMARK:
            self.append(Train.empty(self.place.schema, int(cut["watermark"])), int(cut["entry"]))

    def look(self) -> None:
        """Find the segments of a folder that another process may be writing to. Changes nothing."""
        for name in self._files.list(self.folder):
            numbers = _numbers(name)
            if numbers is not None and not (self._segments and numbers[1] <= self._segments[-1].last):
                while self._segments and self._segments[-1].first == numbers[0]:  # it was merged
                    self._segments.pop()
                self._segments += self._examine(name, self._segments)
        self.next = self._segments[-1].last + 1 if self._segments else 1

    def _examine(self, name: str, before: list[SegmentInfo]) -> list[SegmentInfo]:
        """Return the index entry of a file; nothing, with a warning, if its tuples cannot be used."""
        try:
            segment = self._load(name)
        except SegmentError as error:
            log.warning("%s: its tuples are missing in the history of %s", error, self.place.name)
            return []
        if why := segment.why_unreadable(self.place.schema):
            log.warning("%s/%s had other fields (%s): queries do not start before its end", self.folder, name, why)
            before.clear()  # the files stay until they are too old
            return []
        return [segment.info]

    def rebind(self, place: KeptPlace) -> None:
        """Be the history of this place of the next network: of the same name and fields, with other limits."""
        self.place = place
        self._time_column = None if place.time_field is None else place.schema.index(place.time_field)

    # -- appending ----------------------------------------------------------------------------------------------------

    def append(self, train: Train, entry: int) -> None:
        """Add a train. One thread at a time, in the order of the place."""
        with self._lock:
            if not train.count:
                if train.watermark_ns == NO_WATERMARK:
                    return
                if self._tail and not self._tail[-1].train.count:  # only the newest of several watermarks matters
                    self.tail_bytes -= self._tail.pop().train.nbytes
            self._tail.append(KeptTrain(self.next, train, entry))
            self._tail_rows += train.count
            self.tail_bytes += train.nbytes
            self.next += train.count
        if self.tail_bytes >= SEGMENT_BYTES and self._wake is not None:
            self._wake()

    @property
    def has_room(self) -> bool:
        return self.tail_bytes < TAIL_AT_MOST_BYTES

    def cut(self) -> dict[str, Any]:
        """End a segment here, and return what a checkpoint needs. No train is appended meanwhile."""
        with self._lock:
            if not self._cuts or self._cuts[-1] != self.next:
                self._cuts.append(self.next)
            last = self._tail[-1] if self._tail and not self._tail[-1].train.count else None
        return {
            "next": self.next,
            "watermark": NO_WATERMARK if last is None else last.train.watermark_ns,
            "entry": 0 if last is None else last.entry,
        }

    # -- writing ------------------------------------------------------------------------------------------------------

    def flush(self, below: int) -> None:
        """Write every tuple below a number into segments, or count it as lost. Any thread."""
        while self._tail and self._tail[0].first < below and self.write(below):
            pass

    def write(self, below: int | None = None) -> bool:
        """Write a segment: a full one, or with ``below`` whatever there is up to this number. False: nothing to do."""
        with self._writing:
            batch = self._batch(below)
            rows = sum(k.train.count for k in batch)
            if not rows:
                return False
            info = self._try(batch)
            with self._lock:
                for _ in batch:
                    self._tail.popleft()
                self._tail_rows -= rows
                self.tail_bytes -= sum(k.train.nbytes for k in batch)
                if info is None:
                    self.lost += rows
                else:
                    self._segments = [*self._segments, info]
            return True

    def _batch(self, below: int | None) -> list[KeptTrain]:
        """Return the trains of the next segment, up to its last tuple."""
        with self._lock:
            tail, end = list(self._tail), below
            while self._cuts and tail and self._cuts[0] <= tail[0].first:
                self._cuts.popleft()
            if self._cuts and (end is None or self._cuts[0] < end):
                end = self._cuts[0]
        batch: list[KeptTrain] = []
        size = 0
        for kept in tail:
            if (end is not None and kept.first >= end) or size >= SEGMENT_BYTES:
                break
            batch.append(kept)
            size += kept.train.nbytes
        if size < SEGMENT_BYTES and end is None:
            return []
        while batch and not batch[-1].train.count:  # the watermark behind the last tuple waits for the next one
            batch.pop()
        return batch

    def _try(self, batch: list[KeptTrain]) -> SegmentInfo | None:
        """Write a segment. None when the disk did not take it."""
        data, info = encode_segment(batch, self.place.time_field, self.place.slack_ns)
        if self._is_short_of_room(data.size):
            self._complain("the disk is nearly full")
            return None
        try:
            self._put(data, info)
        except OSError as error:
            self._complain(str(error.strerror or error))
            return None
        if self.trouble:
            log.info("the history of %s is written again; %d tuples are missing in it", self.place.name, self.lost)
            self.trouble = ""
        self.written_bytes += info.nbytes
        return info

    def _complain(self, why: str) -> None:
        if not self.trouble:
            log.warning("the history of %s is not written: %s; everything else goes on", self.place.name, why)
        self.trouble = why

    def _is_short_of_room(self, wanted_bytes: int) -> bool:
        free, total = self._files.space()
        return free < min(RESERVE_BYTES, total // 8) + wanted_bytes

    def _put(self, data: Any, info: SegmentInfo) -> None:
        """Write a file whole, or not at all."""
        name = _name(info)
        temporary = f"{self.folder}/{name}.tmp"
        try:
            file = self._files.create(temporary)
        except FileExistsError:  # of a write that failed
            self._files.remove(temporary)
            file = self._files.create(temporary)
        try:
            file.append([memoryview(data)])
            file.sync()
        except OSError as error:
            file.close()
            self._files.remove(temporary)
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                log.error("%s: %s", self._files.where(temporary), error)
            raise
        file.close()
        self._files.rename(temporary, f"{self.folder}/{name}")
        self._files.sync_folder(self.folder)

    # -- upkeep -------------------------------------------------------------------------------------------------------

    def retain(self, now_ns: int) -> None:
        """Remove what is too old or too much."""
        with self._writing:
            needed = min(self._pins.values(), default=None)
            gone = expired(self._segments, now_ns, self.place.for_ns, self.place.size_bytes, needed)
            if gone:
                with self._lock:
                    self._segments = self._segments[len(gone) :]
                for info in gone:
                    self._files.remove(f"{self.folder}/{_name(info)}")

    def merge(self, below: int) -> bool:
        """Merge some small neighbours below a number. False when there are none."""
        with self._writing:
            run = mergeable(self._segments, below)
            if not run or self._is_short_of_room(sum(i.nbytes for i in run)):
                return False
            try:
                data, info = merge_segments([self._load(_name(i)) for i in run])
                self._put(data, info)
            except (OSError, SegmentError) as error:
                self._complain(str(error))
                return False
            with self._lock:
                at = self._segments.index(run[0])
                self._segments = [*self._segments[:at], info, *self._segments[at + len(run) :]]
            for old in run:
                self._files.remove(f"{self.folder}/{_name(old)}")
            self.merged += len(run)
            return True

    # -- reading ------------------------------------------------------------------------------------------------------

    def pin(self, reader: object, number: int | None) -> None:
        """Keep what a reader needs from this number on; None: it has ended."""
        if number is None:
            self._pins.pop(reader, None)
        else:
            self._pins[reader] = number

    @property
    def oldest(self) -> int:
        """The number of the first tuple that is kept."""
        with self._lock:
            return self._segments[0].first if self._segments else self._tail[0].first if self._tail else self.next

    def trains(self, after: int, at_most: int = PIECE_TUPLES) -> Iterator[KeptTrain]:
        """Yield what is kept behind a number, up to now: from the segments first, then from the tail."""
        while after < self.next - 1:
            with self._lock:
                info = next((s for s in self._segments if s.last > after), None)
                tail = list(self._tail) if info is None else []
            if info is None:
                yield from (part for kept in tail if (part := _behind(kept, after)) is not None)
                return
            try:
                segment = self._load(_name(info))
            except FileNotFoundError:  # removed or merged in this moment
                continue
            except SegmentError as error:
                log.error("%s: %d tuples are missing in what is read of %s", error, info.tuples, self.place.name)
                after = info.last
                continue
            yield from segment.trains(after, self.place.schema, at_most)
            after = info.last

    def first_at(self, time_ns: int | None) -> int:
        """Return the number of the first tuple from a time on; None: the oldest."""
        if time_ns is None:
            return self.oldest
        with self._lock:
            segments, tail = self._segments, list(self._tail)
        for info in segments:
            if info.times[1] >= time_ns:
                found = np.flatnonzero(self._load(_name(info)).times(self.place.time_field) >= time_ns)
                return info.first + int(found[0])
        for kept in tail:
            train = kept.train
            times = train.arrival_ns if self._time_column is None else train.columns[self._time_column]
            if train.count and int(times.max()) >= time_ns:
                return kept.first + int(np.flatnonzero(times >= time_ns)[0])
        return self.next

    def _load(self, name: str) -> HistorySegment:
        return load_segment(self._files, f"{self.folder}/{name}")

    def reading(self) -> HistoryReading:
        with self._lock:
            segments, rows = self._segments, self._tail_rows
            ends = [k for k in (self._tail[0], self._tail[-1]) if k.train.count] if self._tail else []
        spans = [i.times for i in segments[:1] + segments[-1:]] + [self._span(k.train) for k in ends]
        return HistoryReading(
            self.place.name,
            self.oldest,
            self.next - 1,
            min((s[0] for s in spans), default=0),
            max((s[1] for s in spans), default=0),
            len(segments),
            sum(i.nbytes for i in segments),
            rows,
            self.tail_bytes,
            self.written_bytes,
            self.merged,
            self.lost,
            self.trouble,
        )

    def _span(self, train: Train) -> tuple[int, int]:
        times = train.arrival_ns if self._time_column is None else train.columns[self._time_column]
        return int(times.min()), int(times.max())

    def index(self) -> list[SegmentInfo]:
        """Return the index: an entry for each segment, the oldest first."""
        with self._lock:
            return self._segments


def _name(info: SegmentInfo) -> str:
    return f"{info.first:018d}-{info.last:018d}.parquet"


def _numbers(name: str) -> tuple[int, int] | None:
    """Return the numbers in the name of a segment; None for another file."""
    first, dash, last = name.removesuffix(".parquet").partition("-")
    is_segment = name.endswith(".parquet") and dash and first.isdecimal() and last.isdecimal()
    return (int(first), int(last)) if is_segment else None


def _behind(kept: KeptTrain, after: int) -> KeptTrain | None:
    """Return the part of a train behind a number; None when there is none."""
    first, train, entry = kept
    if first > after:
        return kept
    if first + train.count - 1 <= after:
        return None
    return KeptTrain(after + 1, train.slice(after + 1 - first, train.count), entry)
