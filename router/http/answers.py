"""Answers over HTTP: JSON with the headers that every answer has."""

from __future__ import annotations

import asyncio
from typing import Any

import orjson
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from catalog.errors import AuroraError

HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
"""On every answer: nothing may be guessed to be a script, framed, or kept by a cache."""


class RequestError(AuroraError):
    """A bad request. The app answers it with this status and a JSON body."""

    def __init__(self, status: int, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.status, self.hint = status, hint


def json_answer(data: Any, status: int = 200) -> Response:
    body = orjson.dumps(data, option=orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_APPEND_NEWLINE, default=str)
    return Response(body, status, media_type="application/json", headers=HEADERS)


def plain_answer(status: int, error: str, hint: str = "", *, close: bool = False) -> Response:
    """Return an error as JSON. ``close``: the connection ends with it."""
    answer = json_answer({"error": error, "hint": hint}, status)
    if close:
        answer.headers["Connection"] = "close"
    return answer


class BodyRoom:
    """The bodies of all requests that are being read share one limit, and each has a time to come in. So neither many
    large bodies nor slow ones hold memory. Owner: the I/O thread."""

    def __init__(self, limit_bytes: int = 16 * 1024**2, seconds: float = 30.0) -> None:
        self.limit_bytes = limit_bytes
        self.seconds = seconds
        self.held_bytes = 0

    async def read(self, request: Request, most: int, what: str) -> bytearray:
        """Return the body of a request. RequestError when it has more bytes than ``what`` may have, comes too slowly,
        or there is no room."""
        body = bytearray()
        try:
            async with asyncio.timeout(self.seconds):
                async for chunk in request.stream():
                    self.held_bytes += len(chunk)
                    body += chunk
                    if len(body) > most:
                        raise RequestError(413, f"{what} has at most {most:,} bytes")
                    if self.held_bytes > self.limit_bytes:
                        raise RequestError(503, "too many large requests at once", "try again later")
        except ClientDisconnect:
            raise RequestError(400, "the connection ended before the request") from None  # the peer is gone
        except TimeoutError:
            raise RequestError(408, f"the request was not complete after {self.seconds:g} s") from None
        finally:
            self.held_bytes -= len(body)
        return body


BODIES = BodyRoom()
"""Of this process."""
