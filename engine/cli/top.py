"""``aurorad top``: a running daemon as a live table; without a terminal, as one line a second (``views/stats.py``)."""

from __future__ import annotations

import sys
import time
from collections import deque
from typing import Annotated

import typer

from engine.cli.remote import DEFAULT_URL, Remote, RemoteError, fail
from engine.cli.views.stats import MEMORY_SAMPLES, Stats, draw, one_line, rows_left

PLAIN_WIDTH = 140


def register(app: typer.Typer) -> None:
    app.command()(top)


def top(
    url: Annotated[str, typer.Option(envvar="AURORAD_URL", help="The daemon's http.listen.")] = DEFAULT_URL,
    once: Annotated[bool, typer.Option("--once", help="Print the table once and exit.")] = False,
    interval: Annotated[float, typer.Option(min=0.1, max=3600, help="Seconds between two updates.")] = 1.0,
) -> None:
    """Show a running daemon: outputs with rate, latency and utility; boxes with cost and queue.

    On a terminal the table is live until Ctrl-C; a narrow terminal gets
    fewer columns. Into a pipe or a file it prints one line an interval.

    \b
      aurorad top
      aurorad top --once --url http://10.0.0.5:9400
      aurorad top --interval 60 >> aurorad.log

    Exit codes: 0 ended by Ctrl-C or --once, 1 no daemon answers, 2 a wrong
    address.
    """
    try:
        remote = Remote(url)
        first = remote.json("/api/v1/stats")
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


def _print_once(stats: Stats) -> None:
    from rich.console import Console

    Console(width=None if sys.stdout.isatty() else PLAIN_WIDTH, highlight=False).print(draw(stats, boxes=10**9))


def _live(remote: Remote, stats: Stats, interval_s: float) -> None:
    from rich.console import Console, Group
    from rich.live import Live
    from rich.text import Text

    console = Console(highlight=False)
    queued_bytes: deque[float] = deque(maxlen=MEMORY_SAMPLES)
    with Live(console=console, screen=True, auto_refresh=False) as live:
        while True:
            queued_bytes.append(stats["engine"]["memory_used"])
            live.update(draw(stats, rows_left(stats, console.height), queued_bytes), refresh=True)
            time.sleep(interval_s)
            try:
                stats = remote.json("/api/v1/stats")
            except RemoteError as error:
                live.update(Group(Text(str(error), "bold red"), Text(error.hint), draw(stats, 10)), refresh=True)
                time.sleep(interval_s)


def _lines(remote: Remote, stats: Stats, interval_s: float) -> None:
    while True:
        typer.echo(one_line(stats))
        sys.stdout.flush()
        time.sleep(interval_s)
        stats = remote.json("/api/v1/stats")
