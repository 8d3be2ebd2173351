"""VPipe: a DAG of boxes run as one line (P2 section 3).

Under ``unit: vpipe`` an application is one line of boxes, in topological order. Every arc has a *bitmap*, a code of its
own, and every tuple carries the bitmap of the arc that it is on. Each box on the line does what figure 3 of P2 says:

1. *Bypass check*: tuples whose bitmap is none of the box's inputs pass by.
2. *Process*: the others go to the input that their bitmap names.
3. *Mark result*: results get the bitmap of the arc that they leave by.

Between two boxes of a plan there is one queue, the ``LineInbox``: a column of bitmaps and a column of time stamps, one
entry for each tuple, in the order of time. So a box with several inputs takes them in the order of time (IDS of P2),
and tuples that are for two boxes move on together (SOS). The columns of the tuples stay with their arc, because arcs
have different schemas: the k-th entry with a bitmap is the k-th tuple of that arc. While no plan runs, the tuples of an
arc wait on its queue in the storage manager, as under every other unit; a plan takes from all arcs of its boxes up to
one time (``scheduler/traversal.line_plan``).

An arc keeps its order even where the arrivals of its tuples do not rise (behind a ``bsort``): the stamp of a tuple is
the latest arrival on its arc so far.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain

import numpy as np
import numpy.typing as npt

from catalog.network import Network
from engine.run.executable import (
    Executable,
    Inbox,
    LimitedStep,
    Sheds,
    SingleStep,
    WorkerRoutes,
    compile_ports,
)
from engine.run.followers import sequence_steps
from engine.run.runtime import BoxRuntime
from engine.run.taps import Taps
from scheduler.claims import Claim
from storage.queue import coalesce
from storage.train import NO_WATERMARK, Train

Bitmaps = npt.NDArray[np.int32]
Stamps = npt.NDArray[np.int64]


class LineInbox(Inbox):
    """The tuples on the line while a plan runs. Owner: the worker that runs the plan."""

    __slots__ = ("_latest_ns", "_marked", "_stamps", "bitmaps")

    def __init__(self, claims: dict[int, Claim]) -> None:
        super().__init__(claims)
        self.bitmaps: Bitmaps = np.empty(0, np.int32)
        self._stamps: Stamps = np.empty(0, np.int64)
        self._marked: dict[int, int] = {}  # by arc: how many of its trains are in the columns
        self._latest_ns: dict[int, int] = {}  # by arc: the stamp of the last tuple that was put into the columns
        self.mark(tuple(self.trains))

    def mark(self, arcs: Sequence[int]) -> None:
        """Put the trains that have come on these arcs into the line, by their time stamps."""
        bitmaps, stamps = [self.bitmaps], [self._stamps]
        for arc in arcs:
            trains = self.trains.get(arc, ())
            for train in trains[self._marked.get(arc, 0) :]:
                if train.count:
                    bitmaps.append(np.full(train.count, arc, np.int32))
                    stamped = np.maximum.accumulate(
                        np.maximum(train.arrival_ns, self._latest_ns.get(arc, NO_WATERMARK))
                    )
                    self._latest_ns[arc] = int(stamped[-1])
                    stamps.append(stamped)
            self._marked[arc] = len(trains)
        if len(bitmaps) > 1:
            all_stamps = np.concatenate(stamps)
            marked = np.concatenate(bitmaps)
            order = np.argsort(all_stamps, kind="stable")
            self.bitmaps, self._stamps = marked.take(order), all_stamps.take(order)

    def bypass(self, arcs: Sequence[int]) -> list[tuple[int, Train]]:
        """Take out the tuples whose bitmap is one of these inputs, as (input, train) in the order of time; all others
        stay on the line."""
        taken = self.leave(arcs)
        lists = [self.trains.pop(arc, []) for arc in arcs]
        if not any(lists):
            return []
        if len(arcs) == 1:
            return [(0, train) for train in coalesce(lists[0])]
        return _in_time_order(arcs, lists, taken)

    def leave(self, arcs: Sequence[int]) -> Bitmaps:
        """Take the bitmaps of these arcs off the line, and return them in the order of time."""
        for arc in arcs:
            self._marked.pop(arc, None)
        mine = self.bitmaps == arcs[0] if len(arcs) == 1 else np.isin(self.bitmaps, arcs)
        taken = self.bitmaps[mine]
        if taken.shape[0]:
            stay = ~mine
            self.bitmaps, self._stamps = self.bitmaps[stay], self._stamps[stay]
        return taken


def _in_time_order(arcs: Sequence[int], lists: Sequence[list[Train]], taken: Bitmaps) -> list[tuple[int, Train]]:
    """Cut the trains of several inputs where the bitmaps change from one input to another."""
    ports = {arc: port for port, arc in enumerate(arcs)}
    heads = [list(reversed(trains)) for trains in lists]  # the oldest last
    ends = [*np.flatnonzero(np.diff(taken)).tolist(), taken.shape[0] - 1] if taken.shape[0] else []
    out: list[tuple[int, Train]] = []
    start = 0
    for end in ends:
        port = ports[int(taken[end])]
        out += [(port, train) for train in _first(heads[port], end + 1 - start)]
        start = end + 1
    for port, head in enumerate(heads):  # punctuations behind the last tuple
        assert not any(train.count for train in head)
        out += [(port, train) for train in reversed(head)]
    return out


def _first(head: list[Train], tuples: int) -> list[Train]:
    """Take the first tuples of an input, with the punctuations between them, as few trains."""
    out: list[Train] = []
    while tuples:
        train = head.pop()
        if train.count > tuples:
            train, rest = train.split(tuples)
            head.append(rest)
        tuples -= train.count
        out.append(train)
    return coalesce(out)


class LineStep(SingleStep):
    """One box on the line."""

    def run(self, inbox: Inbox) -> None:
        assert isinstance(inbox, LineInbox)
        mine = inbox.bypass(self.arcs)
        for port, train in mine:
            self._call(port, train, inbox)
        if mine:
            inbox.mark(tuple(chain.from_iterable(self.runtime.node.out_arcs)))


class LimitedLineStep(LimitedStep):
    """A box on the line that calls code of users. It has one input, so its trains are in the order of time."""

    def run(self, inbox: Inbox) -> None:
        assert isinstance(inbox, LineInbox)
        inbox.leave(self.arcs)
        super().run(inbox)
        inbox.mark(tuple(chain.from_iterable(self.runtime.node.out_arcs)))


class LineExecutable(Executable):
    """A compiled part of the line."""

    def open(self, claims: dict[int, Claim]) -> Inbox:
        return LineInbox(claims)


def compile_line(
    network: Network,
    runtimes: Sequence[BoxRuntime],
    boxes: tuple[int, ...],
    routes: WorkerRoutes,
    taps: Taps,
    now_ns: Callable[[], int],
    sheds: Sheds | None = None,
) -> Executable:
    """Compile these boxes, in the order of the line. Nothing is fused: tuples of other arcs pass between two boxes."""
    steps = []
    for step in sequence_steps(network, boxes):
        runtime = runtimes[step.box]
        make = LimitedLineStep if runtime.box.calls_users and len(step.in_arcs) == 1 else LineStep
        steps.append(make(runtime, compile_ports(network, step, routes, taps, sheds or {}), now_ns))
    return LineExecutable(tuple(steps), routes)
