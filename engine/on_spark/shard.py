"""One shard of one stage: its boxes with their state, driven through one batch as the daemon drives them through one
train.

A batch has two phases. In the first, event time advances to what the batches before have reached, and windows close. In
the second the tuples of the batch run, and no event time moves. That is the order of the daemon: a tuple is late when
an earlier train has moved the watermark beyond it, not by its neighbours in its own train. A later stage sees the same
two phases: first the results of the first phase, then the watermark, then the results of the second.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Literal

from engine.on_spark.stage_spec import BuiltStage, StageWay
from engine.operators.boxes.base import Emit, Tally
from engine.operators.expressions import ignore_float_flags
from storage.train import NO_WATERMARK, Train

Phase = Literal[0, 1]
TIME_MOVES: Phase = 0
TUPLES_RUN: Phase = 1

Deliver = Callable[[int, Train], None]
"""Take results of an output."""

Pass = Callable[[int, Phase, Train], None]
"""Take tuples for a lane of the next stage."""

NOWHERE = StageWay((), (), ())
COUNTS = ("filtered", "absorbed", "late", "dead", "null_errors")


class ShardRun:
    """Owner: the task that runs the shard."""

    def __init__(self, stage: BuiltStage, deliver: Deliver, pass_on: Pass) -> None:
        self._stage = stage
        self._is_muted = False  # what the boxes emit goes nowhere
        self._deliver = deliver
        self._pass_on = pass_on
        self._phase: Phase = TIME_MOVES
        self._waiting: list[list[list[Train]]] = [[[] for _ in b.inputs] for b in stage.boxes]  # by box and port
        self.tallies = [Tally() for _ in stage.boxes]
        self._states = [b.box.new_state() for b in stage.boxes]
        self._ports_ns = [[NO_WATERMARK] * len(b.inputs) for b in stage.boxes]
        self._box_ns = [NO_WATERMARK] * len(stage.boxes)
        self._out_ns = [NO_WATERMARK] * len(stage.boxes)

    def attach(self, deliver: Deliver, pass_on: Pass) -> None:
        """Begin a batch: tell where results go, and count anew."""
        self._deliver, self._pass_on = deliver, pass_on
        self._phase = TIME_MOVES
        self.tallies = [Tally() for _ in self._stage.boxes]

    def restore(self, saved: Mapping[str, Any]) -> None:
        """Take the state that ``snapshot`` gave."""
        self._states = [b.box.restore(data) for b, data in zip(self._stage.boxes, saved["states"], strict=True)]
        self._ports_ns = [list(ports) for ports in saved["ports_ns"]]
        self._box_ns = list(saved["box_ns"])
        self._out_ns = list(saved["out_ns"])

    @contextmanager
    def muted(self) -> Iterator[None]:
        """Run tuples again that have been run before: their results and counts are known."""
        self._is_muted, kept = True, self.tallies
        self.tallies = [Tally() for _ in kept]
        try:
            yield
        finally:
            self._is_muted, self.tallies, self._phase = False, kept, TIME_MOVES

    def take(self, lane: int, train: Train) -> None:
        """Take tuples of a lane. ``go`` runs them."""
        if train.count:
            self._send(self._stage.lane_ways[lane], train)

    def advance(self, lanes_ns: Sequence[int]) -> None:
        """End the first phase: run what was taken, then let event time advance to these watermarks, by lane."""
        self._phase = TIME_MOVES
        for way, at_ns in zip(self._stage.lane_ways, lanes_ns, strict=True):
            self._announce(way, at_ns)
        self._run_boxes(moves=True)
        self._phase = TUPLES_RUN

    def go(self, now_ns: int | None = None) -> None:
        """Run what was taken in the second phase. ``now_ns``: it ends, and time-outs look at the clock."""
        self._run_boxes(moves=False, now_ns=now_ns)

    def watermarks(self, lanes_ns: Sequence[int]) -> list[int]:
        """Return the watermark of each lane of the next stage, for those of the lanes of this one."""
        found = [NO_WATERMARK] * len(self._stage.next_lanes)
        for way, at_ns in zip(self._stage.lane_ways, lanes_ns, strict=True):
            for lane in way.lanes:
                found[lane] = at_ns
        for (box, _), way in self._stage.ways.items():
            for lane in way.lanes:
                found[lane] = self._out_ns[box]
        return found

    def snapshot(self) -> dict[str, Any]:
        boxes = zip(self._stage.boxes, self._states, strict=True)
        return {
            "states": [b.box.snapshot(state) for b, state in boxes],
            "ports_ns": self._ports_ns,
            "box_ns": self._box_ns,
            "out_ns": self._out_ns,
        }

    def counts(self) -> dict[str, list[int]]:
        """Return what happened to the tuples that boxes took and did not emit, by box."""
        names = [b.name for b in self._stage.boxes]
        return {n: [getattr(t, c) for c in COUNTS] for n, t in zip(names, self.tallies, strict=True)}

    # -- the boxes -----------------------------------------------------------------------------------------------------

    def _run_boxes(self, *, moves: bool, now_ns: int | None = None) -> None:
        ignore_float_flags()
        for at, spec in enumerate(self._stage.boxes):
            box, state, tally, emit = spec.box, self._states[at], self.tallies[at], self._emitter(at)
            for port, trains in enumerate(self._waiting[at]):
                for train in trains:
                    box.run(state, port, train, emit, tally)
                trains.clear()
            if moves:
                self._move(at, emit)
            elif box.needs_clock and now_ns is not None:
                box.tick(state, now_ns, emit, tally)

    def _move(self, at: int, emit: Emit) -> None:
        """Advance a box to the lowest watermark of its inputs."""
        lowest_ns = min(self._ports_ns[at])
        if lowest_ns <= self._box_ns[at]:
            return
        box, state = self._stage.boxes[at].box, self._states[at]
        self._box_ns[at] = lowest_ns
        box.advance(state, lowest_ns, emit, self.tallies[at])
        self._out_ns[at] = box.out_watermark_ns(state, lowest_ns)
        for port in range(len(self._stage.boxes[at].out_schemas)):
            self._announce(self._stage.ways.get((at, port), NOWHERE), self._out_ns[at])

    def _announce(self, way: StageWay, at_ns: int) -> None:
        for box, port in way.inputs:
            self._ports_ns[box][port] = max(at_ns, self._ports_ns[box][port])

    def _emitter(self, at: int) -> Emit:
        ways = self._stage.ways

        def emit(port: int, train: Train) -> None:
            if train.count:
                self._send(ways.get((at, port), NOWHERE), train)

        return emit

    def _send(self, way: StageWay, train: Train) -> None:
        for box, port in way.inputs:
            self._waiting[box][port].append(train)
        if self._is_muted:
            return
        for output in way.outputs:
            self._deliver(output, train)
        for lane in way.lanes:
            self._pass_on(lane, self._phase, train)
