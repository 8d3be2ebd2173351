"""Tuples that are still inside boxes: in open windows, joins and sorts. What they are, how to drop them, and how boxes
begin anew after the end of event time.

All functions need an engine at rest: no worker runs a box.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from engine.operators.boxes.base import Tally
from engine.run.runtime import BoxRuntime
from router.event_time import StreamClock
from storage.train import END_WATERMARK, NO_WATERMARK, Train

BEGUN_ANEW = NO_WATERMARK + 1
"""The watermark of an empty train in the log that says: a start let this stream begin anew here. No stream gets it."""


class HeldTuples(NamedTuple):
    """The tuples inside one box."""

    box: str
    kind: str
    tuples: int


def held_tuples(runtimes: Sequence[BoxRuntime]) -> list[HeldTuples]:
    """Return the boxes with tuples inside."""
    found = [HeldTuples(r.node.name, r.node.kind, r.box.held_tuples(r.state)) for r in runtimes]
    return [held for held in found if held.tuples]


def drop_held(runtimes: Sequence[BoxRuntime]) -> list[HeldTuples]:
    """Drop and count the tuples inside boxes. These boxes begin anew, at the event time that they have reached."""
    dropped = held_tuples(runtimes)
    boxes = {held.box: held.tuples for held in dropped}
    for runtime in runtimes:
        if runtime.node.name in boxes:
            runtime.tally.dropped += boxes[runtime.node.name]
            runtime.reset()
            if runtime.watermark_ns != NO_WATERMARK:
                runtime.box.advance(runtime.state, runtime.watermark_ns, _emit_nothing, Tally())
    return dropped


def has_ended(clocks: Sequence[StreamClock | None]) -> bool:
    """Tell whether the event time of a stream is at its end."""
    return any(clock is not None and clock.watermark_ns >= END_WATERMARK for clock in clocks)


def begin_anew(runtimes: Sequence[BoxRuntime], clocks: Sequence[StreamClock | None]) -> None:
    """Let streams whose event time has ended begin again, and with them the boxes that they have ended.

    A stop with ``stop: close`` and a batch run end the event time. The start after them would find every tuple late. A
    box that one input has ended and another has not keeps its state, and waits for both from where it is.
    """
    for clock in clocks:
        if clock is not None and clock.watermark_ns >= END_WATERMARK:
            clock.begin_anew()
    for runtime in runtimes:
        if runtime.watermark_ns >= END_WATERMARK:
            runtime.reset()
            runtime.watermark_ns = runtime.closed_ns = NO_WATERMARK
        at_ns = runtime.watermark_ns
        runtime.port_watermarks_ns = [at_ns if ns >= END_WATERMARK else ns for ns in runtime.port_watermarks_ns]


def _emit_nothing(port: int, train: Train) -> None:
    assert not train.count, "an empty state has no results"
