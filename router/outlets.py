"""The outlets of a network: one for each output, with the codec and the limits of its sink."""

from __future__ import annotations

from collections.abc import Sequence

from catalog.config.models import TcpSink
from catalog.network import Network, Output
from router.boundary import OutputGate, OutputHistory
from router.codecs import CODECS
from router.subscribers import Outlet, Wake


def make_outlets(
    network: Network, wake: Wake, gate: OutputGate, histories: Sequence[OutputHistory | None] | None = None
) -> list[Outlet]:
    """Return each output's outlet. ``gate`` blocks outputs with slow readers. ``histories`` exist with a data_dir."""
    return [make_outlet(o, wake, gate, None if histories is None else histories[o.number]) for o in network.outputs]


def make_outlet(output: Output, wake: Wake, gate: OutputGate, history: OutputHistory | None) -> Outlet:
    sink = output.sink
    if not isinstance(sink, TcpSink):
        return Outlet(output.number, output.name, history=history)
    return Outlet(
        output.number,
        output.name,
        encoder=CODECS[sink.format].encoder(output.schema, sink.timestamps, sink.nan),
        wake=wake,
        buffer_bytes=sink.buffer_bytes,
        when_slow=sink.when_slow,
        gate=gate,
        history=history,
    )
