"""A chain of filters and maps as one pass: the masks ANDed, one gather, no queue and no train in between.

This is where a superbox gains its speed. Five filters that each gather the tuples that pass move the columns five
times. In a fused chain every predicate reads the same columns, the masks are ANDed, and the tuples that pass all of
them are gathered once. A map that computes something gathers first: the boxes behind it need its columns, and to
compute them for dropped tuples would waste time and count errors (a division by zero) of tuples that are gone. Where
few tuples are left (``SPARSE``), the chain gathers early, so that the next predicates read a short train.

Subexpressions that several boxes of the chain share are computed once, through the chain's common ``Scope``. Each box
keeps its own counts and cost, as if it had run alone.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence, Set
from time import perf_counter_ns
from typing import Any, NamedTuple

import numpy as np
from numpy import bitwise_and, greater, logical_not
from numpy._core.multiarray import count_nonzero  # numpy.count_nonzero wraps it and costs 0.3 us more

from catalog.network import Network
from catalog.readings import train_bucket
from engine.operators.boxes.base import Box
from engine.operators.boxes.filter import Filter
from engine.operators.boxes.map import Map
from engine.operators.expressions import Expression, Scope, share
from engine.run.followers import SequenceStep
from engine.run.runtime import BoxRuntime
from storage.rows import RowTrain
from storage.train import NO_WATERMARK, Mask, Train

SPARSE = 8
"""Gather before the next predicate when fewer than one tuple in eight is left: four takes of n/8 values cost as much as
one comparison of n values, so the gather pays from the second predicate on."""


def can_fuse(box: Box) -> bool:
    return isinstance(box, Filter | Map)


def chain_length(network: Network, table: Sequence[SequenceStep], start: int, unfused: Set[int] = frozenset()) -> int:
    """Return how many boxes from ``start`` on form a chain that runs fused, as one operator. ``unfused``: arcs that
    must carry trains of their own."""
    end = start
    while table[end].is_chained:
        here, after = table[end], table[end + 1]
        if not (can_fuse(network.boxes[here.box].box) and can_fuse(network.boxes[after.box].box)):
            break
        if after.in_arcs[0] in unfused:
            break
        end += 1
    return end - start + 1


class FusedChain:
    """Filters and maps, each the only consumer of the one before it.

    The masks are in two buffers of the chain. The chain runs in one plan at a time, so on one thread, and no mask
    leaves it, so the next train may overwrite them.
    """

    def __init__(self, runtimes: Sequence[BoxRuntime]) -> None:
        assert len(runtimes) > 1 and all(can_fuse(r.box) for r in runtimes)
        self.runtimes = tuple(runtimes)
        self.out_schema = runtimes[-1].node.out_schemas[0]
        self._last = len(runtimes) - 1
        self._test_runs = _test_runs([_column_test(stage, r) for stage, r in enumerate(runtimes)])
        self._tests_alone = [start + len(tests) == len(runtimes) for start, tests in enumerate(self._test_runs)]
        self._predicates = [r.box.predicate.mask if isinstance(r.box, Filter) else None for r in runtimes]
        self._maps = [r.box.apply if isinstance(r.box, Map) else None for r in runtimes]
        self._mask: Mask = np.empty(0, np.bool_)
        self._scratch: Mask = np.empty(0, np.bool_)
        self._share_subexpressions()

    def _share_subexpressions(self) -> None:
        """Share subexpressions among the predicates between two maps. Behind a map, the names mean other columns."""
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
        """Send trains through the chain from stage ``start``, and emit those that come out of its end.

        The counts are kept in lists and added to the boxes once, at the end: five attribute updates for each box and
        train would cost more than the masks.
        """
        if len(trains) == 1 and isinstance(few := trains[0], RowTrain) and self._tests_alone[start]:
            left = self._pass_rows(start, few)
            if left.count or left.watermark_ns != NO_WATERMARK:
                emit(left)
            return
        batch = _Batch(len(self.runtimes))
        try:
            for train in trains:
                out = self._pass(start, train, batch)
                if out.count or out.watermark_ns != NO_WATERMARK:
                    emit(out)
        finally:
            batch.book(self.runtimes)

    def _pass(self, start: int, train: Train, batch: _Batch) -> Train:
        """Send one train from a stage to the end, or to the stage where no tuple is left."""
        scope: Scope | None = None
        mask: Mask | None = None
        count = train.count
        stage, end = start, len(self.runtimes)
        while stage < end and count:
            tests = self._test_runs[stage]
            if tests and train.valid is None:
                if train.count == 1:
                    count = _test_one(tests, train, batch)
                else:
                    mask, count = self._run_tests(tests, train, mask, count, batch)
                stage += len(tests)
            else:
                begun_ns = perf_counter_ns()
                batch.entered[stage] += count
                batch.calls[stage] += 1
                is_map = self._maps[stage] is not None
                if is_map and mask is not None:
                    train, mask, scope = train.where(mask), None, None
                scope = scope or Scope(train)
                scope.active = mask  # a dropped tuple must count no error
                train, mask = self._evaluate(stage, scope, train, mask)
                count = train.count if mask is None else int(count_nonzero(mask))
                batch.null_errors[stage] += scope.null_errors
                scope.null_errors = 0
                scope = None if is_map else scope
                batch.costs_ns[stage] += perf_counter_ns() - begun_ns
                stage += 1
            if mask is not None and (stage == end or count * SPARSE < train.count):
                begun_ns = perf_counter_ns()
                train, mask, scope = train.where(mask), None, None
                count = train.count
                batch.costs_ns[stage - 1] += perf_counter_ns() - begun_ns
        if not count:
            return Train.empty(self.out_schema, train.watermark_ns)
        batch.entered[end] += count
        return train

    def _pass_rows(self, start: int, train: RowTrain) -> RowTrain:
        """Send a few tuples that are still rows through comparisons alone. A box takes half a microsecond, counts and
        cost included, and no columns are made."""
        rows = train.rows
        begun_ns = perf_counter_ns()
        for stage, column, _, _, flip, _, compare, limit in self._test_runs[start]:
            runtime, taken = self.runtimes[stage], len(rows)
            rows = [row for row in rows if compare(row[column], limit) is not flip]
            left = len(rows)
            runtime.calls += 1
            runtime.tuples_in += taken
            runtime.train_counts[train_bucket(taken)] += 1
            if taken != left:
                runtime.tally.filtered += taken - left
            runtime.tuples_out[0] += left
            ended_ns = perf_counter_ns()
            runtime.cost_ns += ended_ns - begun_ns
            begun_ns = ended_ns
            if not left:
                break
        return train if len(rows) == train.count else train.with_rows(rows)

    def _run_tests(
        self, tests: Sequence[_Test], train: Train, mask: Mask | None, count: int, batch: _Batch
    ) -> tuple[Mask | None, int]:
        """Compare columns with constants, straight into the buffers. Most filters are such comparisons.

        This is the hot loop of the engine, so its names are local: a microsecond here is a fiftieth of a train's time.
        The comparisons cost about the same and are timed together.
        """
        columns, entered, last = train.columns, batch.entered, self._last
        if self._mask.shape[0] != train.count:
            self._mask, self._scratch = np.empty(train.count, np.bool_), np.empty(train.count, np.bool_)
        out, scratch = self._mask, self._scratch
        begun_ns = perf_counter_ns()
        for stage, column, ufunc, value, flip, combine, _, _ in tests:
            entered[stage] += count
            if mask is not None:
                ufunc(columns[column], value, scratch)
                mask = combine(mask, scratch, out)
            else:
                mask = ufunc(columns[column], value, out)
                if flip:
                    logical_not(mask, mask)
            if stage != last:  # behind the last stage the gather counts
                count = int(count_nonzero(mask))
                if not count:
                    break
        batch.tested(tests[0].stage, stage, perf_counter_ns() - begun_ns)
        return mask, count

    def _evaluate(self, stage: int, scope: Scope, train: Train, mask: Mask | None) -> tuple[Train, Mask | None]:
        """Evaluate any other predicate, or a map. Returns the train and the mask of the tuples that are left."""
        predicate, apply = self._predicates[stage], self._maps[stage]
        if apply is not None:
            return apply(scope, train), None
        assert predicate is not None
        passed = predicate(scope)
        if passed is None or mask is None:
            return train, passed if mask is None else mask
        return train, mask & passed


def _test_one(tests: Sequence[_Test], train: Train, batch: _Batch) -> int:
    """Do as ``_run_tests`` for a train of one tuple, in 0.3 us a test instead of numpy's 2.5. Returns 1 if it passes,
    else 0."""
    begun_ns = perf_counter_ns()
    count = 1
    for test in tests:
        batch.entered[test.stage] += 1
        if test.compare(train.columns[test.column].item(), test.limit) is test.flip:
            count = 0
            break
    batch.tested(tests[0].stage, test.stage, perf_counter_ns() - begun_ns)
    return count


_COMPARE: dict[Any, Callable[[Any, Any], bool]] = {
    np.equal: operator.eq,
    np.not_equal: operator.ne,
    np.less: operator.lt,
    np.less_equal: operator.le,
    np.greater: operator.gt,
    np.greater_equal: operator.ge,
}


class _Test(NamedTuple):
    """A ``ColumnTest`` at its stage. ``combine`` joins its result with the mask so far: "and", or for a flipped result
    "and not", which is "greater" for booleans."""

    stage: int
    column: int
    ufunc: Callable[..., Mask]
    value: Any  # an array without dimensions: a numpy scalar costs 0.6 us more a call
    flip: bool
    combine: Callable[[Mask, Mask, Mask], Mask]
    compare: Callable[[Any, Any], bool]  # ``ufunc`` for one Python value
    limit: Any  # ``value`` as a Python value


def _column_test(stage: int, runtime: BoxRuntime) -> _Test | None:
    box = runtime.box
    test = box.predicate.test if isinstance(box, Filter) else None
    if test is None:
        return None
    column = runtime.node.in_schemas[0].index(test.field)
    combine = greater if test.flip else bitwise_and
    value, limit = np.asarray(test.value), test.value.item()
    return _Test(stage, column, test.ufunc, value, test.flip, combine, _COMPARE[test.ufunc], limit)


def _test_runs(tests: Sequence[_Test | None]) -> list[tuple[_Test, ...]]:
    """Return for each stage the tests from there on, up to the first stage that is no test."""
    runs: list[tuple[_Test, ...]] = []
    after: tuple[_Test, ...] = ()
    for test in reversed(tests):
        after = (test, *after) if test is not None else ()
        runs.append(after)
    return runs[::-1]


class _Batch:
    """The counts of a chain's boxes for one batch of trains. ``entered[i]`` counts the tuples that entered stage i, and
    so those that left stage i - 1; the last place counts those that left the chain."""

    __slots__ = ("calls", "costs_ns", "entered", "null_errors", "runs")

    def __init__(self, stages: int) -> None:
        self.entered = [0] * (stages + 1)
        self.calls = [0] * stages
        self.costs_ns = [0] * stages
        self.null_errors = [0] * stages
        self.runs: dict[tuple[int, int], tuple[int, int]] = {}  # (first, last stage) -> (how often, ns)

    def tested(self, first: int, last: int, cost_ns: int) -> None:
        """Count one pass through the tests ``first`` to ``last``. Most trains stop at the same stage, so ``book``
        shares the costs out once for all of them."""
        times, before_ns = self.runs.get((first, last), (0, 0))
        self.runs[first, last] = (times + 1, before_ns + cost_ns)

    def book(self, runtimes: Sequence[BoxRuntime]) -> None:
        """Add the counts to the boxes. The histogram of train lengths gets the mean length of the batch."""
        for (first, last), (times, cost_ns) in self.runs.items():
            share_ns = cost_ns // (last + 1 - first)
            for stage in range(first, last + 1):
                self.calls[stage] += times
                self.costs_ns[stage] += share_ns
        mean, bucket = 0, 0
        for stage, runtime in enumerate(runtimes):
            calls, taken = self.calls[stage], self.entered[stage]
            if not calls:
                continue
            left = self.entered[stage + 1]
            runtime.calls += calls
            runtime.tuples_in += taken
            runtime.tuples_out[0] += left
            if taken != left:
                runtime.tally.filtered += taken - left
            if self.null_errors[stage]:
                runtime.tally.null_errors += self.null_errors[stage]
            runtime.cost_ns += self.costs_ns[stage]
            if taken // calls != mean:
                mean = taken // calls
                bucket = train_bucket(mean)
            runtime.train_counts[bucket] += calls
