"""Warn of windows that only a later tuple can close, although the stream may fall silent.

A window of event time closes when its stream's watermark passes its end. Three things move a watermark: a later tuple,
silence of ``idle``, and a heartbeat, which only some formats carry. A stream with neither ``idle`` nor heartbeats keeps
its last window open until the daemon stops. The same holds for joins with unmatched rows, as-of joins and sorts.

Only the sender knows whether it sends heartbeats. Most senders do not (``nc`` with a file never does), so the warning
comes for every format; ``idle: off`` answers it.
"""

from __future__ import annotations

from catalog.config.models import TcpSource
from catalog.network import Network, Stream
from router.codecs import HEARTBEAT_FORMATS
from router.event_time import boxes_downstream

Remark = tuple[tuple[str, ...], str, str]
"""The path in the network file, the message, the hint."""


def never_closed(network: Network) -> list[Remark]:
    """Return a warning for each stream whose last tuples wait in boxes until a later tuple comes."""
    remarks: list[Remark] = []
    for stream in filter(_only_tuples_move, network.streams):
        boxes = [network.boxes[box] for box in sorted(boxes_downstream(network, stream))]
        if waiting := [box.name for box in boxes if box.box.waits_for_time()]:
            message = f"the last tuples wait in {', '.join(waiting)} until a later one comes"
            remarks.append((("streams", stream.name), message, _hint(stream)))
    return remarks


def _hint(stream: Stream) -> str:
    if isinstance(stream.source, TcpSource) and stream.source.format in HEARTBEAT_FORMATS:
        return "set idle: 5s, or idle: off if the sender sends heartbeats or never pauses"
    return "set idle: 5s, or idle: off if the sender never pauses"


def _only_tuples_move(stream: Stream) -> bool:
    """Tell whether nothing but a tuple or a heartbeat moves the stream's event time, and the file does not say so."""
    if stream.time_field is None or getattr(stream.options, "idle_ns", None) is not None:
        return False
    return isinstance(stream.source, TcpSource) and not getattr(stream.options, "is_never_idle", False)
