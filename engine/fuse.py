"""A chain of filters and maps as one pass: the masks ANDed, one gather, no queue and no train in between.

This is where a superbox earns its speed. Five filters that each gather their survivors move the columns five times; here
every predicate reads the same columns, the masks are ANDed, and only what passed all of them is gathered, once. A map
that computes something is a gather point: what follows must see its columns, and computing them for tuples that an
earlier filter dropped would be waste (and would count their divisions by zero). Where few tuples are left (``SPARSE``),
the survivors are gathered early, so that the predicates that follow read a short train.

Subexpressions that several boxes of the chain share are computed once, through the chain's common ``Scope``.
Each box keeps its own counts and cost, as if it had run alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import perf_counter_ns

import numpy as np

from catalog.readings import train_bucket
from engine.boxes.filter import Filter
from engine.boxes.map import Map
from engine.expressions import Scope, share
from engine.runtime import BoxRuntime
from storage.train import NO_WATERMARK, Mask, Train

SPARSE = 8
"""Gather before the next predicate when fewer than one in eight is left: four takes of n/8 cost what one compare of n
does, so from the second predicate on it pays."""


def can_fuse(runtime: BoxRuntime) -> bool:
    return isinstance(runtime.box, Filter | Map)


class FusedChain:
    """Filters and maps, each the only consumer of the one before it."""

    def __init__(self, runtimes: Sequence[BoxRuntime]) -> None:
        assert len(runtimes) > 1 and all(can_fuse(r) for r in runtimes)
        self.runtimes = tuple(runtimes)
        self.out_schema = runtimes[-1].node.out_schemas[0]
        self._stages = tuple((r, r.box) for r in runtimes)
        self._share_subexpressions()

    def _share_subexpressions(self) -> None:
        """Mark what the predicates between two maps have in common; past a map, the names mean other columns."""
        together = []
        for _, box in self._stages:
            if isinstance(box, Filter):
                together.append(box.predicate)
            else:
                assert isinstance(box, Map)
                share([*together, *box.expressions])
                together = []
        share(together)

    def run(self, start: int, train: Train, emit: Callable[[Train], None]) -> None:
        """Send a train through the chain from stage ``start``; emit what comes out of its end, if anything."""
        scope = Scope(train)
        mask: Mask | None = None
        count = train.count
        last = len(self._stages) - 1
        begun_ns = perf_counter_ns()
        for number, (runtime, box) in enumerate(self._stages[start:], start):
            if not count:
                break
            runtime.calls += 1
            runtime.tuples_in += count
            runtime.train_counts[train_bucket(count)] += 1
            if type(box) is Filter:
                passed = box.predicate.mask(scope)
                if passed is not None:
                    mask = passed if mask is None else mask & passed
                    kept = int(np.count_nonzero(mask))
                    runtime.tally.filtered += count - kept
                    count = kept
            else:
                if mask is not None:
                    train, mask = train.where(mask), None
                    scope = _after(scope, train, runtime)
                train = box.apply(scope, train)  # type: ignore[attr-defined]
                scope = _after(scope, train, runtime)
            runtime.tuples_out[0] += count
            if scope.null_errors:
                runtime.tally.null_errors += scope.null_errors
                scope.null_errors = 0
            if mask is not None and count and (number == last or count * SPARSE < train.count):
                train, mask = train.where(mask), None
                if number != last:
                    scope = Scope(train)
            ended_ns = perf_counter_ns()
            runtime.cost_ns += ended_ns - begun_ns
            begun_ns = ended_ns
        if count:
            emit(train)
        elif train.watermark_ns != NO_WATERMARK:
            emit(Train.empty(self.out_schema, train.watermark_ns))


def _after(scope: Scope, train: Train, runtime: BoxRuntime) -> Scope:
    """A scope for the columns of a new train; what the old one counted is the box's."""
    runtime.tally.null_errors += scope.null_errors
    return Scope(train)
