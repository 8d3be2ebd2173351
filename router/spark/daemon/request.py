"""A request of the Spark port, read field by field: each value is checked before a handler sees it.

Anybody who reaches the port can send a request. A handler that calls ``int(request["rows"])`` answers a wrong value
with a traceback, and a name that cannot be written as UTF-8 fails much later, in the thread that writes the log. So
handlers ask for a field by its type and its limits, and a wrong value is a PortError with the name of the field. The
line itself is parsed by orjson (``wire/peer.py``), which refuses lone surrogates, NaN and deep nesting.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from router.spark.wire.peer import PortError

TEXT_CHARACTERS = 500
MAX_NUMBER = 2**62
MAX_TEXTS = 100_000


class PortRequest:
    """Owner: the thread of the connection."""

    def __init__(self, content: Mapping[str, Any]) -> None:
        self._content = content

    def __contains__(self, key: str) -> bool:
        return key in self._content

    def text(self, key: str, default: str | None = None, characters: int = TEXT_CHARACTERS) -> str:
        """Return a string. PortError when it is missing, something else, or longer than ``characters``."""
        value = self._content.get(key, default)
        if not isinstance(value, str) or len(value) > characters:
            raise PortError(f"{key} must be a string of at most {characters:,} characters")
        return value

    def json(self, key: str, characters: int) -> dict[str, Any]:
        """Return an object of JSON with at most this many characters."""
        value = self._content.get(key)
        if not isinstance(value, dict) or len(json.dumps(value)) > characters:
            raise PortError(f"{key} must be an object of at most {characters:,} characters")
        return value

    def texts(self, key: str) -> list[str]:
        """Return a list of strings, which may be missing."""
        values = self._content.get(key, [])
        if not isinstance(values, list) or len(values) > MAX_TEXTS or not all(isinstance(v, str) for v in values):
            raise PortError(f"{key} must be a list of at most {MAX_TEXTS:,} strings")
        return values

    def number(self, key: str, default: int | None = None) -> int:
        """Return a whole number from 0 on."""
        value = self._content.get(key, default)
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MAX_NUMBER:
            raise PortError(f"{key} must be a whole number from 0 to {MAX_NUMBER:,}")
        return value
