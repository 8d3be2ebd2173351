"""Tuples that wait for their part of a state, and how trains of them are joined again."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from storage.block_ref import BlockRef
from storage.train import Train

NEVER_NS = 2**63
"""Above every watermark, that of the end of time included."""

RUN_TUPLES = 65_536
"""Waiting tuples that run as one train."""


class Waiting(NamedTuple):
    """Tuples of one input that wait for their part of the state."""

    port: int
    since_ns: int  # the watermark of the box when the first of them came
    is_exact: bool  # the watermark must be at ``since_ns`` when they run: some may be late
    low_ns: int  # the lowest event time
    train: Train


class WaitingBlock(NamedTuple):
    """Waiting tuples on disk."""

    ref: BlockRef
    tuples: int


def merged(items: Iterable[Waiting]) -> Iterator[Waiting]:
    """Join neighbours into longer trains, by input, where no result can depend on it."""
    runs: dict[int, list[Waiting]] = {}
    tuples = 0
    for item in items:
        if item.is_exact or tuples + item.train.count > RUN_TUPLES:
            yield from map(_joined, runs.values())
            runs, tuples = {}, 0
        if item.is_exact:
            yield item
        else:
            runs.setdefault(item.port, []).append(item)
            tuples += item.train.count
    yield from map(_joined, runs.values())


def _joined(run: list[Waiting]) -> Waiting:
    if len(run) == 1:
        return run[0]
    low_ns, since_ns = min([item.low_ns for item in run]), min([item.since_ns for item in run])
    return Waiting(run[0].port, since_ns, False, low_ns, Train.concat([item.train for item in run]))
