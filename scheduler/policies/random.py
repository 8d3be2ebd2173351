"""Random: run any ready unit, each with the same probability. A baseline for experiments.

The choice comes from the seed and the number of plans so far: the same state gives the same choice.
"""

from __future__ import annotations

from itertools import islice

from scheduler.plan import Plan
from scheduler.state import SchedulerState
from scheduler.traversal import expand

WHEN = "a baseline for experiments; no unit starves, and nothing is promised"


def random(state: SchedulerState, now_ns: int) -> Plan | None:
    ready = state.ready
    if not ready:
        return None
    at = mix(state.settings.seed, state.dispatched) % len(ready)
    return expand(state, next(islice(ready, at, None)))


def mix(seed: int, count: int) -> int:
    """Mix with SplitMix64: 64 bits that differ completely for neighbouring counts."""
    z = (seed + (count + 1) * 0x9E3779B97F4A7C15) & 0xFFFFFFFFFFFFFFFF
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & 0xFFFFFFFFFFFFFFFF
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & 0xFFFFFFFFFFFFFFFF
    return z ^ (z >> 31)
