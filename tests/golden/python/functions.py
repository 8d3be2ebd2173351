"""What the python boxes of the golden cases call."""

from __future__ import annotations

from typing import Any

import numpy as np

Columns = dict[str, Any]


def score(columns: Columns) -> Columns:
    """Refuses a whole train for one negative price."""
    if (columns["price"] < 0).any():
        raise ValueError("a negative price")
    return {"symbol": columns["symbol"], "score": np.ma.masked_equal(np.sqrt(columns["price"]), 0.0)}


def twice(columns: Columns) -> Columns:
    """Every tuple that is not of the venue N, twice."""
    index = np.repeat(np.flatnonzero(columns["symbol"] != "N"), 2)
    return {"symbol": np.char.add(columns["symbol"].astype(str)[index], "!").astype(object), "_index": index}
