"""The network file: YAML text in, checked models out, every error with its place.

``read_config`` goes from text to ``NetworkFile``; ``catalog/build.py`` goes on from there to a ``Network``.
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
