"""History over HTTP: the list of connection points, and the tuples of one as a stream of frames.

``GET /api/v1/history`` lists. ``GET /api/v1/history/NAME?from=-1h&follow=true`` answers with the frames of
``storage/history/wire.py``: the tuples from there on up to now, and with ``follow`` those that come later. A command
computes with them in its own process, so that a question takes no worker of the daemon.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from threading import Lock
from typing import Any

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from catalog.config.history import parse_start
from catalog.config.words import did_you_mean
from router.http.answers import HEADERS, RequestError, json_answer
from router.http.operations import HISTORY_FOLLOW, HISTORY_FROM

MAX_READERS = 8
"""A reader keeps a thread of the HTTP server busy and reads from the disk."""


@dataclass(frozen=True)
class HistoryQueries:
    """What the daemon answers about its history. Any thread."""

    listing: Callable[[], Sequence[Mapping[str, Any]]]
    frames: Callable[[str, Any, bool], Iterator[bytes]]  # a place, where it starts, whether it follows


class HistoryHandlers:
    def __init__(self, queries: HistoryQueries, check_tap: Callable[[Request, str], None]) -> None:
        self._queries = queries
        self._check_tap = check_tap
        self._lock = Lock()
        self._readers = 0

    def list_history(self, _: Request) -> Response:
        return json_answer({"history": list(self._queries.listing())})

    def get_history(self, request: Request) -> Response:
        name, text, follows = request.path_params["name"], HISTORY_FROM.read(request), HISTORY_FOLLOW.read(request)
        self._check_tap(request, name)
        names = [place["name"] for place in self._queries.listing()]
        if name not in names:
            raise RequestError(404, f"'{name[:200]}' keeps no history", did_you_mean(name[:200], names))
        try:
            start = parse_start(text or "earliest")
        except ValueError as error:
            raise RequestError(400, str(error)) from error
        with self._lock:
            if self._readers >= MAX_READERS:
                raise RequestError(503, f"{MAX_READERS} clients already read history", "try again later")
            self._readers += 1
        frames = self._counted(self._queries.frames(name, start, follows))
        return StreamingResponse(frames, media_type="application/octet-stream", headers=HEADERS)

    def _counted(self, frames: Iterator[bytes]) -> Iterator[bytes]:
        try:
            yield from frames
        finally:
            with self._lock:
                self._readers -= 1
