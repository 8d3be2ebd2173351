"""``aurorad top``: a running daemon as a live table; without a terminal, as one line a second (``views/stats.py``)."""

from __future__ import annotations

import sys
import time
from collections import deque
from typing import TYPE_CHECKING, Annotated

import typer

from engine.cli.live_screen import HINT, live_screen
from engine.cli.remote import DEFAULT_URL, CacertOption, Remote, RemoteError, TokenFileOption, UrlOption, fail
from engine.cli.views.legend import draw_legend
from engine.cli.views.stats import MEMORY_SAMPLES, Stats, draw, one_line, rows_left

if TYPE_CHECKING:
    from rich.console import RenderableType

PLAIN_WIDTH = 160


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
) -> None:
    """Show a running daemon: what each output delivers and lost, how late and how useful it is; streams; boxes.

    On a terminal the table is live until q or Ctrl-C, and ? explains its
    words; a narrow terminal gets fewer columns. Into a pipe or a file it
    prints one line an interval.

    \b
      aurorad top
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
        first = _ask(remote)
        if once:
            _print_once(first)
        elif sys.stdout.isatty():
            _live(remote, first, interval)
        else:
            _lines(remote, first, interval)
    except RemoteError as error:
        fail(error)
    except KeyboardInterrupt:
        return


def _ask(remote: Remote) -> Stats:
    from catalog.printable import printable_answer

    stats: Stats = printable_answer(remote.json("/api/v1/stats"))
    return stats


def _print_once(stats: Stats) -> None:
    _print(draw(stats, boxes=10**9))
    typer.echo("aurorad top --legend explains the words")


def _print(part: RenderableType) -> None:
    from rich.console import Console

    Console(width=None if sys.stdout.isatty() else PLAIN_WIDTH, highlight=False).print(part)


def _live(remote: Remote, stats: Stats, interval_s: float) -> None:
    from rich.console import Group
    from rich.text import Text

    queued_bytes: deque[float] = deque(maxlen=MEMORY_SAMPLES)
    trouble: RemoteError | None = None
    with live_screen() as screen:

        def view() -> RenderableType:
            above = [] if trouble is None else [Text(str(trouble), "bold red"), Text(trouble.hint)]
            rows = rows_left(stats, screen.console.height - 1 - len(above))
            return Group(*above, draw(stats, rows, queued_bytes), Text(HINT, "dim"))

        queued_bytes.append(stats["engine"]["memory_used"])
        while screen.show(view, interval_s):
            try:
                stats, trouble = _ask(remote), None
                queued_bytes.append(stats["engine"]["memory_used"])
            except RemoteError as error:
                trouble = error


def _lines(remote: Remote, stats: Stats, interval_s: float) -> None:
    while True:
        typer.echo(one_line(stats))
        sys.stdout.flush()
        time.sleep(interval_s)
        stats = _ask(remote)
