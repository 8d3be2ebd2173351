"""The worth of a delivered tuple to its output: the shedder's rule, shared by the reader and the evaluation."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from catalog.network import Output

Floats = npt.NDArray[np.float64]
Worth = dict[str, Any] | None
"""Plain data, because the reader is another process. None: all tuples have the same worth."""


def worth_of(output: Output, others: float) -> Worth:
    """Return the rule of an output. ``others`` is the worth of a tuple for which ``prefer`` does not hold."""
    qos = output.qos
    if qos.value is not None:
        return {"field": qos.value_field, "xs": qos.value.xs.tolist(), "ys": qos.value.ys.tolist()}
    return {"prefer": qos.prefer, "others": others} if qos.prefer else None


def worths(worth: Worth, rows: int, columns: Any) -> Floats:
    """Compute the worth of each row; polars must be able to make a frame of ``columns``. NULL is worth nothing."""
    if worth is None:
        return np.ones(rows)
    import polars as pl

    frame = pl.DataFrame(columns, strict=False)
    if "prefer" in worth:
        chosen = frame.select(pl.sql_expr(worth["prefer"]).fill_null(False)).to_series().to_numpy()
        return np.where(chosen, 1.0, worth["others"])
    values = frame[worth["field"]].cast(pl.Float64).fill_null(np.nan).to_numpy()
    found: Floats = np.nan_to_num(np.interp(values, worth["xs"], worth["ys"]), nan=0.0)
    return found
