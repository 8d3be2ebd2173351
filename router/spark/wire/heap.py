"""How large the JVM's heap is. The driver starts the JVM with it; the daemon sizes the segments of its sinks by it."""

from __future__ import annotations

import re
from collections.abc import Mapping

HEAP = "1g"


def heap_of(settings: Mapping[str, str]) -> str:
    """Return the heap size as Spark's settings write it."""
    return settings.get("spark.driver.memory", HEAP)


def heap_bytes(settings: Mapping[str, str]) -> int:
    """Parse the heap size as Java does: ``512m``, ``2g``. A text that Java would refuse counts as the default."""
    match = re.fullmatch(r"(\d+)([kmgt]?)b?", heap_of(settings).strip().lower()) or re.fullmatch(r"(\d+)(g)", HEAP)
    assert match is not None
    return int(match[1]) << {"": 0, "k": 10, "m": 20, "g": 30, "t": 40}[match[2]]
