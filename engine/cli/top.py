"""``aurorad top``: a running daemon as a live table; without a terminal, as one line a second (``views/stats.py``).

``--by query`` shows the bills instead (``views/bills.py``).
"""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from engine.cli.live_screen import HINT, live_screen
from engine.cli.remote import DEFAULT_URL, CacertOption, Remote, RemoteError, TokenFileOption, UrlOption, fail
from engine.cli.views.bills import FIXED_LINES, bills_line, draw_bills
from engine.cli.views.legend import draw_legend
from engine.cli.views.stats import MEMORY_SAMPLES, Stats, draw, one_line, rows_left

if TYPE_CHECKING:
    from rich.console import RenderableType

PLAIN_WIDTH = 160


class Rows(StrEnum):
    """What a row of the table is."""

    PART = "part"  # outputs, streams, boxes
    QUERY = "query"


def register(app: typer.Typer) -> None:
    app.command()(top)


def top(
    url: UrlOption = DEFAULT_URL,
    token_file: TokenFileOption = None,
    cacert: CacertOption = None,
    once: Annotated[bool, typer.Option("--once", help="Print the table once and exit.")] = False,
    legend: Annotated[
        bool, typer.Option("--legend", help="Explain every word and unit of the table, and exit.")
    ] = False,
    interval: Annotated[float, typer.Option(min=0.1, max=3600, help="Seconds between two updates.")] = 1.0,
    by: Annotated[Rows, typer.Option("--by", help="query: what each query costs, the dearest first.")] = Rows.PART,
) -> None:
    """Show a running daemon: what each output delivers and lost, how late and how useful it is; streams; boxes.

    On a terminal the table is live until q or Ctrl-C, ? explains its words,
    and b shows what each query costs; a narrow terminal gets fewer columns. Into a pipe or a file it
    prints one line an interval.

    With --by query it shows the bill of each query, which is an output with
    the boxes before it: the share of a worker that it keeps busy, its part
    of all work since the start, its time (in boxes, in deliveries, and
    between boxes), tuples that its boxes took in, results, bytes in queues
    and in state, tuples that were dropped before it, and the boxes that it
    shares. The cost of a shared box is split by the tuples consumed.

    \b
      aurorad top
      aurorad top --by query --once
      aurorad top --once --url http://10.0.0.5:9400
      aurorad top --interval 60 >> aurorad.log
      aurorad top --legend

    Exit codes: 0 ended by q, Ctrl-C, --once or --legend, 1 no daemon
    answers, 2 a wrong address.
    """
    if legend:
        _print(draw_legend())
        return
    try:
        remote = Remote(url, token_file, cacert)
        first = _ask(remote, by)
        if once:
            _print_once(first, by)
        elif sys.stdout.isatty():
            _live(remote, first, interval, by)
        else:
            _lines(remote, first, interval, by)
    except RemoteError as error:
        fail(error)
    except KeyboardInterrupt:
        return


def _ask(remote: Remote, by: Rows) -> Stats:
    from catalog.printable import printable_answer

    path, has = ("/api/v1/bills", "bills") if by is Rows.QUERY else ("/api/v1/stats", "engine")
    stats: Stats = printable_answer(remote.json(path, has=has))
    return stats


def _print_once(stats: Stats, by: Rows) -> None:
    if by is Rows.QUERY:
        _print(draw_bills(stats, most=10**9))
        return
    _print(draw(stats, boxes=10**9))
    typer.echo("aurorad top --legend explains the words")


def _draw(stats: Stats, by: Rows, height: int, queued_bytes: Sequence[float]) -> RenderableType:
    if by is Rows.QUERY:
        return draw_bills(stats, max(3, height - FIXED_LINES))
    return draw(stats, rows_left(stats, height), queued_bytes)


def _print(part: RenderableType) -> None:
    from rich.console import Console

    Console(width=None if sys.stdout.isatty() else PLAIN_WIDTH, highlight=False).print(part)


def _live(remote: Remote, stats: Stats, interval_s: float, by: Rows) -> None:
    from rich.console import Group
    from rich.text import Text

    queued_bytes: deque[float] = deque(maxlen=MEMORY_SAMPLES)
    trouble: RemoteError | None = None
    shown = by
    with live_screen() as screen:

        def view() -> RenderableType:
            above = [] if trouble is None else [Text(str(trouble), "bold red"), Text(trouble.hint)]
            table = _draw(stats, shown, screen.console.height - 1 - len(above), queued_bytes)
            return Group(*above, table, Text(HINT, "dim"))

        while True:
            if trouble is None and shown is Rows.PART:
                queued_bytes.append(stats["engine"]["memory_used"])
            if not screen.show(view, interval_s, keys="b"):
                return
            wanted = shown if not screen.key else Rows.PART if shown is Rows.QUERY else Rows.QUERY
            try:
                stats, shown, trouble = _ask(remote, wanted), wanted, None
            except RemoteError as error:
                trouble = error


def _lines(remote: Remote, stats: Stats, interval_s: float, by: Rows) -> None:
    while True:
        typer.echo(bills_line(stats) if by is Rows.QUERY else one_line(stats))
        sys.stdout.flush()
        time.sleep(interval_s)
        stats = _ask(remote, by)
