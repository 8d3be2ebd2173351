"""The daemon as the keeper sees it, and the keeper as the daemon makes it: where the two meet."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from catalog.network import Network
from engine.durable.committer import Outcome
from engine.durable.desk import KeeperDesk, OutputHistory
from engine.durable.keeper import Keeper
from storage.train import Train

if TYPE_CHECKING:
    from engine.daemon import Daemon


def make_keeper(network: Network, now_ns: Callable[[], int]) -> Keeper:
    section = network.config.engine
    return Keeper(
        network,
        section.data_dir,
        now_ns=now_ns,
        checkpoint_s=section.checkpoint_ns / 1e9,
        retain_bytes=section.retain_bytes,
    )


def join(daemon: Daemon, keeper: Keeper) -> None:
    """Let the keeper stand between the daemon's router and its engine."""
    keeper.attach(daemon.engine, DaemonSide(daemon), daemon.event_time.clocks)
    daemon.server.desk = KeeperDesk(keeper, daemon.watch_stream)
    for output in daemon.network.outputs:
        daemon.server.outlets[output.number].history = OutputHistory(keeper, output.number)


class DaemonSide:
    """See ``keeper.Around``."""

    def __init__(self, daemon: Daemon) -> None:
        self._daemon = daemon

    def enter(self, stream: int, train: Train) -> None:
        daemon, is_replaying = self._daemon, self._daemon.keeper is not None and self._daemon.keeper.is_replaying
        if is_replaying:
            daemon.count_fed(stream, train.count)
        daemon.engine.routes.admit(stream, train)

    def told(self, outcome: Outcome) -> None:
        self._daemon.server.told(outcome.committed, outcome.refused)

    def readable(self, output: int) -> None:
        self._daemon.server.outlets[output].history_grew()

    def room_again(self) -> None:
        self._daemon.server.room_again()

    def failed(self, error: Exception) -> None:
        self._daemon.fail(error)

    def counters(self) -> dict[str, Any]:
        """Of what is in the log or was refused: a tuple on its way to the log has not been received yet."""
        daemon = self._daemon
        routes = daemon.engine.routes
        return {
            "streams": {
                port.stream.name: {
                    "admitted": routes.admitted[n],
                    "skew": routes.rejected_skew[n],
                    "rejected": {str(reason): count for reason, count in port.rejected.items()},
                    "duplicates": port.duplicates,
                }
                for n, port in enumerate(daemon.server.ports)
            },
            "outputs": {outlet.name: outlet.emitted for outlet in daemon.server.outlets},
        }

    def restore_counters(self, data: Mapping[str, Any]) -> None:
        daemon = self._daemon
        routes = daemon.engine.routes
        for n, port in enumerate(daemon.server.ports):
            if (saved := data["streams"].get(port.stream.name)) is not None:
                routes.admitted[n] = saved["admitted"]
                routes.rejected_skew[n] = saved["skew"]
                port.rejected.update(saved["rejected"])
                port.duplicates = saved["duplicates"]
                port.received = (
                    saved["admitted"] + saved["skew"] + sum(saved["rejected"].values()) + saved["duplicates"]
                )
        for outlet in daemon.server.outlets:
            outlet.emitted = data["outputs"].get(outlet.name, 0)
