"""A box at run time: its state, what became of its tuples, what it cost.

Written by the worker that runs the box, and only while it runs it (a box is in one plan at a time); read by anyone
without a lock, because a reader that is one train behind does no harm. Plain integers: touching a Prometheus object for
every train would cost more than the train.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from catalog.network import BoxNode
from catalog.readings import TRAIN_BOUNDS, BoxReading
from engine.boxes.base import Box, Tally
from storage.train import NO_WATERMARK

if TYPE_CHECKING:
    from engine.shed.book import BoxLosses


class BoxRuntime:
    __slots__ = (
        "box",
        "calls",
        "closed_ns",
        "cost_ns",
        "losses",
        "node",
        "port_watermarks_ns",
        "state",
        "tally",
        "train_counts",
        "tuples_in",
        "tuples_out",
        "watermark_ns",
    )

    def __init__(self, node: BoxNode) -> None:
        self.node = node
        self.box: Box = node.box
        self.state = self.box.new_state()
        self.losses: BoxLosses | None = None
        self.tally = Tally()
        self.calls = 0
        self.tuples_in = 0
        self.tuples_out = [0] * len(node.ports)  # by port
        self.cost_ns = 0
        self.train_counts = [0] * (len(TRAIN_BOUNDS) + 1)
        self.port_watermarks_ns = [NO_WATERMARK] * len(node.in_arcs)
        self.watermark_ns = NO_WATERMARK  # the lowest of the ports
        self.closed_ns = NO_WATERMARK  # the same, once the box has closed what waited for it

    def attend(self, losses: BoxLosses | None) -> None:
        """What is missing before the box; once more after its state has been put back."""
        self.losses = losses
        if losses is not None:
            self.box.attend(self.state, losses)

    def bury(self) -> None:
        """After a failure: what was taken in and is not accounted for otherwise is dead."""
        tally = self.tally
        if self.box.row_wise:
            tally.dead = self.tuples_in - sum(self.tuples_out) - tally.filtered
        else:
            tally.dead = self.tuples_in - tally.absorbed - tally.late

    def reading(self) -> BoxReading:
        tally = self.tally
        return BoxReading(
            name=self.node.name,
            kind=self.node.kind,
            row_wise=self.box.row_wise,
            calls=self.calls,
            tuples_in=self.tuples_in,
            tuples_out=sum(self.tuples_out),
            filtered=tally.filtered,
            absorbed=tally.absorbed,
            late=tally.late,
            dead=tally.dead,
            null_errors=tally.null_errors,
            cost_ns=self.cost_ns,
            state_bytes=self.box.state_nbytes(self.state),
            train_counts=tuple(self.train_counts),
            tuples_out_by_port=tuple(self.tuples_out),
            withheld=self.losses.withheld if self.losses is not None else 0,
        )
