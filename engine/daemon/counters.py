"""The counts that survive a restart: every checkpoint contains them.

A tuple counts as received when it is in the log or was refused, not while it is on its way to the log.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from engine.run.core import Engine
from router.server import Server


class DaemonCounters:
    """The ``KeptCounters`` of ``engine/daemon/durable/checkpointer``: the ports', the ingress' and the outlets'."""

    def __init__(self, engine: Engine, server: Server) -> None:
        self._ingress = engine.ingress
        self._deliveries = engine.deliveries
        self._server = server

    def snapshot(self) -> dict[str, Any]:
        ingress, server = self._ingress, self._server
        return {
            "streams": {
                port.stream.name: {
                    "admitted": ingress.admitted[number],
                    "skew": ingress.rejected_skew[number],
                    "rejected": {str(reason): count for reason, count in port.rejected.items()},
                    "duplicates": port.duplicates,
                }
                for number, port in enumerate(server.ports)
            },
            "outputs": {
                outlet.name: outlet.emitted + delivery.replayed
                for outlet, delivery in zip(server.outlets, self._deliveries, strict=True)
            },
        }

    def restore(self, data: Mapping[str, Any]) -> None:
        ingress, server = self._ingress, self._server
        for number, port in enumerate(server.ports):
            if (saved := data["streams"].get(port.stream.name)) is not None:
                ingress.admitted[number] = saved["admitted"]
                ingress.rejected_skew[number] = saved["skew"]
                port.rejected.update(saved["rejected"])
                port.duplicates = saved["duplicates"]
                port.received = (
                    saved["admitted"] + saved["skew"] + sum(saved["rejected"].values()) + saved["duplicates"]
                )
        for outlet in server.outlets:
            outlet.emitted = data["outputs"].get(outlet.name, 0)
