"""The formats of sockets, found by being here: a format is the name of its module, which defines ``CODEC``.

To add a format, add one file: a decoder and an encoder as ``base`` describes them, and ``CODEC = Codec(...)``. The
network file then takes its name in ``format:``, and the tests of all codecs (whole, byte by byte, with garbage behind,
there and back) run on it. ``decode`` and ``encode`` hold the steps that codecs share.

A module is imported when its format is first used; reading a network file needs only the names.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator, Mapping
from functools import cache

from router.codecs.base import Codec

HEARTBEAT_FORMATS = ("ndjson",)
"""The formats that carry a timestamp without a tuple, so that a silent sender can move its stream's event time."""

_NO_CODECS = ("base", "decode", "encode")


class _Codecs(Mapping[str, Codec]):
    def __init__(self) -> None:
        self._names = sorted(info.name for info in pkgutil.iter_modules(__path__) if info.name not in _NO_CODECS)

    def __getitem__(self, name: str) -> Codec:
        if name not in self._names:
            raise KeyError(name)
        return _load(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    def __contains__(self, name: object) -> bool:
        return name in self._names


@cache
def _load(name: str) -> Codec:
    codec = getattr(importlib.import_module(f"{__name__}.{name}"), "CODEC", None)
    assert isinstance(codec, Codec), f"router/codecs/{name}.py must define CODEC"
    return codec


CODECS: Mapping[str, Codec] = _Codecs()
"""Every codec by its name in a network file."""
