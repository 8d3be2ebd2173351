"""The network file: YAML text comes in, checked models come out, every error has its place.

``read_config`` makes a ``NetworkFile`` of the text; ``catalog/build.py`` makes a ``Network`` of that.
"""

from __future__ import annotations

from catalog.config.models import NetworkFile
from catalog.config.read import read_config, read_text
from catalog.config.units import Address, Cost, Duration, PositiveDuration, PositiveSize, Share, Size

__all__ = [
    "Address",
    "Cost",
    "Duration",
    "NetworkFile",
    "PositiveDuration",
    "PositiveSize",
    "Share",
    "Size",
    "read_config",
    "read_text",
]
