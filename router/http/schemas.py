"""JSON schemas of the answers over HTTP, for the OpenAPI document. They name the keys that clients may rely on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

JsonSchema = Mapping[str, Any]

TEXT: JsonSchema = {"type": "string"}
OBJECT: JsonSchema = {"type": "object"}
_OBJECTS: JsonSchema = {"type": "array", "items": OBJECT}


def _object(**properties: JsonSchema) -> JsonSchema:
    """Return the schema of an object with these keys, all required, among others."""
    return {"type": "object", "properties": properties, "required": list(properties)}


def _objects(**properties: JsonSchema) -> JsonSchema:
    return {"type": "array", "items": _object(**properties)}


ERROR = _object(error=TEXT, hint=TEXT)
PROBLEM = _object(message=TEXT, hint=TEXT, place=TEXT)
PROBLEMS = _object(error=TEXT, hint=TEXT, problems={"type": "array", "items": PROBLEM})
HEALTH = _object(status={"const": "ok"})
READY: JsonSchema = {
    "type": "object",
    "properties": {
        "status": {"enum": ["ready", "not ready"]},
        "why": TEXT,
        "checks": {"type": "object", "additionalProperties": TEXT},
    },
    "required": ["status"],
}
NETWORK = _object(
    version={"type": "integer"},
    streams=_objects(name=TEXT, schema=_OBJECTS, overload=TEXT),
    boxes=_objects(name=TEXT),
    arcs=_objects(name=TEXT),
    outputs=_objects(name=TEXT),
)
STATS = _object(
    engine=OBJECT,
    scheduler=OBJECT,
    overload=OBJECT,
    streams=_objects(name=TEXT),
    arcs=_OBJECTS,
    boxes=_objects(name=TEXT),
    outputs=_objects(name=TEXT),
    workers=_OBJECTS,
    resources=_OBJECTS,
    totals=_object(utility={"type": "number"}, outputs={"type": "integer"}, dropped_tuples={"type": "integer"}),
    conservation_residual={"type": "object", "additionalProperties": {"type": "integer"}},
)
DEAD_LETTERS = _object(dead_letters=_objects(at_ns={"type": "integer"}, reason=TEXT, message=TEXT))
EXPLANATION = _object(output=TEXT, where=TEXT, journeys=_OBJECTS, blame=_OBJECTS)
NAMES = _object(names=_objects(kind={"enum": ["reader", "source"]}, at=TEXT, name=TEXT, connected={"type": "boolean"}))
FILE = _object(text=TEXT)
SAVEPOINT = _object(savepoint=TEXT)
QUERIES = _object(queries=_objects(name=TEXT))
REVISIONS = _object(revisions=_objects(number={"type": "integer"}, time=TEXT, author=TEXT, door=TEXT))
