"""The legend of ``aurorad top`` and the demo (``catalog/legend.py``), for the key ``?`` and for ``--legend``."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from catalog.legend import LEGEND

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

HEADINGS = {"engine": "engine, in the first two lines", "output": "outputs", "stream": "streams", "box": "boxes"}
BACK = "any key goes back to the table"
NEXT = "page {} of {}; ? goes on, any other key goes back to the table"


def draw_legend(sections: Iterable[str] = tuple(HEADINGS)) -> RenderableType:
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    parts: list[RenderableType] = []
    for section in sections:
        table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 1))
        table.add_column(style="bold", min_width=11, max_width=16)
        table.add_column()
        for term in LEGEND:
            if term.where == section:
                table.add_row(term.word, term.meaning)
        parts += [Text(HEADINGS[section], "dim"), table]
    return Group(*parts)


def legend_pages(console: Console) -> list[RenderableType]:
    """Return the legend as one page, or as a page for each section where the screen is too small for all of it."""
    from rich.console import Group
    from rich.text import Text

    if len(console.render_lines(draw_legend(), pad=False)) + 1 <= console.height:
        return [Group(draw_legend(), Text(BACK, "dim"))]
    return [
        Group(draw_legend((section,)), Text(NEXT.format(page, len(HEADINGS)), "dim"))
        for page, section in enumerate(HEADINGS, start=1)
    ]
