"""Event time at the edge: how far a stream has come, and what must not be believed.

A box closes a window when its inputs promise that nothing older will come. The promise is a watermark, made here, once
per stream: the newest event time seen, less the ``slack`` that the user grants to disorder. One clock serves all
connections of a stream; that one sender is behind another is disorder like any other, and the slack covers it.

Rules
- A watermark never goes back.
- A tuple stamped further ahead than ``max_skew`` is refused, counted, and moves nothing: one tuple from the year 2100
  would otherwise make every honest one late. An hour by default, which forgives a sender its wrong time zone no more
  than a window does, and any clock that is merely wrong. A stream by arrival has nothing to refuse.
- A stream that is silent for ``idle`` moves on with the clock, from where it stood: a sender that is always 30 s behind
  is taken to be 30 s behind still, so that what it sends next is not late. Only up to ``max_skew``: who is further
  behind replays the past, and when a replay falls silent it is over. Without ``idle`` a stream by event time waits for
  its next tuple as long as it takes. By arrival there is nothing to wait for, and ``idle`` is one second unless told.
- A stream whose files have all been read rests. Its watermark stands where the last tuple has put it, so that what is
  brought to it later (``ingest``, the files of the next day) goes on from there. Only streams that it meets in a box of
  time pull it along: they must not wait for it. The end of time is for a batch run alone, after which nothing comes.
- A heartbeat is a tuple without content: it says "I have come this far", and the slack applies to it as to a tuple.

Refused: a watermark per connection, the lowest of which counts. One connection that stays open and silent would hold
up everyone, and what a connection that ends has promised would be forgotten.

Time comes in by argument. It must not jump, or windows of silent streams would close early: see ``SteadyClock``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from threading import Lock
from typing import Any

from catalog.network import Network, Stream
from storage.train import NO_WATERMARK, Train

MAX_SKEW_NS = 3_600 * 10**9
ARRIVAL_IDLE_NS = 10**9
END_OF_TIME = 2**63 - 1
"""The watermark after which nothing comes: in a batch run a source at its end sends it, and everything closes."""

Stamp = Callable[[Train], Train]


class StreamClock:
    """The event time of one stream. Written under the lock of ``Routes.admit``; ``idle_watermark`` only reads."""

    __slots__ = (
        "_lag_ns",
        "_seen_ns",
        "_time_column",
        "follows",
        "idle_ns",
        "max_skew_ns",
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
        self.newest_ns = NO_WATERMARK  # the highest event time believed
        self.watermark_ns = NO_WATERMARK
        self.refused = 0  # tuples and heartbeats from too far ahead
        self._seen_ns = started_ns  # its last sign of life: a stream that never speaks is silent from the start
        self._lag_ns = 0  # how far its event time was behind the clock then
        self.follows: Sequence[StreamClock] = ()  # when it rests: those that must not wait for it

    def stamp(self, train: Train, now_ns: int) -> Train:
        """The train without the tuples that are refused, and with the stream's watermark.

        A train of no tuples carries a promise that its maker vouches for (``idle_watermark``, the end of a source);
        where that promises nothing new, it comes back without a watermark.
        """
        if not train.count:
            return train.with_watermark(self._raise(train.watermark_ns))
        column = self._time_column
        times = train.arrival_ns if column is None else train.columns[column]
        newest_ns = int(times[0] if times.strides[0] == 0 else times.max())
        if column is not None and newest_ns > now_ns + self.max_skew_ns:
            honest = train.where(times <= now_ns + self.max_skew_ns)
            self.refused += train.count - honest.count
            if not honest.count:
                return honest.with_watermark(NO_WATERMARK)
            train, newest_ns = honest, int(honest.columns[column].max())
        self._see(newest_ns, now_ns)
        self._raise(self.newest_ns - self.slack_ns)
        return train.with_watermark(self.watermark_ns)

    def heartbeat(self, event_ns: int, now_ns: int) -> int | None:
        """A sender has come this far. The watermark to announce with a train of no tuples; None: nothing new."""
        if event_ns > now_ns + self.max_skew_ns:
            self.refused += 1
            return None
        self._see(event_ns, now_ns)
        watermark_ns = self.newest_ns - self.slack_ns
        return watermark_ns if watermark_ns > self.watermark_ns else None

    def idle_watermark(self, now_ns: int) -> int | None:
        """How far a stream that is silent or rests may move its watermark; None when that is nothing new."""
        watermark_ns = max((other.watermark_ns for other in self.follows), default=NO_WATERMARK)
        if self.idle_ns is not None and now_ns - self._seen_ns >= self.idle_ns:
            lag_ns = min(max(self._lag_ns, 0), self.max_skew_ns)
            watermark_ns = max(watermark_ns, now_ns - lag_ns - self.slack_ns)
        return watermark_ns if watermark_ns > self.watermark_ns else None

    def _see(self, event_ns: int, now_ns: int) -> None:
        self.newest_ns = max(self.newest_ns, event_ns)
        self._seen_ns = now_ns
        self._lag_ns = now_ns - self.newest_ns

    def _raise(self, watermark_ns: int) -> int:
        """Move the watermark up; the new one, or none when it did not move."""
        if watermark_ns <= self.watermark_ns:
            return NO_WATERMARK
        self.watermark_ns = watermark_ns
        return watermark_ns

    def snapshot(self) -> dict[str, int]:
        return {"newest_ns": self.newest_ns, "watermark_ns": self.watermark_ns, "refused": self.refused}

    def restore(self, data: dict[str, Any]) -> None:
        """What was promised before a restart stays promised. The silence counts from now on."""
        self.newest_ns = int(data["newest_ns"])
        self.watermark_ns = int(data["watermark_ns"])
        self.refused = int(data["refused"])


def clock_of(network: Network, stream: Stream, now_ns: int) -> StreamClock | None:
    """The clock of a stream; None where nobody reads one: tuples by arrival, and no box below that needs time."""
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
    """The clocks of a network's streams, by number: what ``Routes`` and the ticker ask for."""

    def __init__(self, network: Network, now_ns: Callable[[], int]) -> None:
        begun_ns = now_ns()
        self._now_ns = now_ns
        self._network = network
        self._schemas = [s.schema for s in network.streams]
        self.clocks = [clock_of(network, stream, begun_ns) for stream in network.streams]
        self.stamps: list[Stamp | None] = [None if clock is None else self._stamp(clock) for clock in self.clocks]
        self.idle_watermarks = [None if clock is None else clock.idle_watermark for clock in self.clocks]

    def _stamp(self, clock: StreamClock) -> Stamp:
        def stamp(train: Train) -> Train:
            return clock.stamp(train, self._now_ns())

        return stamp

    def heartbeat(self, stream: int, event_ns: int) -> Train | None:
        """The train of no tuples to admit for a heartbeat; None when there is nothing to announce."""
        clock = self.clocks[stream]
        watermark_ns = None if clock is None else clock.heartbeat(event_ns, self._now_ns())
        return None if watermark_ns is None else Train.empty(self._schemas[stream], watermark_ns)

    def end(self, stream: int) -> Train:
        """The train of no tuples that closes everything behind a stream: nothing will ever come to it again."""
        return Train.empty(self._schemas[stream], END_OF_TIME)

    def rest(self, stream: int) -> None:
        """The source of a stream is at its end, and more may be brought to it some day."""
        clock = self.clocks[stream]
        if clock is not None:
            met = streams_met(self._network, stream)
            clock.follows = [other for number in met if (other := self.clocks[number]) is not None]


def streams_met(network: Network, stream: int) -> list[int]:
    """The other streams whose tuples come to a box to which this one's come as well, by watermarks."""
    boxes = [_boxes_behind(network, s) for s in network.streams]
    return [s.number for s in network.streams if s.number != stream and boxes[s.number] & boxes[stream]]


def _boxes_behind(network: Network, stream: Stream) -> set[int]:
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
    """The time of day from a clock that cannot jump: ``wall_ns`` is followed only as far as it is believed.

    The time is that of a clock that only ever runs (``running_ns``: boot time, which counts sleep as well) plus an
    offset. The wall clock's offset is taken over while it is within ``NEAR_NS``, which is how a clock drifts and is
    slewed. A jump beyond that is believed only after it has stood for ``PATIENCE_NS``: an administrator's slip is
    ignored, a machine that started without the time of day gets it. The time never goes back: where it is ahead, it
    runs at half its pace until it is right.

    A tuple asks four times on its way, so the wall clock is looked at once in ``LOOK_NS``, and in between the offset
    stands: 0.3 us where a look takes 1.2.
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
        self._ran_ns = running_ns()  # at the last look
        self._look_ns = 0  # when to look again; the offset holds until then
        self._believed_ns = self._offset_ns = wall_ns() - self._ran_ns
        self._suspect_ns: int | None = None  # since when the wall clock has been elsewhere
        self._lock = Lock()
        self.jumps = 0  # of the wall clock, believed or not

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
            # While it runs slower than the clock does, it is looked at every time: its pace is made here.
            self._look_ns = ran_ns + self.LOOK_NS if self._offset_ns == self._believed_ns else 0
            return ran_ns + self._offset_ns

    def _believe(self, offset_ns: int, ran_ns: int) -> None:
        if abs(offset_ns - self._believed_ns) <= self.NEAR_NS:
            self._believed_ns = offset_ns
            self._suspect_ns = None
        elif self._suspect_ns is None:
            self._suspect_ns = ran_ns
            self.jumps += 1
        elif ran_ns - self._suspect_ns >= self.PATIENCE_NS:
            self._believed_ns = offset_ns
            self._suspect_ns = None
