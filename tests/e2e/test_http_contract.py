"""The OpenAPI document against the real daemon: what it says is there, answers so, and refuses so."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

from router.http.app import HttpApp
from router.http.operations import CHANGE_OPERATIONS, OPERATIONS
from tests.e2e.daemon import RunningDaemon, connect, free_ports, lines, running, send, wait_for

NETWORK = """
engine: {{data_dir: {data}}}
streams: {{s: {{schema: {{n: bigint}}, overload: block, source: {{tcp: 127.0.0.1:{source}}}}}}}
boxes: {{f: {{filter: s, where: "n >= 0"}}}}
outputs: {{o: {{from: f, sink: {{tcp: 127.0.0.1:{sink}}}}}}}
"""
GOOD = {"output": "o", "name": "s", "kind": "source", "at": "s"}
"""Values of parameters that are needed, or without which there is nothing to answer."""


@contextmanager
def daemon_on(folder: Path) -> Iterator[tuple[RunningDaemon, int]]:
    http, source, sink = free_ports(3)
    with running(folder, NETWORK.format(data=folder / "data", source=source, sink=sink), http) as daemon:
        with connect(sink) as reader:
            reader.sendall(b'{"_hello": {"name": "r", "nonce": "n"}}\n')
            lines(reader, 1)
            send(source, b'{"n": 1}\nnonsense\n')
            wait_for(lambda: daemon.stream("s")["received"] == 2, "both rows have come")
        yield daemon, http


def ask(port: int, method: str, path: str, body: bytes | None = None) -> tuple[int, str, bytes, Mapping[str, str]]:
    connection = HTTPConnection("127.0.0.1", port, timeout=30)
    connection.request(method, path, body)
    answer = connection.getresponse()
    headers = {key.lower(): value for key, value in answer.getheaders()}
    has_end = not any(kind in headers.get("content-type", "") for kind in ("ndjson", "event-stream"))
    got = answer.read() if has_end else b"{}"
    connection.close()
    return answer.status, headers.get("content-type", "").split(";")[0], got, headers


def disagreement(schema: Mapping[str, Any], value: Any, document: Mapping[str, Any], at: str = "$") -> str:
    """Say where a value does not fit a schema. Only the words of JSON schema that the document uses."""
    if "$ref" in schema:
        schema = document["components"]["schemas"][schema["$ref"].rsplit("/", 1)[1]]
    known = {"type", "properties", "required", "items", "enum", "const", "additionalProperties"}
    assert set(schema) <= known, f"teach this test {set(schema) - known}"
    if ("const" in schema and value != schema["const"]) or ("enum" in schema and value not in schema["enum"]):
        return f"{at}: {value!r}"
    kinds = {"object": dict, "array": list, "string": str, "integer": int, "boolean": bool, "number": int | float}
    if "type" in schema and not isinstance(value, kinds[schema["type"]]):
        return f"{at} is a {type(value).__name__}"
    if isinstance(value, dict):
        if missing := [key for key in schema.get("required", ()) if key not in value]:
            return f"{at} has no {missing}"
        rest = schema.get("additionalProperties", {})
        inner = {key: schema.get("properties", {}).get(key, rest) for key in value}
        return next((w for k, s in inner.items() if (w := disagreement(s, value[k], document, f"{at}.{k}"))), "")
    if isinstance(value, list) and "items" in schema:
        return next((w for v in value if (w := disagreement(schema["items"], v, document, f"{at}[]"))), "")
    return ""


def check(document: dict[str, Any], operation: dict[str, Any], answer: tuple[int, str, bytes, Any]) -> None:
    status, media_type, body, headers = answer
    assert str(status) in operation["responses"], f"{operation['operationId']}: {status} is not in the document"
    assert headers["x-content-type-options"] == "nosniff" and headers["cache-control"] in ("no-store", "no-cache")
    [(declared, content)] = operation["responses"][str(status)]["content"].items()
    assert media_type == declared
    if declared == "application/json":
        why = disagreement(content["schema"], json.loads(body), document)
        assert not why, f"{operation['operationId']} {status}: {why}"


def test_the_daemon_answers_as_its_document_says(tmp_path: Path) -> None:
    with daemon_on(tmp_path) as (daemon, port):
        document = json.loads(daemon.get("/api/v1/openapi.json"))
        asked = set()
        for path, operations in document["paths"].items():
            at = path.replace("{name}", "o")
            for method, operation in operations.items():
                known = {p["name"]: GOOD[p["name"]] for p in operation["parameters"] if p["name"] in GOOD}
                if operation["operationId"] == "tap":
                    known = {"name": "s"}
                query = urlencode({k: v for k, v in known.items() if f"{{{k}}}" not in path} | {"dry_run": "true"})
                body = b"outputs: {p: {from: f}}" if "requestBody" in operation else None
                answer = ask(port, method.upper(), f"{at}?{query}", body)
                check(document, operation, answer)
                asked.add(f"{method} {path} {answer[0]}")
                check(document, operation, ask(port, "BREW", at)) if method == "get" else None
        assert {"get /api/v1/names 200", "post /api/v1/savepoint 200", "get /api/v1/explain 200"} <= asked
        assert "delete /api/v1/names 409" in asked, "there is no source of this name"


def test_a_value_outside_of_what_the_document_allows_is_refused(tmp_path: Path) -> None:
    with daemon_on(tmp_path) as (daemon, port):
        document = json.loads(daemon.get("/api/v1/openapi.json"))
        for path, operations in document["paths"].items():
            for method, operation in operations.items():
                for parameter in operation["parameters"]:
                    for bad in bad_values(parameter):
                        query = urlencode({**bad_rest(operation, parameter), parameter["name"]: bad})
                        answer = ask(port, method.upper(), f"{path.replace('{name}', 'o')}?{query}", b"x: 1")
                        assert answer[0] == 400, f"{method} {path}?{query}: {answer[0]}"
                        check(document, operation, answer)
        assert not [entry for entry in daemon.log if "exception" in entry]


def bad_rest(operation: dict[str, Any], but: dict[str, Any]) -> dict[str, str]:
    """Return good values of the other parameters."""
    if operation["operationId"] == "tap":
        return {"name": "s"} if but["name"] in ("every", "limit") else {}
    return {p["name"]: GOOD[p["name"]] for p in operation["parameters"] if p["name"] in GOOD and p is not but}


def bad_values(parameter: dict[str, Any]) -> list[str]:
    schema = parameter["schema"]
    if parameter["in"] == "path":
        return []
    if schema["type"] == "integer":
        return [str(schema["minimum"] - 1), str(schema["maximum"] + 1), "x", "", "1e1", "٣"]
    if schema["type"] == "boolean":
        return ["maybe", "", "1"]
    return ["x" * (schema["maxLength"] + 1)] if "maxLength" in schema else ["neither"]


def test_the_server_routes_by_the_table_that_the_document_is_made_from() -> None:
    class Door:
        def queries(self) -> list[Any]:
            return []

    from tests.unit.test_http import Browser

    app: Any = Browser().app
    assert len(app._app.routes) == len(OPERATIONS), "without a door for changes"
    queries = app._handlers._queries
    changed: Any = HttpApp(type(queries)(**{**vars(queries), "change": Door(), "version": "1"}))
    routed = {(route.path, method) for route in changed._app.routes for method in route.methods - {"HEAD"}}
    document = changed._handlers.document
    told = {(path, method.upper()) for path, operations in document["paths"].items() for method in operations}
    assert routed == told == {(o.path, o.method) for o in (*OPERATIONS, *CHANGE_OPERATIONS)}
    names = [o["operationId"] for operations in document["paths"].values() for o in operations.values()]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("path", ["/api/v1/network", "/api/v1/queries"])
def test_a_peer_that_leaves_in_the_middle_of_its_request_leaves_no_traceback(tmp_path: Path, path: str) -> None:
    with daemon_on(tmp_path) as (daemon, port):
        method = "PUT" if path.endswith("network") else "POST"
        for _ in range(3):
            with socket.create_connection(("127.0.0.1", port)) as sock:
                sock.sendall(f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 50\r\n\r\nabc".encode())
        wait_for(lambda: ask(port, "GET", "/health")[0] == 200, "it answers")
        assert daemon.end() == 0
        assert not [entry for entry in daemon.log if "exception" in entry]
