"""The I/O thread: one uvloop for every socket and for HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from threading import Thread
from typing import Any, TypeVar

import uvloop

T = TypeVar("T")


class IoLoop:
    def __init__(self) -> None:
        self.loop = uvloop.new_event_loop()
        self._thread = Thread(target=self._run, name="aurorad-io", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the I/O thread and wait for it. Any other thread."""
        return asyncio.run_coroutine_threadsafe(work, self.loop).result()

    def call(self, function: Callable[..., object], *arguments: object) -> None:
        """Call a function on the I/O thread, in its next turn. Any thread."""
        self.loop.call_soon_threadsafe(function, *arguments)

    def stop(self) -> None:
        self.call(self.loop.stop)
        self._thread.join()
        self.loop.close()

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.run_forever()
