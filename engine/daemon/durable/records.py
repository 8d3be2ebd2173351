"""The records of the log: trains that entered, trains that were emitted to named readers, and notes about those.

A payload is a small JSON object, padded to eight bytes, and for most kinds a train behind it. Records name streams,
outputs and sources, because their numbers change with the network file.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from functools import lru_cache
from hashlib import blake2b
from typing import Any

import orjson

from catalog.schema import Schema
from storage.admission import BatchNumber
from storage.encode import encode_train
from storage.files import Bytes
from storage.train import Train

TRAIN = (
    1  # {"s": stream, "f": its schema's mark, "n": the time it was stamped with, "e": [[source, epoch, sequence], ...]}
)
OUTPUT = 2  # {"o": output, "f": its schema's mark, "q": the number of its first tuple} and the train
NAMED = 3  # {"o": output, "name": subscriber, "q": the last number it acknowledged, or -1: it is to be forgotten}
REPEATS = 4  # {"o": output, "q": first, "z": last}: a replay is done; these may repeat what was delivered before
RECOVERED = 5  # {"q": {output: the last number before}}: a replay begins here

_SIZE = struct.Struct("<Q")


def pack(note: dict[str, Any], train: Train | None = None) -> list[Bytes]:
    text = orjson.dumps(note)
    head: list[Bytes] = [_SIZE.pack(len(text)), text, bytes(-len(text) % 8)]
    return head if train is None else head + encode_train(train)


def unpack(payload: memoryview) -> tuple[dict[str, Any], memoryview]:
    """Return the note, and the bytes of the train behind it."""
    (size,) = _SIZE.unpack_from(payload)
    note: dict[str, Any] = orjson.loads(payload[_SIZE.size : _SIZE.size + size])
    return note, payload[_SIZE.size + size + (-size % 8) :]


@lru_cache(maxsize=1_024)
def schema_mark(schema: Schema) -> str:
    """Return a short hash of a schema. A record has no schema of its own: the mark tells when it had another one."""
    return blake2b(str(schema).encode(), digest_size=6).hexdigest()


def train_record(stream: str, train: Train, now_ns: int, batches: Sequence[BatchNumber]) -> list[Bytes]:
    return pack({"s": stream, "f": schema_mark(train.schema), "n": now_ns, "e": [b[:3] for b in batches]}, train)


def output_record(output: str, first: int, train: Train) -> list[Bytes]:
    return pack({"o": output, "f": schema_mark(train.schema), "q": first}, train)


def batches_of(note: dict[str, Any]) -> list[BatchNumber]:
    return [BatchNumber(*batch) for batch in note["e"]]
