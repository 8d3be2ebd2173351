"""A line of parts that breaks between them: "workers busy 29%" and "77%" are not torn apart on a narrow screen."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions
    from rich.text import Text

GAP = "   "


class WrappedParts:
    """Parts side by side, on as many lines as the width asks for."""

    def __init__(self, parts: Sequence[Text]) -> None:
        self._parts = parts

    def __rich_console__(self, _console: Console, options: ConsoleOptions) -> Iterator[Text]:
        line: Text | None = None
        for part in self._parts:
            if line is not None and line.cell_len + len(GAP) + part.cell_len <= options.max_width:
                line = line.append(GAP).append_text(part)
                continue
            if line is not None:
                yield line
            line = part.copy()
        if line is not None:
            yield line
