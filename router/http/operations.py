"""The HTTP API as one table: the server routes by it, handlers read their parameters with it, and the OpenAPI document
(``router/http/openapi.py``) is made from it. So the document cannot say something else than the server does.

An operation is one entry. Its ``handler`` is the name of a method of the handlers' class (``router/http/app.py``,
``router/http/change.py``). A parameter is an object: the handler calls its ``read``, and the document shows its
``schema``. A refused value is answered with 400.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

from starlette.requests import Request
from starlette.routing import Route

from router.http import schemas
from router.http.answers import RequestError

FOLLOW_SECONDS = 60
MAX_TEXT = 4_096


class HttpParameter(Protocol):
    """A parameter in the query of a request."""

    @property
    def name(self) -> str: ...

    @property
    def about(self) -> str: ...

    @property
    def is_required(self) -> bool: ...

    def schema(self) -> Mapping[str, Any]:
        """Return the JSON schema of its values."""


class NumberParameter(NamedTuple):
    name: str
    about: str
    default: int
    least: int
    most: int
    is_required: bool = False

    def schema(self) -> Mapping[str, Any]:
        return {"type": "integer", "minimum": self.least, "maximum": self.most, "default": self.default}

    def read(self, request: Request) -> int:
        """Return the value. Raises RequestError."""
        text = request.query_params.get(self.name)
        if text is None:
            return self.default
        if not (text.isascii() and text.isdigit() and len(text) < 12 and self.least <= int(text) <= self.most):
            limits = f"a whole number from {self.least} to {self.most}"
            raise RequestError(400, f"{self.name} must be {limits}, not '{text[:40]}'")
        return int(text)


class FlagParameter(NamedTuple):
    name: str
    about: str
    is_required: bool = False

    def schema(self) -> Mapping[str, Any]:
        return {"type": "boolean", "default": False}

    def read(self, request: Request) -> bool:
        """Return the value. Raises RequestError."""
        text = request.query_params.get(self.name, "false")
        if text not in ("true", "false"):
            raise RequestError(400, f"{self.name} is true or false, not '{text[:40]}'")
        return text == "true"


class TextParameter(NamedTuple):
    name: str
    about: str
    is_required: bool = False
    words: tuple[str, ...] = ()
    most: int = MAX_TEXT

    def schema(self) -> Mapping[str, Any]:
        return (
            {"type": "string", "enum": list(self.words)} if self.words else {"type": "string", "maxLength": self.most}
        )

    def read(self, request: Request) -> str:
        """Return the value; empty when it is missing and may be. Raises RequestError."""
        text = request.query_params.get(self.name)
        if text is None:
            if self.is_required:
                raise RequestError(400, f"the request needs {self.name}: {self.about}")
            return ""
        if len(text) > self.most:
            raise RequestError(400, f"{self.name} has at most {self.most:,} characters")
        if self.words and text not in self.words:
            raise RequestError(400, f"{self.name} is one of {', '.join(self.words)}, not '{text[:40]}'")
        return text


LIMIT = NumberParameter("limit", "at most so many entries", 100, 1, 10_000)
EXPLAIN_OUTPUT = TextParameter("output", "the name of an output")
EXPLAIN_WHERE = TextParameter("where", "a condition in SQL over the fields of the output")
EXPLAIN_LIMIT = NumberParameter("limit", "at most so many tuples", 3, 1, 100)
FOLLOW = NumberParameter(
    "follow", "wait so many seconds for the next tuple that meets the condition", 0, 0, FOLLOW_SECONDS
)
TAP_EVERY = NumberParameter("every", "show each n-th tuple", 1, 1, 10**9)
TAP_LIMIT = NumberParameter("limit", "end after so many tuples; 0: never", 100, 0, 10**9)
TAP_PLACES = (
    TextParameter("name", "a stream, box, arc or output. A request has one of name, arc, stream and output"),
    TextParameter("arc", "an arc, written as a->b"),
    TextParameter("stream", "a stream"),
    TextParameter("output", "an output"),
)
TAP_WHERE = TextParameter("where", "a condition in SQL: only the tuples that meet it")
NAME_KIND = TextParameter("kind", "what the name is of", is_required=True, words=("reader", "source"))
NAME_AT = TextParameter("at", "the output of a reader, the stream of a source", is_required=True)
NAME = TextParameter("name", "the name", is_required=True)
SAVEPOINT_NAME = TextParameter("name", "the name of the savepoint; without one it gets the time")
PAST_AT = TextParameter("at", "a time in nanoseconds: the two records around it; without it the times of all", most=19)
HISTORY_FROM = TextParameter("from", "where to begin: earliest, -1h, now, or a time such as 2026-01-01T12:00Z", most=40)
HISTORY_FOLLOW = FlagParameter("follow", "go on with tuples that come later")
VIEW_WHERE = TextParameter("where", "a condition in SQL over the fields of the view")
VIEW_LIMIT = NumberParameter("limit", "at most so many rows, the newest", 1_000, 1, 1_000_000)
QUERY_FROM = TextParameter("from", "where in the history of its inputs the query begins; empty: now", most=40)
DRY_RUN = FlagParameter("dry_run", "only answer what the change would do")
DROP_STATE = FlagParameter("drop_state", "let the change drop state of boxes")
FORCE = FlagParameter("force", "no forecast: change also what falls below admission.min_utility")


class HttpOperation(NamedTuple):
    """``right`` is what a user needs (docs/security.md). ``answers`` has the schema of the body by status.
    Statuses that every operation may have are in ``COMMON``."""

    method: str
    path: str
    handler: str
    about: str
    right: str  # "none", "view", "tap", "change" or "admin"
    answers: Mapping[int, Mapping[str, Any]]
    parameters: tuple[HttpParameter, ...] = ()
    media_type: str = "application/json"
    body: str = ""  # what the body is, for operations that have one
    body_type: str = "application/yaml"


def route_of(operation: HttpOperation, handlers: object) -> Route:
    return Route(operation.path, getattr(handlers, operation.handler), methods=[operation.method])


COMMON: Mapping[int, str] = {
    400: "the request is malformed, or a parameter is",
    401: "no login, or a wrong one",
    403: "this user may not do that, or the request comes from a page of another origin",
    405: "this path has other methods",
    421: "the Host header names another machine",
    429: "too many requests or failed logins; Retry-After says how long to wait",
    503: "all connections are taken, or the daemon is not ready",
}
"""Every operation may be answered so, with ``schemas.ERROR``."""

OPERATIONS = (
    HttpOperation("GET", "/metrics", "metrics", "Metrics for Prometheus or OpenMetrics", "view", {200: schemas.TEXT},
                  media_type="text/plain"),
    HttpOperation("GET", "/health", "health", "Whether the process lives and its event loop turns", "none",
                  {200: schemas.HEALTH}),
    HttpOperation("GET", "/ready", "ready", "Whether the daemon takes tuples and processes them, by check", "none",
                  {200: schemas.READY, 503: schemas.READY}),
    HttpOperation("GET", "/api/v1/openapi.json", "openapi", "This document", "view", {200: schemas.OBJECT}),
    HttpOperation("GET", "/api/v1/network", "network", "The network: streams, boxes, arcs, outputs, schemas", "view",
                  {200: schemas.NETWORK}),
    HttpOperation("GET", "/api/v1/stats", "stats", "Everything that `aurorad top` shows", "view", {200: schemas.STATS}),
    HttpOperation("GET", "/api/v1/bills", "bills", "What each query costs", "view", {200: schemas.OBJECT}),
    HttpOperation("GET", "/api/v1/dead_letters", "dead_letters",
                  "The newest refused inputs, and tuples that boxes could not process. A user sees those of the "
                  "streams and boxes that it may tap", "view", {200: schemas.DEAD_LETTERS}, (LIMIT,)),
    HttpOperation("GET", "/api/v1/drops", "drops", "The shed plans that were in force and what they dropped", "view",
                  {200: schemas.OBJECT}, (LIMIT,)),
    HttpOperation("GET", "/api/v1/explain", "explain",
                  "The slowest sampled tuples of an output in the last minute, and where they waited", "tap",
                  {200: schemas.EXPLANATION, 404: schemas.ERROR},
                  (EXPLAIN_OUTPUT, EXPLAIN_WHERE, EXPLAIN_LIMIT, FOLLOW)),
    HttpOperation("GET", "/api/v1/tap", "tap", "Tuples of a place as they pass, one JSON object a line", "tap",
                  {200: schemas.TEXT, 404: schemas.ERROR}, (*TAP_PLACES, TAP_WHERE, TAP_EVERY, TAP_LIMIT),
                  media_type="application/x-ndjson"),
    HttpOperation("GET", "/api/v1/names", "names", "The names of readers and sources", "admin", {200: schemas.NAMES}),
    HttpOperation("DELETE", "/api/v1/names", "drop_name", "Forget a reader or source that is not connected", "admin",
                  {200: schemas.OBJECT, 404: schemas.ERROR, 409: schemas.ERROR}, (NAME_KIND, NAME_AT, NAME)),
    HttpOperation("POST", "/api/v1/savepoint", "savepoint", "Write a savepoint into the data_dir", "admin",
                  {200: schemas.SAVEPOINT, 404: schemas.ERROR, 409: schemas.ERROR}, (SAVEPOINT_NAME,)),
)  # fmt: skip

_CHANGED = {
    200: schemas.OBJECT,
    408: schemas.ERROR,
    409: schemas.ERROR,
    413: schemas.ERROR,
    422: schemas.PROBLEMS,
}
CHANGE_OPERATIONS = (
    HttpOperation("PUT", "/api/v1/network", "put_network", "Run this network file from now on", "change",
                  _CHANGED,
                  (DRY_RUN, DROP_STATE, FORCE), body="a network file"),
    HttpOperation("GET", "/api/v1/queries", "get_queries",
                  "Every query: an output with the boxes that only it needs", "view", {200: schemas.QUERIES}),
    HttpOperation("POST", "/api/v1/queries", "post_query", "Add the boxes and outputs of a file", "change",
                  _CHANGED,
                  (DRY_RUN, QUERY_FROM, FORCE), body="a network file with boxes and outputs"),
    HttpOperation("GET", "/api/v1/revisions", "get_revisions",
                  "Every network that was applied, the newest first: number, time, author, door and parts", "view",
                  {200: schemas.REVISIONS}),
    HttpOperation("GET", "/api/v1/revisions/{number}", "get_revision", "A revision with its network file", "change",
                  {200: schemas.OBJECT, 404: schemas.ERROR}),
    HttpOperation("POST", "/api/v1/revisions/{number}/rollback", "post_rollback",
                  "Run the network of this revision from now on: that is a new revision", "change",
                  {200: schemas.OBJECT, 404: schemas.ERROR, 409: schemas.ERROR, 422: schemas.PROBLEMS},
                  (DRY_RUN, DROP_STATE, FORCE)),
    HttpOperation("GET", "/api/v1/queries/{name}", "get_query", "One query", "view",
                  {200: schemas.OBJECT, 404: schemas.ERROR}),
    HttpOperation("POST", "/api/v1/queries/{name}/pause", "post_pause",
                  "Let an output rest, with the boxes that feed only paused outputs", "change",
                  {200: schemas.OBJECT, 404: schemas.ERROR, 409: schemas.ERROR, 422: schemas.PROBLEMS}, (DRY_RUN,)),
    HttpOperation("POST", "/api/v1/queries/{name}/resume", "post_resume", "Let a paused output go on", "change",
                  {200: schemas.OBJECT, 404: schemas.ERROR, 409: schemas.ERROR, 422: schemas.PROBLEMS}, (DRY_RUN,)),
    HttpOperation("DELETE", "/api/v1/queries/{name}", "delete_query",
                  "Remove an output and the boxes that only it needs, with their state", "change",
                  {200: schemas.OBJECT, 404: schemas.ERROR, 409: schemas.ERROR, 422: schemas.PROBLEMS}, (DRY_RUN,)),
)  # fmt: skip

HISTORY_OPERATIONS = (
    HttpOperation("GET", "/api/v1/history", "list_history", "The connection points and the files of each", "view",
                  {200: schemas.OBJECT}),
    HttpOperation("GET", "/api/v1/history/{name}", "get_history", "The history of a place, for `query run`", "tap",
                  {200: schemas.TEXT, 404: schemas.ERROR}, (HISTORY_FROM, HISTORY_FOLLOW),
                  media_type="application/octet-stream"),
)  # fmt: skip

VIEW_OPERATIONS = (
    HttpOperation("GET", "/api/v1/views", "list_views", "Every view, with its key and its fields", "view",
                  {200: schemas.OBJECT}),
    HttpOperation("GET", "/api/v1/views/{name}", "get_view", "The rows of a view", "tap",
                  {200: schemas.OBJECT, 404: schemas.ERROR}, (VIEW_WHERE, VIEW_LIMIT)),
)  # fmt: skip

_WORK = {200: schemas.OBJECT, 408: schemas.ERROR, 413: schemas.ERROR, 422: schemas.PROBLEMS}
CONSOLE_OPERATIONS = (
    HttpOperation("GET", "/", "page", "The page", "view", {200: schemas.TEXT}, media_type="text/html"),
    HttpOperation("GET", "/console/{name}", "page_file", "A file of the page", "view",
                  {200: schemas.TEXT, 404: schemas.ERROR}, media_type="*/*"),
    HttpOperation("GET", "/api/v1/live", "live", "What the page shows, as it changes", "view", {200: schemas.TEXT},
                  media_type="text/event-stream"),
    HttpOperation("GET", "/api/v1/past", "past", "What the page has shown", "view", {200: schemas.OBJECT}, (PAST_AT,)),
    HttpOperation("GET", "/api/v1/network/file", "file", "The network file that runs", "view", {200: schemas.FILE}),
    HttpOperation("GET", "/api/v1/words", "words", "What an editor of network files completes", "view",
                  {200: schemas.OBJECT}),
    HttpOperation("GET", "/api/v1/give_up", "give_up", "What the load shedder would give up next", "view",
                  {200: schemas.OBJECT}),
    HttpOperation("GET", "/api/v1/superboxes", "superboxes", "Which boxes are scheduled together", "view",
                  {200: schemas.OBJECT}),
    HttpOperation("POST", "/api/v1/what_if", "what_if", "Forecast another load, policy or number of workers", "change",
                  _WORK, body="an object: load, workers, policy", body_type="application/json"),
    HttpOperation("POST", "/api/v1/draft", "draft", "Write a network file from some rows", "change", _WORK,
                  body="an object: rows, and a name for the stream", body_type="application/json"),
    HttpOperation("POST", "/api/v1/merge", "merge", "The network file that runs, with the parts of another one",
                  "change", _WORK, body="an object: file", body_type="application/json"),
    HttpOperation("POST", "/api/v1/feed", "feed", "Send rows to a stream, through its own listener", "change", _WORK,
                  body="an object: stream, rows", body_type="application/json"),
    HttpOperation("POST", "/api/v1/trial", "trial", "Run a network file on some rows", "change", _WORK,
                  body="an object: file, and rows by stream", body_type="application/json"),
)  # fmt: skip
"""Those of the page (``router/console``)."""
