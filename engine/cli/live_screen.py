"""The screen of ``aurorad top`` and the demo: a table that changes, and the keys ``?`` (legend) and ``q`` (end)."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from engine.cli.keys import Keys, reading_keys
from engine.cli.views.legend import legend_pages

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.live import Live

HINT = "? explains the words, b shows what each query costs and back, q ends"


class LiveScreen:
    def __init__(self, live: Live, keys: Keys) -> None:
        self._live = live
        self._keys = keys
        self._page = 0  # of the legend, from 1; 0 shows the table
        self.key = ""  # the last key with a meaning of the caller's own

    @property
    def console(self) -> Console:
        return self._live.console

    def show(self, view: Callable[[], RenderableType], seconds: float, keys: str = "") -> bool:
        """Show a view for some seconds, or the legend while the user reads it. False when the user ends it.

        A key out of ``keys`` ends the view early; ``key`` says which one it was.
        """
        self.key = ""
        until_s = time.monotonic() + seconds
        while True:
            pages = legend_pages(self.console)
            self._live.update(pages[self._page - 1] if self._page else view(), refresh=True)
            key = self._keys.wait(max(0.0, until_s - time.monotonic()))
            if key in ("q", "Q"):
                return False
            if key and key in keys and not self._page:
                self.key = key
                return True
            if key == "?":
                self._page = (self._page + 1) % (len(pages) + 1)
            elif key:
                self._page = 0
            else:
                return True


@contextmanager
def live_screen() -> Iterator[LiveScreen]:
    from rich.console import Console
    from rich.live import Live

    with reading_keys() as keys, Live(console=Console(highlight=False), screen=True, auto_refresh=False) as live:
        yield LiveScreen(live, keys)
