"""Trains of history as a stream of bytes, from a daemon to a command: frames of (first, entry, length, train).

The train has the form of the log (``storage/encode``), with its watermark and its times of arrival. Both ends are ours.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator

from catalog.schema import Schema
from storage.encode import TrainReader, encode_train
from storage.history.segment import KeptTrain

_FRAME = struct.Struct("<QQQ")
FRAME_AT_MOST_BYTES = 2**30


class FrameDamageError(ValueError):
    """The bytes are no frames, or end within one."""


def encode_frame(kept: KeptTrain) -> bytes:
    body = b"".join(encode_train(kept.train))
    return _FRAME.pack(kept.first, kept.entry, len(body)) + body


def read_frames(read: Callable[[int], bytes], schema: Schema) -> Iterator[KeptTrain]:
    """Yield the trains of a stream until it ends. ``read(n)`` returns at most ``n`` bytes, and none at the end."""
    trains = TrainReader()
    while head := _exactly(read, _FRAME.size):
        first, entry, length = _FRAME.unpack(head)
        if length > FRAME_AT_MOST_BYTES:
            raise FrameDamageError(f"a frame of {length} bytes")
        body = _exactly(read, length)
        yield KeptTrain(first, trains.decode(body, schema), entry)


def _exactly(read: Callable[[int], bytes], size: int) -> bytes:
    """Read this many bytes; none at the end of the stream."""
    data = read(size)
    while data and len(data) < size:
        more = read(size - len(data))
        if not more:
            raise FrameDamageError("the stream ends within a frame")
        data += more
    return data
