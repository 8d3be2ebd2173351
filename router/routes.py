"""Where trains go: from a stream or from a box's port to the arcs behind it.

A train to a box goes on the arc's queue and the scheduler hears of it; a train to an output goes straight to the
output's subscribers, and nothing waits. Both happen here and nowhere else.

Where a shed plan drops tuples of a stream, this is where: a train loses them as it is put on the arc (those of a box's
port go in ``engine/executable``).

Threads: ``admit`` on the I/O thread (or whoever feeds in process), ``enqueue`` and ``deliver`` on any worker.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Container, Mapping, Sequence
from threading import Lock

from catalog.network import Arc, Network, Stream
from storage.manager import StorageManager
from storage.train import NO_WATERMARK, Train

Announce = Callable[[tuple[int, ...], Train, int], None]
Deliver = Callable[[Train], None]
Stamp = Callable[[Train], Train]
Keep = Callable[[Train], Train]
"""A train without what is dropped of it."""
Past = Callable[[tuple[int, ...], Train], bool]
"""Whether a train for these arcs needs no queue: whoever says so has taken it."""


class Routes:
    """``announce`` notes a train (and its bytes) on these arcs for the scheduler, ``nudge`` has it act on the news;
    ``outlets`` take what an output emits, by number; ``stamps`` set the watermark of a stream's trains and leave out
    the tuples whose time nobody can believe."""

    def __init__(
        self,
        network: Network,
        storage: StorageManager,
        announce: Announce,
        nudge: Callable[[], None],
        outlets: Sequence[Deliver],
        stamps: Sequence[Stamp | None],
    ) -> None:
        self._storage = storage
        self._announce = announce
        self._nudge = nudge
        self._outlets = outlets
        self._stamps = stamps
        self._lock = Lock()
        self.admitted = [0] * len(network.streams)  # tuples, by stream
        self.rejected_skew = [0] * len(network.streams)  # tuples stamped too far ahead: received = admitted + these
        self.latest: list[Train | None] = [None] * len(network.streams)  # for whoever wants a look at the values
        self.noted: deque[tuple[int, int, int]] | None = None  # arrival, stream, tuples of each train; for who asks
        # By stream that does not wait for room: its queues, and what is left of a train (nothing) while there is none.
        self.overflow: list[tuple[tuple[Arc, Keep], ...]] = [()] * len(network.streams)
        self._network = network
        self._ways: list[tuple[tuple[Arc, Keep], ...]] = [()] * len(network.streams)  # arcs with drops
        self._stream_queues = [_to_boxes(network, stream, {}) for stream in network.streams]  # the others
        self._stream_outputs = [_to_outputs(network, stream, {}) for stream in network.streams]

    def admit(
        self, stream: int, train: Train, nudge: Callable[[], None] | None = None, past: Past | None = None
    ) -> None:
        """Tuples enter the network. A train of none may carry a watermark. ``nudge`` in place of the usual one."""
        stamp = self._stamps[stream]
        # One lock for the order: stamping and queueing must see a stream's trains in one order, whoever feeds it.
        with self._lock:
            if stamp is not None:
                offered = train.count
                train = stamp(train)
                self.rejected_skew[stream] += offered - train.count
                if not train.count and train.watermark_ns == NO_WATERMARK:
                    return  # all refused, or a watermark that is old news
            self.admitted[stream] += train.count
            self.latest[stream] = train
            if self.noted is not None and train.count:
                self.noted.append((int(train.arrival_ns[0]), stream, train.count))
            ways, queues, outputs = self._ways[stream], self._stream_queues[stream], self._stream_outputs[stream]
            if (full := self.overflow[stream]) and not self._storage.has_room:
                ways, queues = (*full, *(way for way in ways if way[0].box is None)), ()
            kept = self._shed(train, ways) if ways else ()
            if queues and (past is None or not past(queues, train)):
                self._announce(queues, train, self._storage.enqueue(queues, train))
        (nudge or self._nudge)()
        if train.count:
            for output in outputs:
                self.deliver(output, train)
            for output, part in kept:
                self.deliver(output, part)

    def shed(self, sheds: Mapping[int, Keep]) -> None:
        """From now on a train loses on these arcs what ``Keep`` leaves out. Any thread."""
        with self._lock:
            for stream in self._network.streams:
                number = stream.number
                self._stream_queues[number] = _to_boxes(self._network, stream, sheds)
                self._stream_outputs[number] = _to_outputs(self._network, stream, sheds)
                self._ways[number] = tuple((self._network.arcs[a], sheds[a]) for a in stream.arcs if a in sheds)

    def _shed(self, train: Train, ways: Sequence[tuple[Arc, Keep]]) -> list[tuple[int, Train]]:
        """Under the lock: queue what is kept of a train on the arcs with drops; what is to be delivered."""
        outgoing: list[tuple[int, Train]] = []
        for arc, keep in ways:
            kept = keep(train)
            if arc.output is not None:
                if kept.count:
                    outgoing.append((arc.output, kept))
            elif kept.count or (arc.timed and kept.watermark_ns != NO_WATERMARK):
                self._announce((arc.number,), kept, self._storage.enqueue((arc.number,), kept))
        return outgoing

    def enqueue(self, arcs: tuple[int, ...], train: Train) -> None:
        """A box's train, to the queues of other boxes."""
        self._announce(arcs, train, self._storage.enqueue(arcs, train))
        self._nudge()

    def deliver(self, output: int, train: Train) -> None:
        """A train to an output's subscribers."""
        self._outlets[output](train)


def _to_boxes(network: Network, stream: Stream, but: Container[int]) -> tuple[int, ...]:
    return tuple(a for a in stream.arcs if network.arcs[a].box is not None and a not in but)


def _to_outputs(network: Network, stream: Stream, but: Container[int]) -> tuple[int, ...]:
    return tuple(o for a in stream.arcs if (o := network.arcs[a].output) is not None and a not in but)
