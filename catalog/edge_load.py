"""The load of the edge: decoding, I/O, encoding and the log, beside the workers. Plain data.

In the catalog because two packages that never import each other share it: ``qos_monitor/edge_load`` computes it on
every tick, and ``load_shedder/decide/edge`` decides by it which share of a stream is decoded.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple


class StreamEdge(NamedTuple):
    """One stream at the edge, over the last tick."""

    offered_per_s: float = 0.0  # rows, dropped or not; smoothed
    decode_ns: float = 0.0  # of one row, by the clock; smoothed
    sheds: bool = False  # whether rows may be dropped undecoded
    is_late: bool = False  # its rows wait longer, in the socket or undecoded, than its outputs can bear

    @property
    def demand_ns(self) -> float:
        """The decoding that the stream asks for, in ns per second."""
        return self.offered_per_s * self.decode_ns


class EdgeLoad(NamedTuple):
    at_ns: int = 0
    streams: tuple[StreamEdge, ...] = ()
    resources: Mapping[str, float] = MappingProxyType({})  # by name: demanded over capacity
