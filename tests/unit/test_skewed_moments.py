"""Moments with a skewness, merged from any parts, against the definition."""

from __future__ import annotations

import numpy as np
import pytest

from catalog.schema import Field, Schema, Type
from engine.operators.expressions import Vector, compile_expression
from engine.operators.windows.accumulators import SkewedMoments
from engine.operators.windows.slotted import SlottedRows

COLUMN = compile_expression("v", Schema((Field("v", Type.DOUBLE),)))


def rows(slots: np.ndarray) -> SlottedRows:
    return SlottedRows(slots, np.arange(len(slots)), lambda: np.zeros(3, np.int64), np.arange(3))


@pytest.mark.parametrize("seed", range(5))
def test_however_the_values_are_divided(seed: int) -> None:
    random = np.random.default_rng(seed)
    moments = SkewedMoments(COLUMN)
    cells = [cell.new(3) for cell in moments.cells]
    values, slots = random.lognormal(3, 1, 500), random.integers(0, 3, 500)
    for part in np.array_split(np.arange(500), random.integers(1, 40)):
        moments.add(cells, rows(slots[part]), Vector(values[part]))
    whole = moments.reduce(cells, np.array([0]))
    for found, expected in [*[([c[i] for c in cells], values[slots == i]) for i in range(3)],
                            ([c[0] for c in whole], values)]:  # fmt: skip
        apart = expected - expected.mean()
        assert found == pytest.approx([len(expected), expected.mean(), (apart**2).sum(), (apart**3).sum()])


def test_equal_values_have_no_spread_and_empty_groups_change_nothing() -> None:
    moments = SkewedMoments(COLUMN)
    cells = [cell.new(2) for cell in moments.cells]
    for _ in range(3):
        moments.add(cells, rows(np.array([0, 0])), Vector(np.array([0.1, 0.1])))
    assert [c.tolist() for c in cells] == [[6, 0], [0.1, 0.0], [0.0, 0.0], [0.0, 0.0]]
    assert [c[0] for c in moments.reduce(cells, np.array([0]))] == [6, 0.1, 0.0, 0.0]
