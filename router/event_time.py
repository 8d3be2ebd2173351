"""Event time of the streams: watermarks, and tuples whose timestamps are refused.

A watermark is a promise: no tuple with an older event time will come. A box closes a window when the watermarks of its
inputs have passed the window's end. This module makes the watermark of each stream: the newest event time seen, minus
the ``slack`` that the user allows for disorder. All connections of a stream share one clock. A sender that is behind
another sender is disorder like any other, and the slack covers it.

Rules
- A watermark never goes back.
- A tuple whose timestamp is further ahead of the clock than ``max_skew`` is refused and counted, and does not move the
  watermark. Otherwise one tuple from the year 2100 would make every correct tuple late. The default is one hour: that
  accepts a clock that is somewhat wrong, but not a wrong time zone. A stream by arrival time refuses nothing.
- A stream that is silent for ``idle`` advances with the clock and keeps its lag: after a sender that is always 30 s
  behind, the watermark stays 30 s behind, so that the sender's next tuples are not late. The lag counts only up to
  ``max_skew``: a sender further behind replays the past, and a silent replay is finished. Without ``idle``, a stream by
  event time waits for its next tuple without limit. For a stream by arrival time ``idle`` is one second by default.
- The clock of a stream by event time starts with its first tuple or heartbeat. Before that nobody knows whether today's
  tuples will come or a file of last year, so silence alone does not move it. A stream that has been silent since the
  start for ``idle`` only follows the streams that it meets in a box: they do not wait for it longer than ``idle``, and
  if they replay the past, it may do so too. Silence counts from the start of the process, after a replay of its log.
- A stream whose files have all been read is exhausted, but not at its end: files that are brought later (``ingest``,
  the files of the next day) continue where it stopped. So its watermark stays at the last tuple. Only other streams
  that meet it in a box with watermarks pull it along, so that they do not wait for it.
- The end of time (``END_OF_TIME``) comes in a batch run, and at a stop with ``stop: close``: nothing comes after it in
  this process. After a restart with a data_dir the stream begins anew (``engine/run/open_state.begin_anew``).
- A heartbeat is a timestamp without a tuple. The slack applies to it as to a tuple.

Refused: one watermark per connection, with the lowest as the stream's. One open and silent connection would hold up the
whole stream, and the promise of a closed connection would be lost.

Time comes in by argument. It must not jump, or the windows of silent streams would close early: see ``SteadyClock``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from threading import Lock
from typing import Any

from catalog.network import Network, Stream
from storage.train import END_WATERMARK, NO_WATERMARK, Train

MAX_SKEW_NS = 3_600 * 10**9
ARRIVAL_IDLE_NS = 10**9
END_OF_TIME = 2**63 - 1
"""The last watermark of a stream: everything behind the stream closes. A source at its end sends it in a batch run, and
the daemon sends it at its stop."""


class StreamClock:
    """The event time of one stream. ``Ingress`` writes under its lock; ``idle_watermark`` only reads."""

    __slots__ = (
        "_lag_ns",
        "_last_sign_ns",
        "_time_column",
        "idle_ns",
        "is_exhausted",
        "max_skew_ns",
        "met",
        "newest_ns",
        "refused",
        "slack_ns",
        "watermark_ns",
    )

    def __init__(
        self,
        time_column: int | None,
        *,
        slack_ns: int = 0,
        max_skew_ns: int | None = None,
        idle_ns: int | None = None,
        started_ns: int = 0,
    ) -> None:
        self._time_column = time_column  # None: by arrival
        self.slack_ns = slack_ns
        self.max_skew_ns = MAX_SKEW_NS if max_skew_ns is None else max_skew_ns
        self.idle_ns = ARRIVAL_IDLE_NS if idle_ns is None and time_column is None else idle_ns
        self.newest_ns = NO_WATERMARK  # the highest event time accepted
        self.watermark_ns = NO_WATERMARK
        self.refused = 0  # tuples and heartbeats from too far ahead
        self._last_sign_ns = started_ns  # the clock at the last tuple or heartbeat; at first, at the start
        self._lag_ns = 0  # how far the event time was behind the clock then
        self.is_exhausted = False  # its files have all been read
        self.met: Sequence[StreamClock] = ()  # the streams that it meets in a box

    def stamp(self, train: Train, now_ns: int) -> Train:
        """Return the train without its refused tuples, and with the stream's watermark.

        A train without tuples already carries a watermark (from ``idle_watermark`` or the end of a source). When that
        watermark is not new, the train comes back without one.
        """
        if not train.count:
            return train.with_watermark(self._advance(train.watermark_ns))
        column = self._time_column
        times = train.arrival_ns if column is None else train.columns[column]
        newest_ns = int(times[0] if times.strides[0] == 0 else times.max())
        if column is not None and newest_ns > now_ns + self.max_skew_ns:
            accepted = train.where(times <= now_ns + self.max_skew_ns)
            self.refused += train.count - accepted.count
            if not accepted.count:
                return accepted.with_watermark(NO_WATERMARK)
            train, newest_ns = accepted, int(accepted.columns[column].max())
        self._note_event_time(newest_ns, now_ns)
        self._advance(self.newest_ns - self.slack_ns)
        return train.with_watermark(self.watermark_ns)

    def skewed(self, train: Train, now_ns: int) -> Train:
        """Return the tuples of a train that ``stamp`` refused at this time."""
        assert self._time_column is not None
        return train.where(train.columns[self._time_column] > now_ns + self.max_skew_ns)

    def heartbeat(self, event_ns: int, now_ns: int) -> int | None:
        """Take a sender's event time, and return the watermark for a train without tuples; None when it is not new."""
        if event_ns > now_ns + self.max_skew_ns:
            self.refused += 1
            return None
        self._note_event_time(event_ns, now_ns)
        watermark_ns = self.newest_ns - self.slack_ns
        return watermark_ns if watermark_ns > self.watermark_ns else None

    def idle_watermark(self, now_ns: int) -> int | None:
        """Return the watermark of a silent or exhausted stream; None when it is not new."""
        is_silent = self.idle_ns is not None and now_ns - self._last_sign_ns >= self.idle_ns
        has_begun = self.newest_ns != NO_WATERMARK or self._time_column is None
        watermark_ns = NO_WATERMARK
        if self.is_exhausted or (is_silent and not has_begun):
            met_ns = (clock.watermark_ns for clock in self.met)
            watermark_ns = max((ns for ns in met_ns if ns < END_WATERMARK), default=NO_WATERMARK)
        if is_silent and has_begun:
            lag_ns = min(max(self._lag_ns, 0), self.max_skew_ns)
            watermark_ns = max(watermark_ns, now_ns - lag_ns - self.slack_ns)
        return watermark_ns if watermark_ns > self.watermark_ns else None

    def count_silence_from(self, now_ns: int) -> None:
        """Count silence from this moment on: nobody could send while the daemon was down."""
        self._last_sign_ns = now_ns

    def _note_event_time(self, event_ns: int, now_ns: int) -> None:
        self.newest_ns = max(self.newest_ns, event_ns)
        self._last_sign_ns = now_ns
        self._lag_ns = now_ns - self.newest_ns

    def _advance(self, watermark_ns: int) -> int:
        """Move the watermark forward. Return the new one, or NO_WATERMARK when it did not move."""
        if watermark_ns <= self.watermark_ns:
            return NO_WATERMARK
        self.watermark_ns = watermark_ns
        return watermark_ns

    def begin_anew(self) -> None:
        """Begin as at first: after the end of event time, tuples come again."""
        self.newest_ns = self.watermark_ns = NO_WATERMARK
        self._lag_ns = 0
        self.is_exhausted = False

    def take_over(self, other: StreamClock) -> None:
        """Go on where another clock of the stream stands. The settings stay those of this clock."""
        self.newest_ns, self.watermark_ns, self.refused = other.newest_ns, other.watermark_ns, other.refused
        self._last_sign_ns, self._lag_ns, self.is_exhausted = other._last_sign_ns, other._lag_ns, other.is_exhausted

    def snapshot(self) -> dict[str, int]:
        return {
            "newest_ns": self.newest_ns,
            "watermark_ns": self.watermark_ns,
            "refused": self.refused,
            "lag_ns": self._lag_ns,
        }

    def restore(self, data: dict[str, Any]) -> None:
        """Restore the watermark from before a restart: the promise still holds."""
        self.newest_ns = int(data["newest_ns"])
        self.watermark_ns = int(data["watermark_ns"])
        self.refused = int(data["refused"])
        self._lag_ns = int(data.get("lag_ns", 0))  # not in checkpoints of version 0.2


def make_clock(network: Network, stream: Stream, now_ns: int) -> StreamClock | None:
    """Return the clock of a stream; None when it needs none: tuples by arrival, and no box behind it uses time."""
    timed = any(network.arcs[a].timed for a in stream.arcs)
    if stream.time_field is None and not timed:
        return None
    return StreamClock(
        None if stream.time_field is None else stream.schema.index(stream.time_field),
        slack_ns=stream.slack_ns,
        max_skew_ns=getattr(stream.options, "max_skew_ns", None),
        idle_ns=getattr(stream.options, "idle_ns", None) if timed else None,
        started_ns=now_ns,
    )


class EventTime:
    """The clocks of a network's streams, by stream number. ``Ingress`` and the ticker use them."""

    def __init__(self, network: Network, now_ns: Callable[[], int]) -> None:
        started_ns = now_ns()
        self._now_ns = now_ns
        self._schemas = [s.schema for s in network.streams]
        self.clocks = [make_clock(network, stream, started_ns) for stream in network.streams]
        for clock, met in zip(self.clocks, streams_met(network), strict=True):
            if clock is not None:
                clock.met = [other for number in met if (other := self.clocks[number]) is not None]
        self.idle_watermarks = [None if clock is None else clock.idle_watermark for clock in self.clocks]

    def take_over(self, other: EventTime, streams: Mapping[int, int]) -> None:
        """Go on where the clocks of another network stand. ``streams`` leads from numbers here to numbers there."""
        for here, there in streams.items():
            mine, theirs = self.clocks[here], other.clocks[there]
            if mine is not None and theirs is not None:
                mine.take_over(theirs)

    def heartbeat(self, stream: int, event_ns: int) -> Train | None:
        """Return the train without tuples to admit for a heartbeat; None when its watermark is not new."""
        clock = self.clocks[stream]
        watermark_ns = None if clock is None else clock.heartbeat(event_ns, self._now_ns())
        return None if watermark_ns is None else Train.empty(self._schemas[stream], watermark_ns)

    def end(self, stream: int) -> Train:
        """Return the train without tuples that ends a stream for good and closes everything behind it."""
        return Train.empty(self._schemas[stream], END_OF_TIME)

    def source_exhausted(self, stream: int) -> None:
        """Let the watermark of an exhausted stream follow those of the streams that it meets in a box."""
        clock = self.clocks[stream]
        if clock is not None:
            clock.is_exhausted = True

    def count_silence_from_now(self) -> None:
        """Count the silence of all streams from now on: a start has replayed its log, and senders come now."""
        for clock in self.clocks:
            if clock is not None:
                clock.count_silence_from(self._now_ns())


def streams_met(network: Network) -> list[list[int]]:
    """Return, by stream, the other streams that share a box with it, by arcs that carry watermarks."""
    if len(network.streams) < 2:
        return [[] for _ in network.streams]
    boxes = [boxes_downstream(network, s) for s in network.streams]
    streams: dict[int, set[int]] = {}  # by box
    for number, found in enumerate(boxes):
        for box in found:
            streams.setdefault(box, set()).add(number)
    return [sorted(set().union(*(streams[box] for box in found)) - {number}) for number, found in enumerate(boxes)]


def boxes_downstream(network: Network, stream: Stream) -> set[int]:
    """Return the boxes that the stream's watermarks reach."""
    found: set[int] = set()
    ahead = network.consumers([a for a in stream.arcs if network.arcs[a].timed])
    while ahead:
        box = ahead.pop()
        if box not in found:
            found.add(box)
            out = [a for arcs in network.boxes[box].out_arcs for a in arcs if network.arcs[a].timed]
            ahead += network.consumers(out)
    return found


class SteadyClock:
    """The time of day, without jumps.

    The time is that of a clock that only moves forward (``running_ns``: boot time, which includes sleep) plus an
    offset. The clock takes over the wall clock's offset while the two differ by at most ``NEAR_NS``: that covers drift
    and slewing. It takes over a jump beyond that only after the wall clock has kept it for ``PATIENCE_NS``. So a
    short mistake of an administrator has no effect, and a machine that started without the time of day gets it. The
    time never goes back: when it is ahead, it runs at half its pace until it is right.

    Each tuple needs the time four times on its way. So the clock reads the wall clock only once in ``LOOK_NS`` and
    keeps the offset in between: 0.3 us a call instead of 1.2.
    """

    NEAR_NS = 10**8
    PATIENCE_NS = 60 * 10**9
    LOOK_NS = 10**6

    __slots__ = (
        "_believed_ns", "_lock", "_look_ns", "_offset_ns", "_ran_ns", "_running_ns", "_suspect_ns", "_wall_ns", "jumps",
    )  # fmt: skip

    def __init__(self, wall_ns: Callable[[], int], running_ns: Callable[[], int]) -> None:
        self._wall_ns = wall_ns
        self._running_ns = running_ns
        self._ran_ns = running_ns()  # at the last look at the wall clock
        self._look_ns = 0  # when to look at the wall clock again; the offset stays until then
        self._believed_ns = self._offset_ns = wall_ns() - self._ran_ns
        self._suspect_ns: int | None = None  # since when the wall clock has differed by more than NEAR_NS
        self._lock = Lock()
        self.jumps = 0  # jumps of the wall clock, taken over or not

    def __call__(self) -> int:
        ran_ns = self._running_ns()
        if ran_ns < self._look_ns:
            return ran_ns + self._offset_ns
        with self._lock:
            ran_ns = self._running_ns()
            self._believe(self._wall_ns() - ran_ns, ran_ns)
            slowest_ns = self._offset_ns - max(0, ran_ns - self._ran_ns) // 2
            self._offset_ns = max(self._believed_ns, slowest_ns)
            self._ran_ns = ran_ns
            # While the time is ahead, every call must come here: this is where it runs at half its pace.
            self._look_ns = ran_ns + self.LOOK_NS if self._offset_ns == self._believed_ns else 0
            return ran_ns + self._offset_ns

    def _believe(self, offset_ns: int, ran_ns: int) -> None:
        """Take over the wall clock's offset when it is near, or when it has stood long enough."""
        if abs(offset_ns - self._believed_ns) <= self.NEAR_NS:
            self._believed_ns = offset_ns
            self._suspect_ns = None
        elif self._suspect_ns is None:
            self._suspect_ns = ran_ns
            self.jumps += 1
        elif ran_ns - self._suspect_ns >= self.PATIENCE_NS:
            self._believed_ns = offset_ns
            self._suspect_ns = None
