"""The limits of a box's state in the network file."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict
from pydantic import Field as Parameter

from catalog.config.units import PositiveDuration, PositiveSize

AtLimit = Literal["spill", "evict", "block"]


class StateLimits(BaseModel):
    """``state: {memory: 64MiB, at_limit: evict}``."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    memory: PositiveSize | None = Parameter(
        default=None, description="bytes of state in memory; without it a fair share of half of engine.memory"
    )
    keys: int | None = Parameter(default=None, gt=0, description="keys in memory; without it as many as fit")
    ttl: PositiveDuration | None = Parameter(
        default=None, description="event time of silence after which a key is forgotten, counted as evicted"
    )
    at_limit: AtLimit = Parameter(
        default="spill",
        description="spill: keys wait on disk, and results come later but are the same; evict: the keys that were "
        "silent longest are forgotten and counted; block: the overload rule of the streams applies",
    )
