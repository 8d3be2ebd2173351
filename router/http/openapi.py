"""The OpenAPI document of the HTTP API, made from the table of operations that the server routes by."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from http import HTTPStatus
from typing import Any

from router.http import schemas
from router.http.operations import COMMON, HttpOperation, HttpParameter

RIGHTS = {
    "none": "Needs no login.",
    "view": "Needs the right `view`.",
    "tap": "Needs the right `tap` to the place.",
    "change": "Needs the right `change`.",
    "admin": "Needs the right `admin`.",
}
TITLE = "aurorad"


def document(operations: Iterable[HttpOperation], version: str) -> dict[str, Any]:
    """Return the document as plain data."""
    paths: dict[str, dict[str, Any]] = {}
    for operation in operations:
        paths.setdefault(operation.path, {})[operation.method.lower()] = _operation(operation)
    logins = {"bearer": {"type": "http", "scheme": "bearer"}, "basic": {"type": "http", "scheme": "basic"}}
    return {
        "openapi": "3.1.0",
        "info": {"title": TITLE, "version": version, "description": "The HTTP API of a running daemon."},
        "paths": paths,
        "components": {"securitySchemes": logins, "schemas": {"Error": schemas.ERROR}},
    }


def _operation(operation: HttpOperation) -> dict[str, Any]:
    parameters = [_path_parameter(name) for name in _names_in(operation.path)]
    parameters += [_query_parameter(parameter) for parameter in operation.parameters]
    entry: dict[str, Any] = {
        "operationId": operation.handler,
        "summary": operation.about,
        "description": RIGHTS[operation.right],
        "parameters": parameters,
        "responses": _responses(operation),
        "security": [{}] if operation.right == "none" else [{"bearer": []}, {"basic": []}, {}],
    }
    if operation.body:
        schema = schemas.OBJECT if operation.body_type == "application/json" else schemas.TEXT
        content = {operation.body_type: {"schema": schema}}
        entry["requestBody"] = {"description": operation.body, "required": True, "content": content}
    return entry


def _names_in(path: str) -> list[str]:
    return [part[1:-1] for part in path.split("/") if part.startswith("{")]


def _path_parameter(name: str) -> dict[str, Any]:
    return {"name": name, "in": "path", "required": True, "schema": schemas.TEXT}


def _query_parameter(parameter: HttpParameter) -> dict[str, Any]:
    return {
        "name": parameter.name,
        "in": "query",
        "description": parameter.about,
        "required": parameter.is_required,
        "schema": parameter.schema(),
    }


def _responses(operation: HttpOperation) -> dict[str, Any]:
    error = {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}}
    found: dict[str, Any] = {str(status): {"description": why, "content": error} for status, why in COMMON.items()}
    for status, schema in operation.answers.items():
        media_type = operation.media_type if status == HTTPStatus.OK else "application/json"
        found[str(status)] = {
            "description": HTTPStatus(status).phrase,
            "content": {media_type: {"schema": _schema(schema)}},
        }
    return dict(sorted(found.items()))


def _schema(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    return {"$ref": "#/components/schemas/Error"} if schema is schemas.ERROR else schema
