"""Warn of windows that only a later tuple can close, although the stream may fall silent.

A window of event time closes when its stream's watermark passes its end. Three things move a watermark: a later tuple,
silence of ``idle``, and a heartbeat, which only some formats carry. A stream with neither ``idle`` nor heartbeats keeps
its last window open until the daemon stops. The same holds for joins with unmatched rows, as-of joins and sorts.
"""

from __future__ import annotations

from catalog.config.models import TcpSource
from catalog.network import Network, Stream
from router.codecs import HEARTBEAT_FORMATS
from router.event_time import boxes_downstream

Remark = tuple[tuple[str, ...], str, str]
"""The path in the network file, the message, the hint."""


def never_closed(network: Network) -> list[Remark]:
    """Return a warning for each box and stream of which only a later tuple closes the last windows."""
    return [
        (
            ("boxes", network.boxes[box].name),
            f"the last tuples of stream {stream.name} wait here until a later one comes",
            f"set idle on {stream.name}, such as idle: 5s; or send {' or '.join(HEARTBEAT_FORMATS)} with heartbeats",
        )
        for stream in network.streams
        if _only_tuples_move(stream)
        for box in sorted(boxes_downstream(network, stream))
        if network.boxes[box].box.waits_for_time()
    ]


def _only_tuples_move(stream: Stream) -> bool:
    """Tell whether nothing but a tuple moves the stream's event time. Only the sender knows that of heartbeats."""
    if stream.time_field is None or getattr(stream.options, "idle_ns", None) is not None:
        return False
    return isinstance(stream.source, TcpSource) and stream.source.format not in HEARTBEAT_FORMATS
