"""The parts that only some networks need. Their modules are imported only where a network needs them.

A data_dir and spilling import pyarrow; ``policy: auto`` imports the simulator.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from catalog.network import Network
from catalog.stats import Statistics
from engine.run.core import Engine
from qos_monitor.histogram import LatencyRecorder
from scheduler.choice import AUTO

if TYPE_CHECKING:
    from engine.daemon.autopilot import Autopilot
    from engine.daemon.durable.keeper import Keeper
    from engine.daemon.durable.temporary import TemporarySpill
    from storage.spill_files import SpillFiles


def make_keeper(network: Network, now_ns: Callable[[], int], on_failure: Callable[[Exception], None]) -> Keeper | None:
    """Return the keeper of the network's data_dir, if it has one."""
    section = network.config.engine
    if section.data_dir is None:
        return None
    from engine.daemon.durable.keeper import Keeper

    return Keeper(
        network,
        section.data_dir,
        now_ns=now_ns,
        on_failure=on_failure,
        checkpoint_s=section.checkpoint_ns / 1e9,
        retain_bytes=section.retain_bytes,
    )


def make_temporary_spill(network: Network) -> TemporarySpill | None:
    """Return a temporary folder to spill to, if the network spills and has no data_dir."""
    if network.config.engine.data_dir is not None or not spills(network):
        return None
    from engine.daemon.durable.temporary import TemporarySpill

    return TemporarySpill()


def spill_files(network: Network, temporary: TemporarySpill | None, keeper: Keeper | None) -> SpillFiles | None:
    """Return the files to spill to: temporary ones, or those of the data_dir."""
    if temporary is not None:
        return temporary.files
    return keeper.spill if keeper is not None and spills(network) else None


def spills(network: Network) -> bool:
    """Tell whether some stream may spill to disk."""
    return any(stream.overload == "spill" for stream in network.streams)


def make_autopilot(engine: Engine, statistics: Statistics, recorders: Sequence[LatencyRecorder]) -> Autopilot | None:
    """Return the autopilot, which chooses the policy, if the network file says ``policy: auto``."""
    if engine.network.config.scheduler.policy != AUTO:
        return None
    from engine.daemon.autopilot import Autopilot

    now_ns = engine.now_ns
    return Autopilot(engine, statistics, lambda: [r.reading(now_ns()) for r in recorders], now_ns)
