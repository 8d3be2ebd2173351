"""Linear programs of one form: maximise c x, subject to A x <= b and x >= 0, where no b is negative.

The ideal of a network has this form: all its rules are upper limits, and to drop every tuple obeys all of them. So the
simplex method starts at x = 0, where it needs no first phase, and forty lines on a dense table are enough. Refused:
scipy's ``linprog``, which would be a package of 35 MB for these forty lines. A network of fifty outputs has 350 rows
and takes a tenth of a second.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

NOTHING = 1e-9
STEPS_A_ROW = 50
"""A limit for the number of pivots, for each row. A program of this size needs two or three a row."""


class PackingError(Exception):
    """The program has no finite answer, or the table did not come to an end."""


def maximise(gains: Floats, limits: Floats, at_most: Floats) -> Floats:
    """Return x that maximises ``gains @ x`` under ``limits @ x <= at_most`` and x >= 0."""
    assert (at_most >= 0).all(), "x = 0 must be allowed"
    rows, columns = limits.shape
    table = np.zeros((rows + 1, columns + rows + 1))
    table[:rows, :columns], table[:rows, columns:-1], table[:rows, -1] = limits, np.eye(rows), at_most
    table[-1, :columns] = -gains
    basis = np.arange(columns, columns + rows)
    for step in range(STEPS_A_ROW * (rows + 1)):
        entering = _entering(table[-1, :-1], is_careful=step > 10 * rows)
        if entering is None:
            x = np.zeros(columns + rows)
            x[basis] = table[:rows, -1]
            return x[:columns]
        leaving = _leaving(table, basis, entering)
        table[leaving] /= table[leaving, entering]
        others = table[:, entering].copy()
        others[leaving] = 0.0
        table -= np.outer(others, table[leaving])
        basis[leaving] = entering
    raise PackingError("the simplex method did not come to an end")


def _entering(costs: Floats, *, is_careful: bool) -> int | None:
    """Return the column that enters: the steepest one, or by Bland's rule the first one, which never cycles."""
    if is_careful:
        found = np.flatnonzero(costs < -NOTHING)
        return int(found[0]) if len(found) else None
    best = int(np.argmin(costs))
    return best if costs[best] < -NOTHING else None


def _leaving(table: Floats, basis: npt.NDArray[np.intp], entering: int) -> int:
    column, rest = table[:-1, entering], table[:-1, -1]
    ratios = np.full(len(column), np.inf)
    np.divide(rest, column, out=ratios, where=column > NOTHING)
    least = float(ratios.min())
    if not np.isfinite(least):
        raise PackingError("the program has no upper bound")
    ties = np.flatnonzero(ratios <= least + NOTHING)
    return int(ties[np.argmin(basis[ties])])
