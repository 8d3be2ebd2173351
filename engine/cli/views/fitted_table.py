"""A table that fits the terminal: on a narrow one it leaves out its least important columns.

rich would shorten every cell instead, until a row reads ``ale… 5.6 8… 6.…``. The caller says which columns go first.
When all of those are gone and the table is still too wide, rich shortens the cells of the others. rich is imported
where it draws.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions
    from rich.table import Table
    from rich.text import Text

    Cell = str | Text

UNLIMITED = 10_000


class FittedTable:
    """``spare`` names the columns that may be left out, in that order; ``left`` those that are aligned to the left."""

    def __init__(self, *columns: str, spare: Sequence[str] = (), left: Sequence[str] = ()) -> None:
        self._columns = columns
        self._spare = spare
        self._left = {columns[0], *left}
        self._rows: list[tuple[tuple[Cell, ...], str]] = []

    def add_row(self, *cells: Cell, style: str = "") -> None:
        assert len(cells) == len(self._columns)
        self._rows.append((cells, style))

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Table]:
        for left_out in range(len(self._spare) + 1):
            table = self._without(self._spare[:left_out])
            if console.measure(table, options=options.update(width=UNLIMITED)).maximum <= options.max_width:
                break
        yield table

    def _without(self, left_out: Sequence[str]) -> Table:
        from rich.box import SIMPLE_HEAD
        from rich.table import Table

        kept = [i for i, column in enumerate(self._columns) if column not in left_out]
        table = Table(box=SIMPLE_HEAD, pad_edge=False, expand=False)
        for name in (self._columns[i] for i in kept):
            table.add_column(name, justify="left" if name in self._left else "right", no_wrap=True)
        for cells, style in self._rows:
            table.add_row(*(cells[i] for i in kept), style=style or None)
        return table
