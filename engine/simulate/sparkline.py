"""Draw values over time as one line of text, one character a column."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil

HEIGHTS = " ▁▂▃▄▅▆▇█"
WIDTH = 64


def sparkline(values: Sequence[float], most: float, width: int = WIDTH) -> str:
    """Scale the heights from 0 to ``most``. A column that stands for several values shows the highest of them."""
    columns = min(width, len(values))
    groups = [values[i * len(values) // columns : (i + 1) * len(values) // columns] for i in range(columns)]
    top = len(HEIGHTS) - 1
    return "".join(HEIGHTS[min(top, ceil(max(group) / most * top)) if most > 0 else 0] for group in groups)
