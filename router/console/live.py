"""Statistics for open pages: one look a second for all of them, over Server-Sent Events.

Nothing runs while no page is open. The look is taken on another thread. When it is dear, because a network has
thousands of boxes, looks become rarer, so that they take a hundredth of one core. A page that does not read gets the
newest look when it reads again, and none of those between.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Mapping
from time import thread_time
from typing import Any

import orjson
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from router.http.answers import HEADERS, RequestError

MAX_PAGES = 32
EVERY_SECONDS = 1.0
RAREST_SECONDS = 10.0
SHARE_OF_CORE = 0.01


class _OpenPage:
    """A page that is open: the newest look that it has not got, and a bell."""

    def __init__(self) -> None:
        self.look: bytes | None = None
        self.bell = asyncio.Event()

    def show(self, look: bytes) -> None:
        self.look = look
        self.bell.set()


class LivePages:
    """Owner: the I/O thread."""

    def __init__(self, stats: Callable[[], Mapping[str, Any]]) -> None:
        self._stats = stats
        self._pages: set[_OpenPage] = set()
        self._task: asyncio.Task[None] | None = None
        self._last: bytes | None = None  # look; a page that comes gets it at once
        self._ended = False

    def __len__(self) -> int:
        return len(self._pages)

    async def answer(self, _: Request) -> Response:
        if len(self._pages) >= MAX_PAGES:
            raise RequestError(503, f"{MAX_PAGES} pages are already open", "close one, or try again later")
        return StreamingResponse(self._events(), media_type="text/event-stream", headers=HEADERS)

    def end(self) -> None:
        """Tell all pages that the daemon stops."""
        self._ended = True
        for page in self._pages:
            page.bell.set()
        if self._task is not None:
            self._task.cancel()

    async def _events(self) -> AsyncIterator[bytes]:
        page = _OpenPage()
        self._pages.add(page)
        try:
            yield b"retry: 1000\n\n"
            if self._task is None and not self._ended:
                self._task = asyncio.create_task(self._look(), name="aurorad-pages")
            elif self._last is not None:
                page.show(self._last)
            while True:
                await page.bell.wait()
                page.bell.clear()
                if self._ended:
                    yield b"event: stop\ndata: {}\n\n"
                    return
                look, page.look = page.look, None
                if look is not None:
                    yield look
        finally:
            self._pages.discard(page)

    async def _look(self) -> None:
        """Look again and again, as long as a page is open."""
        try:
            while self._pages:
                cost_s = 0.0
                with contextlib.suppress(RuntimeError):  # the pool is closed: the daemon stops
                    look, cost_s = await run_in_threadpool(self._event)
                    self._last = look
                    for page in list(self._pages):
                        page.show(look)
                await asyncio.sleep(min(RAREST_SECONDS, max(EVERY_SECONDS, cost_s / SHARE_OF_CORE)))
        finally:
            self._task = self._last = None

    def _event(self) -> tuple[bytes, float]:
        """Return the event, and what it cost in processor time."""
        begun = thread_time()
        event = b"event: stats\ndata: " + orjson.dumps(self._stats(), option=orjson.OPT_SERIALIZE_NUMPY) + b"\n\n"
        return event, thread_time() - begun
