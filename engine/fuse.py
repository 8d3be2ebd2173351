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

from numpy import count_nonzero

from catalog.readings import train_bucket
from engine.boxes.filter import Filter
from engine.boxes.map import Map
from engine.expressions import Expression, Scope, share
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
        self._last = len(runtimes) - 1
        self._predicates = [r.box.predicate.mask if isinstance(r.box, Filter) else None for r in runtimes]
        self._maps = [r.box.apply if isinstance(r.box, Map) else None for r in runtimes]
        self._share_subexpressions()

    def _share_subexpressions(self) -> None:
        """Mark what the predicates between two maps have in common; past a map, the names mean other columns."""
        together: list[Expression] = []
        for runtime in self.runtimes:
            if isinstance(runtime.box, Filter):
                together.append(runtime.box.predicate)
            else:
                assert isinstance(runtime.box, Map)
                share([*together, *runtime.box.expressions])
                together = []
        share(together)

    def run(self, start: int, trains: Sequence[Train], emit: Callable[[Train], None]) -> None:
        """Send trains through the chain from stage ``start``; emit what comes out of its end, if anything.

        The counts of a batch are kept in a list and added to the boxes at its end: five attribute updates for each
        box and train would cost more than the masks.
        """
        stages = len(self.runtimes)
        batch = _Batch(stages)
        try:
            for train in trains:
                out = self._pass(start, train, batch)
                if out.count or out.watermark_ns != NO_WATERMARK:
                    emit(out)
        finally:
            batch.book(self.runtimes)

    def _pass(self, start: int, train: Train, batch: _Batch) -> Train:
        """One train, from a stage to the end or to where nothing is left of it."""
        scope = Scope(train)
        mask: Mask | None = None
        count = train.count
        counts, costs_ns, errors, last = batch.counts, batch.costs_ns, batch.null_errors, self._last
        begun_ns = perf_counter_ns()
        for stage in range(start, last + 1):
            if not count:
                return Train.empty(self.out_schema, train.watermark_ns)
            counts[stage].append(count)
            predicate = self._predicates[stage]
            if predicate is not None:
                passed = predicate(scope)
                if passed is not None:
                    mask = passed if mask is None else mask & passed
                    count = int(count_nonzero(mask))
            else:
                if mask is not None:
                    train, mask = train.where(mask), None
                    scope = Scope(train)
                train = self._maps[stage](scope, train)  # type: ignore[misc]
            if scope.null_errors:
                errors[stage] += scope.null_errors
                scope.null_errors = 0
            if mask is not None and (stage == last or count * SPARSE < train.count):
                train, mask = train.where(mask), None
                scope = Scope(train)
            elif predicate is None:
                scope = Scope(train)
            ended_ns = perf_counter_ns()
            costs_ns[stage] += ended_ns - begun_ns
            begun_ns = ended_ns
        counts[last + 1].append(count)
        return train


class _Batch:
    """What the boxes of a chain did in one batch of trains. ``counts[i]`` has the tuples that entered stage i, train by
    train; what entered stage i + 1, or the end, is what came out of stage i."""

    __slots__ = ("costs_ns", "counts", "null_errors")

    def __init__(self, stages: int) -> None:
        self.counts: list[list[int]] = [[] for _ in range(stages + 1)]
        self.costs_ns = [0] * stages
        self.null_errors = [0] * stages

    def book(self, runtimes: Sequence[BoxRuntime]) -> None:
        """Add it to the boxes' own counts."""
        for stage, runtime in enumerate(runtimes):
            entered = self.counts[stage]
            if not entered:
                continue
            taken, left = sum(entered), sum(self.counts[stage + 1])
            runtime.calls += len(entered)
            runtime.tuples_in += taken
            runtime.tuples_out[0] += left
            runtime.tally.filtered += taken - left
            runtime.tally.null_errors += self.null_errors[stage]
            runtime.cost_ns += self.costs_ns[stage]
            for count in entered:
                runtime.train_counts[train_bucket(count)] += 1
