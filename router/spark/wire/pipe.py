"""The pipe between the daemon and its driver: one line of JSON for a request, one line of JSON for its answer.

A request is ``{"id": 7, "do": "inspect", ...}``. Its answer is ``{"id": 7, "ok": {...}}``, or ``{"id": 7, "error":
message, "kind": kind}`` with a kind of ``errors.py``. Answers come in any order; ``id`` is that of the request.
A driver whose JVM ends sends an error with the number ``LAST_WORD``, which no request has: the reason of its end.
Refused: the reason as a line of the driver's log. Tracebacks of the driver's threads cut such a line in two or push it
out of the lines that the daemon keeps.

Rows never cross this pipe. Rows of a source cross the Spark port (``aurorad_wire.py``); rows of a sink lie in a segment
file, and the request names the file.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from catalog.schema import Schema
from router.spark.wire.errors import KINDS, SparkError, SparkFailedError

Request = dict[str, Any]
Answer = dict[str, Any]
Fields = Sequence[Sequence[Any]]  # [name, type, nullable] of each column

LAST_WORD = 0
"""The number of the line in which a driver says why it ends."""

FILE_SINKS = ("parquet", "orc", "csv", "json", "text", "avro", "xml")
"""Formats that the driver stages as files before it publishes them. Only these can be prepared before their commit."""


def fields_of(schema: Schema) -> list[list[Any]]:
    """Convert a schema to what the pipe and the port carry."""
    return [[f.name, str(f.type), f.nullable] for f in schema]


def request_line(number: int, do: str, arguments: Mapping[str, Any]) -> bytes:
    return json.dumps({**arguments, "id": number, "do": do}).encode() + b"\n"


def answer_line(number: int, answer: Answer | SparkError) -> bytes:
    if isinstance(answer, SparkError):
        line = {"id": number, "error": str(answer), "kind": answer.kind}
    else:
        line = {"id": number, "ok": answer}
    return json.dumps(line).encode() + b"\n"


def read_request(line: bytes) -> Request:
    request: Request = json.loads(line)
    return request


def read_answer(line: bytes) -> tuple[int, Answer | SparkError]:
    """Return the number of the request, and its answer or the error that the driver reported."""
    read = json.loads(line)
    if "error" in read:
        return read["id"], KINDS.get(read["kind"], SparkFailedError)(read["error"])
    return read["id"], read["ok"]
