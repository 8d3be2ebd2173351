"""Before a change is let in: what it does to the outputs that are there, and whether the network file allows that."""

from __future__ import annotations

import os
from collections.abc import Mapping
from copy import deepcopy
from typing import TYPE_CHECKING, Any

from catalog.network import Network
from router.http.change import ChangeRefusedError

if TYPE_CHECKING:
    from engine.daemon.daemon import Daemon
    from engine.simulate.admission import ChangeForecast


def forecast(daemon: Daemon, after: Network) -> ChangeForecast | None:
    """Forecast a change with the simulator and the costs measured so far; None while no tuples come."""
    statistics = deepcopy(daemon.catalog.stats)  # the monitor goes on writing
    if not statistics.rate_per_s.any():
        return None
    from dataclasses import replace

    from engine.simulate.admission import foresee  # imported where it is asked for: it takes time
    from engine.simulate.overheads import DAEMON

    ingress, before = daemon.ingress, daemon.network
    latest = {s.name: train for s in before.streams if (train := ingress.latest[s.number]) is not None}
    workers = after.config.engine.sure_workers
    overheads = replace(DAEMON, cores=float(len(os.sched_getaffinity(0))))
    return foresee(before, after, statistics, latest, workers, overheads, daemon.engine.choice.policy)


def check_admission(found: ChangeForecast | None, after: Network, plan: Mapping[str, Any]) -> None:
    """Refuse a change that takes an output below ``admission.min_utility``. Raises ChangeRefusedError."""
    least = after.config.admission.min_utility
    if found is None or least is None or not (broken := found.broken(least)):
        return
    worst = sorted(broken, key=lambda o: o.utility[1])
    told = "; ".join(
        f"{o.name}: utility {o.utility[0]:.2f} -> {o.utility[1]:.2f}, p99 {o.p99_ns[0] / 1e6:.0f} -> "
        f"{o.p99_ns[1] / 1e6:.0f} ms"
        for o in worst[:5]
    )
    message = f"the change would cost others too much, at load {found.load[0]:.0%} -> {found.load[1]:.0%}: {told}"
    raise ChangeRefusedError(message, f"admission.min_utility is {least:g}; --force applies it all the same", 409, plan)
