"""The edge in a simulation: decoding limits what reaches the network, before any box runs.

The simulator has no sockets. It takes from the edge what matters for a contract: the time to decode a row of each
stream, on one thread. Above that the daemon decodes a share of the rows of streams that may be shed there
(``load_shedder/decide/edge``), and every output behind them loses the others.

The time of a row comes from a running daemon, or else from the format.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from catalog.config.models import TcpSource
from catalog.network import Network
from engine.simulate.arrivals import Trains
from load_shedder.apply.limits import edge_waits_ns
from load_shedder.decide.edge import FULL

Floats = npt.NDArray[np.float64]

TYPICAL_NS = {"ndjson": 400.0, "csv": 300.0, "arrow": 20.0}
"""To decode a row of five fields, by the clock, on the machine of ``docs/performance.md``."""
ROWS_TO_TRUST = 1_000


def decode_costs(network: Network, stats: Mapping[str, Any] | None = None) -> tuple[float, ...]:
    """Return, by stream, the ns to decode a row: as a daemon measured it (``/api/v1/stats``), else by the format."""
    known = {s.get("name"): s for s in (stats or {}).get("streams", ())}
    found = []
    for stream in network.streams:
        typical = TYPICAL_NS.get(stream.source.format, 0.0) if isinstance(stream.source, TcpSource) else 0.0
        reading = known.get(stream.name, {})
        edge = reading.get("edge", {})
        decoded = reading.get("received", 0) - sum(edge.get("dropped", {}).values())
        spent_ns = edge.get("decode_ns", 0)
        found.append(spent_ns / decoded if spent_ns and decoded >= ROWS_TO_TRUST else typical)
    return tuple(found)


def most_at_the_edge(rates: Floats, decode_ns: Sequence[float]) -> float:
    """Return the multiple of these rates at which decoding is full."""
    asked_ns = float(np.dot(rates, decode_ns)) if len(decode_ns) else 0.0
    return 1e9 / asked_ns if asked_ns > 0 else np.inf


def decoded_shares(network: Network, rates: Floats, decode_ns: Sequence[float]) -> Floats:
    """Return, by stream, the share of its rows that is decoded at these rates."""
    shares = np.ones(len(rates))
    if not len(decode_ns):
        return shares
    demand_ns = rates * np.asarray(decode_ns)
    sheds = np.zeros(len(rates), np.bool_)
    sheds[list(edge_waits_ns(network))] = True
    asked_ns = float(demand_ns[sheds].sum())
    if demand_ns.sum() > 1e9 and asked_ns > 0:
        shares[sheds] = min(1.0, max(FULL * 1e9 - float(demand_ns[~sheds].sum()), 0.0) / asked_ns)
    return shares


def thinned(trains: Trains, share: float) -> Trains:
    """Return the arrivals with this share of their tuples, evenly."""
    times, counts = trains
    kept = np.diff(np.floor(np.cumsum(counts * share) + 1e-9), prepend=0.0).astype(np.int64)
    return times[kept > 0], kept[kept > 0]
