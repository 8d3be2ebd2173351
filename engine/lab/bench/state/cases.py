"""The cases of ``bench state``: a box, and what must come out for a number of keys.

Every key comes twice: first all keys in one order that looks random, then all in another. So the state holds all keys
before any of them comes again. A row is (ts, k, v) with v = k in the first pass and v = k + 1 in the second, but equal
in both for even k. Answers follow from k alone, so a result is checked without remembering any.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from catalog.schema import Schema
from storage.train import Train

Numbers = npt.NDArray[np.int64]
Columns = dict[str, npt.NDArray[np.int64]]

TRAIN = 10_000
GROUPS = 1_000  # for count distinct
STREAM = "{schema: {ts: timestamp, k: bigint, v: bigint}, time: ts}"


class StateCase(NamedTuple):
    """``rows`` is the number of results for n keys; ``is_right`` checks the columns of one train of results."""

    box: str
    rows: Callable[[int], int]
    is_right: Callable[[Columns, int], npt.NDArray[np.bool_]]
    sides: int = 1  # streams: with two, the second pass goes to the other one


def _odd(k: Numbers) -> Numbers:
    return k % 2


CASES: dict[str, StateCase] = {
    "aggregate": StateCase(
        "{aggregate: s, window: {tumbling: 1h}, by: [k], select: {k: k, n: 'count(*)', total: 'sum(v)'}}",
        lambda n: n,
        lambda c, n: (c["n"] == 2) & (c["total"] == 2 * c["k"] + _odd(c["k"])),
    ),
    "session": StateCase(
        "{aggregate: s, window: {session: 1h}, by: [k], select: {k: k, n: 'count(*)', high: 'max(v)'}}",
        lambda n: n,
        lambda c, n: (c["n"] == 2) & (c["high"] == c["k"] + _odd(c["k"])),
    ),
    "distinct": StateCase(
        "{aggregate: g, window: {tumbling: 1h}, by: [g], select: {k: g, n: 'count(distinct k)'}}",
        lambda n: min(n, GROUPS),
        lambda c, n: c["n"] == (n - c["k"] + GROUPS - 1) // GROUPS,
    ),
    "dedup": StateCase("{dedup: s, by: [k], within: 1h}", lambda n: n, lambda c, n: c["v"] == c["k"]),
    "latest": StateCase(
        "{latest: s, by: [k], changes: [v]}",
        lambda n: n + n // 2,
        lambda c, n: (c["v"] == c["k"]) | ((c["v"] == c["k"] + 1) & (_odd(c["k"]) == 1)),
    ),
    "join": StateCase(
        "{join: [s, t], on: 'l.k = r.k', within: 1h, select: {k: l.k, a: l.v, b: r.v}}",
        lambda n: n,
        lambda c, n: (c["a"] == c["k"]) & (c["b"] == c["k"] + _odd(c["k"])),
        sides=2,
    ),
    "top": StateCase(
        "{top: s, n: 1, of: v, by: [k], window: {tumbling: 1h}}",
        lambda n: n,
        lambda c, n: c["v"] == c["k"] + _odd(c["k"]),
    ),
}


def network_text(case: StateCase) -> str:
    more = f", t: {STREAM}" if case.sides == 2 else ""
    group = f"g: {{map: s, add: {{g: 'k % {GROUPS}'}}}}, " if "aggregate: g" in case.box else ""
    return f"streams: {{s: {STREAM}{more}}}\nboxes: {{{group}b: {case.box}}}\noutputs: {{o: {{from: b}}}}\n"


def trains(schema: Schema, keys: int, sides: int) -> Iterator[tuple[int, Train]]:
    """Yield (stream, train). The watermark follows the rows; all of them are in one window of an hour."""
    for second in (0, 1):
        step = _coprime(keys, 0.618 if second else 0.382)
        for start in range(0, keys, TRAIN):
            places = np.arange(start, min(start + TRAIN, keys))
            k = places * step % keys
            ts = places + second * keys
            v = k + (_odd(k) if second else 0)
            train = Train(schema, (ts, k, v), ts).with_watermark(int(ts[0]))
            yield second if sides == 2 else 0, train


def _coprime(keys: int, share: float) -> int:
    step = int(keys * share) | 1
    while np.gcd(step, keys) != 1:
        step += 2
    return step
