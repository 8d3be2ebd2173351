"""The levels of urgency: what may wait, by deadline, and what cannot be done in that time.

Where the policy runs urgent outputs first, each deadline has its own *level*: the work for all outputs that are at
least as urgent. The backlog of a level must fit into half of its deadline, or into all of it but ``SPARE_NS`` where
that is more: a shed plan takes effect within this time. A drop of less urgent tuples does not help a
level, because its tuples do not wait for them. Under other policies every tuple waits for every other one, and there is
one level, with the tightest deadline. Deadlines within a factor of two share a level.

A level is *pressed* when its backlog, with what it grows in ``AHEAD_S``, exceeds what may wait. Until then nothing is
shed for it, however much arrives: a burst that fits into the slack of its deadline is no overload, and of a longer one
only the rest is. A pressed level stays pressed while more arrives for it than can be done, or more waits than the
queue that keeps the workers busy.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from catalog.load import LoadModel
from catalog.load_verdict import LevelLoad
from catalog.network import Network
from catalog.stats import Floats
from qos_monitor.sampler import Sample

Flags = npt.NDArray[np.bool_]

AHEAD_S = 0.1  # until a plan takes effect
STANDING = 0.2  # of the backlog allowed: the target during an overload
BEGUN_RATIO = 0.25  # of the backlog allowed: with less than that no overload begins
CATCH_UP_S = 0.7  # time to work off a backlog that harms
MERGED_RATIO = 2.0  # deadlines that differ by less share a level
WAIT_AT_LEAST_NS, WAIT_AT_MOST_NS, PATIENT_NS = 20_000_000, 1_000_000_000, 2_000_000_000
SPARE_NS = 500_000_000


class UrgencyLevel(NamedTuple):
    """The arcs and boxes whose work comes before all that is less urgent."""

    wait_ns: int  # how long their tuples may wait
    arcs: Flags
    boxes: tuple[bool, ...]


def may_wait_ns(deadline_ns: int | None) -> int:
    """Return how long the tuples of an output may wait without harm."""
    if deadline_ns is None:
        return WAIT_AT_MOST_NS
    return min(max(deadline_ns // 2, deadline_ns - SPARE_NS, WAIT_AT_LEAST_NS), PATIENT_NS)


def find_levels(network: Network, waits: list[int], counted: Flags, urgent_first: bool) -> tuple[UrgencyLevel, ...]:
    """Return the levels, from the tightest on; each contains the ones before it, and the last one everything.
    ``waits`` is by output; ``counted`` are the arcs whose backlog counts."""
    everything = tuple([True] * len(network.boxes))
    if not urgent_first:
        return (UrgencyLevel(min(waits, default=WAIT_AT_MOST_NS), counted, everything),)
    behind = [network.box_outputs[a.box] if a.box is not None else (a.output or 0,) for a in network.arcs]
    by_arc = np.array([min((waits[o] for o in outputs), default=WAIT_AT_MOST_NS) for outputs in behind])
    by_box = [min((waits[o] for o in outputs), default=WAIT_AT_MOST_NS) for outputs in network.box_outputs]
    known = sorted(set(by_arc[counted].tolist())) or [min(waits, default=WAIT_AT_MOST_NS)]
    levels: list[UrgencyLevel] = []
    for i, wait_ns in enumerate(known):
        if levels and wait_ns < MERGED_RATIO * levels[-1].wait_ns:
            continue
        end_ns = next((w for w in known[i:] if w >= MERGED_RATIO * wait_ns), 2**62)
        boxes = tuple(w < end_ns for w in by_box)
        levels.append(UrgencyLevel(wait_ns, counted & (by_arc < end_ns), boxes))
    levels[-1] = levels[-1]._replace(boxes=everything)
    return tuple(levels)


def level_loads(
    before: tuple[LevelLoad, ...],
    sample: Sample,
    levels: tuple[UrgencyLevel, ...],
    model: LoadModel,
    arriving_ns: Floats,
    now_ns: Floats,
    backlog: Floats,
    capacity_ns: float,
    full_ratio: float,
) -> tuple[LevelLoad, ...]:
    """Return the load of each level. ``arriving_ns`` is the work that arrives per second, by stream, with a memory of
    bursts, ``now_ns`` without; ``backlog`` the work that waits, by arc. A pressed level stays pressed above
    ``full_ratio`` of capacity."""
    known = before if len(before) == len(levels) else (None,) * len(levels)
    found = []
    for level, last in zip(levels, known, strict=True):
        by_stream, by_arc = _shares(level, sample, model)
        load_ns = float(np.dot(arriving_ns, by_stream))
        most_ns = full_ratio * capacity_ns
        keeps_coming = load_ns > most_ns and float(np.dot(now_ns, by_stream)) > most_ns
        waits_ns = float(np.dot(backlog[level.arcs], by_arc[level.arcs]))
        may_ns = capacity_ns * level.wait_ns / 1e9
        begins = waits_ns > BEGUN_RATIO * may_ns and (waits_ns + AHEAD_S * max(0.0, load_ns - capacity_ns) > may_ns)
        lasts = last is not None and last.is_pressed and (keeps_coming or waits_ns > STANDING * may_ns)
        catch_up_ns = max(0.0, waits_ns - may_ns) / CATCH_UP_S
        found.append(
            LevelLoad(
                level.boxes,
                load_ns,
                waits_ns,
                may_ns,
                catch_up_ns=catch_up_ns,
                slack_s=max(0.0, may_ns - waits_ns) / capacity_ns,
                is_pressed=bool(begins or lasts),
            )
        )
    return tuple(found)


def _shares(level: UrgencyLevel, sample: Sample, model: LoadModel) -> tuple[Floats, Floats]:
    """Return, by stream and by arc, which share of a tuple's work belongs to the level."""
    every = sample.coefficients
    if all(level.boxes) or len(sample.box_ns) != len(level.boxes):
        return np.ones(len(every.streams)), np.ones(len(every.arcs))
    whole = model.coefficients(sample.box_ns, sample.port_selectivity)
    own = model.coefficients(np.where(level.boxes, sample.box_ns, 0.0), sample.port_selectivity)
    by_stream, by_arc = (
        np.divide(a, b, out=np.ones(len(b)), where=b > 0)
        for a, b in ((own.streams, whole.streams), (own.arcs, whole.arcs))
    )
    return by_stream, by_arc
