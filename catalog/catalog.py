"""The catalog: the network that runs now, and what has been learned about it.

One ``Epoch`` is everything that changes together when a network is replaced. Whoever needs two of its parts takes
the epoch once and reads both from it, and so never sees a new network with old statistics. ``replace`` is called by
the engine at a step boundary; readers need no lock because the epoch is swapped by one assignment.
"""

from __future__ import annotations

from dataclasses import dataclass

from catalog.load import LoadModel
from catalog.network import Network
from catalog.stats import Statistics


@dataclass(frozen=True, slots=True)
class Epoch:
    network: Network
    stats: Statistics  # owned by the monitor thread
    load: LoadModel

    @classmethod
    def of(cls, network: Network, before: Epoch | None = None) -> Epoch:
        """A fresh one; what ``before`` learned about boxes and streams of the same name is carried over."""
        stats = Statistics(network)
        if before is not None:
            stats.carry_over(before.stats, network, before.network)
        return cls(network, stats, LoadModel(network))


class Catalog:
    """Holds the current epoch."""

    def __init__(self, network: Network) -> None:
        self.epoch = Epoch.of(network)

    @property
    def network(self) -> Network:
        return self.epoch.network

    @property
    def stats(self) -> Statistics:
        return self.epoch.stats

    @property
    def load(self) -> LoadModel:
        return self.epoch.load

    def replace(self, network: Network) -> Epoch:
        """The next network takes over."""
        self.epoch = Epoch.of(network, self.epoch)
        return self.epoch
