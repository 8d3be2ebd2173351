"""The catalog: the network in force, and the statistics learned about it.

One ``Epoch`` holds everything that changes together when a network is replaced. A reader of two parts takes the epoch
once and reads both from it, so it never combines a new network with old statistics. The engine calls ``replace`` at a
step boundary. Readers need no lock: one assignment swaps the epoch.
"""

from __future__ import annotations

from dataclasses import dataclass

from catalog.load import LoadModel
from catalog.network import Network
from catalog.stats import Statistics


@dataclass(frozen=True, slots=True)
class Epoch:
    """A network with its statistics and its load model."""

    network: Network
    stats: Statistics  # owned by the monitor thread
    load: LoadModel

    @classmethod
    def of(cls, network: Network, before: Epoch | None = None) -> Epoch:
        """Make an epoch. Statistics of ``before`` about boxes and streams of the same name are carried over."""
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
        """Put the next network in force."""
        self.epoch = Epoch.of(network, self.epoch)
        return self.epoch
