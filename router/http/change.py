"""The requests that change the network: ``PUT /api/v1/network``, ``/api/v1/queries`` and ``/api/v1/revisions``.

The body is a network file, as text. A change is made on one of starlette's threads: the I/O thread goes on meanwhile.
``HttpDoor`` lets in no request of a page of another origin.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from catalog.errors import AuroraError, NetworkError
from router.access.http_door import user_of
from router.http.answers import BODIES, RequestError, json_answer
from router.http.operations import DROP_STATE, DRY_RUN, FORCE, QUERY_FROM

MAX_NETWORK_BYTES = 16 * 1024**2


class ChangeRefusedError(AuroraError):
    """The change is not made, and nothing has changed. ``status`` is that of HTTP."""

    def __init__(self, message: str, hint: str = "", status: int = 409, plan: Mapping[str, Any] | None = None) -> None:
        super().__init__(message)
        self.hint, self.status, self.plan = hint, status, plan


@dataclass(frozen=True, slots=True)
class ChangeOrigin:
    """Where a change comes from: the door, and the user who has logged in, if there are users."""

    door: str = "code"
    author: str = ""


BY_CODE = ChangeOrigin()


class ChangeDoor(Protocol):
    """Plans and makes changes of the network (``engine/daemon/change``). Any thread but the I/O thread."""

    def put(
        self, text: str, *, dry_run: bool, drop_state: bool, force: bool = False, origin: ChangeOrigin = BY_CODE
    ) -> Mapping[str, Any]:
        """Run this network file from now on, or only say what that would do. ``force``: also if other outputs suffer
        too much. Raises NetworkError with every problem, ChangeRefusedError, ListenError."""

    def queries(self) -> Sequence[Mapping[str, Any]]:
        """Return every query: an output, with the boxes that only it needs."""

    def add_query(
        self, query: str, *, dry_run: bool, start: str = "", force: bool = False, origin: ChangeOrigin = BY_CODE
    ) -> Mapping[str, Any]:
        """Add the boxes and outputs of a query to the network. ``start``: where in the past its outputs begin."""

    def remove_query(self, name: str, *, dry_run: bool, origin: ChangeOrigin = BY_CODE) -> Mapping[str, Any]:
        """Remove an output and the boxes that only it needs, with their state."""

    def pause_query(
        self, name: str, is_paused: bool, *, dry_run: bool, origin: ChangeOrigin = BY_CODE
    ) -> Mapping[str, Any]:
        """Pause an output, with the boxes that feed only paused outputs, or let it go on."""

    def list_revisions(self) -> Sequence[Mapping[str, Any]]:
        """Return every network that was applied, the newest first: the one that runs."""

    def revision(self, number: int) -> Mapping[str, Any]:
        """Return a revision with its network file. Raises ChangeRefusedError."""

    def rollback(
        self, number: int, *, dry_run: bool, drop_state: bool, force: bool = False, origin: ChangeOrigin = BY_CODE
    ) -> Mapping[str, Any]:
        """Run the network of an earlier revision from now on."""


class ChangeHandlers:
    def __init__(self, door: ChangeDoor) -> None:
        self._door = door

    async def put_network(self, request: Request) -> Response:
        text = await _body(request)
        flags, origin = _flags(request), _origin(request, "apply")
        return await _answer(lambda: self._door.put(text, **flags, origin=origin))

    async def get_revisions(self, _: Request) -> Response:
        return json_answer({"revisions": list(self._door.list_revisions())})

    async def get_revision(self, request: Request) -> Response:
        number = _number(request)
        return await _answer(lambda: self._door.revision(number))

    async def post_rollback(self, request: Request) -> Response:
        flags, number = _flags(request), _number(request)
        origin = _origin(request, f"rollback to {number}")
        return await _answer(lambda: self._door.rollback(number, **flags, origin=origin))

    async def get_queries(self, _: Request) -> Response:
        return json_answer({"queries": list(self._door.queries())})

    async def get_query(self, request: Request) -> Response:
        name = request.path_params["name"]
        for query in self._door.queries():
            if query["name"] == name:
                return json_answer(query)
        raise RequestError(404, f"there is no query '{name[:200]}'")

    async def post_query(self, request: Request) -> Response:
        text, dry_run, force = await _body(request), DRY_RUN.read(request), FORCE.read(request)
        start, origin = QUERY_FROM.read(request), _origin(request, "query add")
        return await _answer(
            lambda: self._door.add_query(text, dry_run=dry_run, start=start, force=force, origin=origin)
        )

    async def post_pause(self, request: Request) -> Response:
        return await self._pause(request, True, "query pause")

    async def post_resume(self, request: Request) -> Response:
        return await self._pause(request, False, "query resume")

    async def _pause(self, request: Request, is_paused: bool, door: str) -> Response:
        name, dry_run, origin = request.path_params["name"], DRY_RUN.read(request), _origin(request, door)
        return await _answer(lambda: self._door.pause_query(name, is_paused, dry_run=dry_run, origin=origin))

    async def delete_query(self, request: Request) -> Response:
        name, dry_run = request.path_params["name"], DRY_RUN.read(request)
        origin = _origin(request, "query remove")
        return await _answer(lambda: self._door.remove_query(name, dry_run=dry_run, origin=origin))


def _flags(request: Request) -> dict[str, bool]:
    return {"dry_run": DRY_RUN.read(request), "drop_state": DROP_STATE.read(request), "force": FORCE.read(request)}


def _origin(request: Request, door: str) -> ChangeOrigin:
    user = user_of(request)
    return ChangeOrigin(door, "" if user is None else user.name)


def _number(request: Request) -> int:
    text = request.path_params["number"]
    if not (text.isascii() and text.isdigit() and len(text) < 12):
        raise RequestError(404, f"there is no revision '{text[:40]}'", "a revision is a number: GET /api/v1/revisions")
    return int(text)


def problems_json(error: NetworkError) -> dict[str, Any]:
    """Return everything that is wrong with a network file, each with its place."""
    return {
        "problems": [
            {"line": p.line, "column": p.column, "place": p.place, "message": p.message, "hint": p.hint}
            for p in error.problems
        ]
    }


async def _answer(work: Any) -> Response:
    """Run a change on another thread, and answer with its outcome or with all that is wrong."""
    try:
        return json_answer(await run_in_threadpool(work))
    except NetworkError as error:
        return json_answer({"error": "the network file has errors", "hint": "", **problems_json(error)}, 422)
    except ChangeRefusedError as error:
        told = {} if error.plan is None else {"plan": error.plan}
        return json_answer({"error": str(error), "hint": error.hint, **told}, error.status)
    except AuroraError as error:
        raise RequestError(409, str(error), "nothing has changed") from error


async def _body(request: Request) -> str:
    body = await BODIES.read(request, MAX_NETWORK_BYTES, "a network file")
    try:
        text = body.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise RequestError(400, f"not UTF-8: byte 0x{body[error.start]:02x} at {error.start}") from error
    return text if text.endswith("\n") else text + "\n"
