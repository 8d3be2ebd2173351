"""Values over time in one line of text, one character a column."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil

HEIGHTS = " ▁▂▃▄▅▆▇█"
WIDTH = 64


def strip(values: Sequence[float], most: float, width: int = WIDTH) -> str:
    """From nothing to ``most``; where values share a column, the highest of them is shown."""
    columns = min(width, len(values))
    cut = [values[i * len(values) // columns : (i + 1) * len(values) // columns] for i in range(columns)]
    top = len(HEIGHTS) - 1
    return "".join(HEIGHTS[min(top, ceil(max(part) / most * top)) if most > 0 else 0] for part in cut)
