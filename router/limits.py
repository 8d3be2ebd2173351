"""The limits of the data ports: ``limits`` of the network file, and what follows from the memory budget."""

from __future__ import annotations

from dataclasses import dataclass

from catalog.config.models import LimitsSection
from router.codecs.base import POOL_BYTES, pool_bytes
from router.undecoded import undecoded_limit


@dataclass(frozen=True)
class Limits:
    line_bytes: int = 1024**2
    batch_bytes: int = 16 * 1024**2
    connections: int = 1_000
    dead_letters: int = 1_000
    backlog: int = 1_024  # connections that the kernel holds for a listener
    undecoded_bytes: int = undecoded_limit(16 * 1024**2, 0)  # of all connections together
    pool_bytes: int = POOL_BYTES  # of the strings of a stream

    @classmethod
    def of(cls, section: LimitsSection, connections: int, backlog: int, budget_bytes: int) -> Limits:
        return cls(
            section.line_bytes,
            section.batch_bytes,
            connections,
            section.dead_letters,
            backlog,
            undecoded_limit(section.batch_bytes, budget_bytes),
            pool_bytes(budget_bytes),
        )
