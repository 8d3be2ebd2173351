"""Plain data as bytes: numbers, strings, lists, dicts, numpy arrays and trains, nested to any depth.

A checkpoint writes the state of a box in this form. One JSON text holds the structure. The bytes of arrays and trains
follow it unchanged, so 100 MB of state need no Python object for each number. ``encode_tree`` reads every container
before it returns, but no array: the caller may then change lists and dicts, and must not change arrays, because they
are written later from their own memory.

Values that JSON cannot express are objects with a single reserved key: ``{"$a": 3}`` is array 3.
Refused: pickle, which executes code from the data that it reads.
"""

from __future__ import annotations

import math
import struct
from typing import Any

import numpy as np
import orjson

from catalog.schema import Schema
from storage.encode import TrainReader, encode_train
from storage.files import Bytes
from storage.strings import StringPool
from storage.train import Train

_HEAD = struct.Struct("<II")  # bytes of the JSON text, blobs
_SIZE = struct.Struct("<Q")
_MARKS = frozenset(["$a", "$o", "$b", "$t", "$d", "$f", "$i", "$train"])


class TreeError(ValueError):
    """Data that cannot be encoded, or bytes that cannot be decoded."""


def encode_tree(data: Any) -> list[Bytes]:
    """Return the parts to write one after another; their total size is a multiple of eight bytes."""
    blobs: list[list[Bytes]] = []
    text = orjson.dumps(_to_json(data, blobs))
    sizes = [sum([len(p) for p in blob]) for blob in blobs]
    head = _HEAD.pack(len(text), len(blobs)) + b"".join([_SIZE.pack(s) for s in sizes])
    parts: list[Bytes] = [head, text, bytes(-len(text) % 8)]
    for blob, size in zip(blobs, sizes, strict=True):
        parts += [*blob, bytes(-size % 8)]
    return parts


def decode_tree(data: Bytes) -> Any:
    """Return the value that ``encode_tree`` got: tuples as tuples; arrays share the memory of ``data``."""
    view = memoryview(data)
    try:
        length, count = _HEAD.unpack_from(view)
        at = _HEAD.size
        sizes = [_SIZE.unpack_from(view, at + 8 * i)[0] for i in range(count)]
        at += 8 * count
        tree = orjson.loads(view[at : at + length])
        at += length + (-length % 8)
        blobs = []
        for size in sizes:
            blobs.append(view[at : at + size])
            at += size + (-size % 8)
        return _Decoder(blobs).value(tree)
    except (struct.error, orjson.JSONDecodeError, KeyError, IndexError, TypeError, ValueError) as error:
        raise TreeError(f"not an encoded tree: {error}") from error


def _to_json(data: Any, blobs: list[list[Bytes]]) -> Any:
    """Convert a value to JSON. One function on purpose: it lists all types that can be encoded."""
    kind = type(data)
    if data is None or kind is bool or kind is str:
        return data
    if kind is int:
        return data if -(2**63) <= data < 2**63 else {"$i": str(data)}
    if kind is float:
        return data if math.isfinite(data) else {"$f": repr(data)}
    if kind is list:
        return data if _is_flat(data) else [_to_json(v, blobs) for v in data]
    if kind is tuple:
        return {"$t": [_to_json(v, blobs) for v in data]}
    if kind is dict:
        if all(type(k) is str for k in data) and _MARKS.isdisjoint(data):
            return {k: _to_json(v, blobs) for k, v in data.items()}
        return {"$d": [[_to_json(k, blobs), _to_json(v, blobs)] for k, v in data.items()]}
    if isinstance(data, np.ndarray):
        return _array(data, blobs)
    if isinstance(data, np.generic):
        return _to_json(data.item(), blobs)
    if kind in (bytes, bytearray, memoryview):
        blobs.append([bytes(data)])
        return {"$b": len(blobs) - 1}
    if kind is Train:
        blobs.append(encode_train(data))
        fields = [[f.name, f"{f.type}{'?' if f.nullable else ''}"] for f in data.schema]
        return {"$train": [len(blobs) - 1, fields]}
    if kind is StringPool:
        return list(data.values)
    raise TreeError(f"a {kind.__name__} cannot be encoded")


def _is_flat(data: list[Any]) -> bool:
    """Check for a list of plain numbers and strings. A list of a million keys then needs no loop over its elements."""
    kinds = set(map(type, data))
    if not kinds <= {int, float, str, bool, type(None)}:
        return False
    if int in kinds:
        whole = [v for v in data if type(v) is int] if len(kinds) > 1 else data
        if min(whole) < -(2**63) or max(whole) >= 2**63:
            return False
    return float not in kinds or all(map(math.isfinite, [v for v in data if type(v) is float]))


def _array(data: np.ndarray[Any, Any], blobs: list[list[Bytes]]) -> Any:
    if data.dtype.hasobject:
        return {"$o": [list(data.shape), [_to_json(v, blobs) for v in data.ravel().tolist()]]}
    flat = np.ascontiguousarray(data)
    raw: Any = flat.reshape(-1).view(np.uint8)
    blobs.append([memoryview(raw)] if flat.size else [])
    descr: Any = flat.dtype.descr if flat.dtype.names else flat.dtype.str
    return {"$a": [len(blobs) - 1, descr, list(data.shape)]}


class _Decoder:
    def __init__(self, blobs: list[memoryview]) -> None:
        self._blobs = blobs
        self._reader = TrainReader()

    def value(self, tree: Any) -> Any:
        if isinstance(tree, list):
            return [self.value(v) for v in tree]
        if not isinstance(tree, dict):
            return tree
        if len(tree) == 1:
            [(mark, content)] = tree.items()
            if mark in _MARKS:
                return self._marked(mark, content)
        return {k: self.value(v) for k, v in tree.items()}

    def _marked(self, mark: str, content: Any) -> Any:
        if mark == "$a":
            blob, descr, shape = content
            dtype = np.dtype([tuple(f) for f in descr] if isinstance(descr, list) else descr)
            return np.frombuffer(self._blobs[blob], dtype).reshape(shape)
        if mark == "$o":
            shape, values = content
            out = np.empty(len(values), object)
            out[:] = [self.value(v) for v in values]
            return out.reshape(shape)
        if mark == "$t":
            return tuple([self.value(v) for v in content])
        if mark == "$d":
            return {self.value(k): self.value(v) for k, v in content}
        if mark == "$b":
            return bytes(self._blobs[content])
        if mark == "$train":
            return self._reader.decode(self._blobs[content[0]], Schema.of(**dict(content[1])))
        return float(content) if mark == "$f" else int(content)
