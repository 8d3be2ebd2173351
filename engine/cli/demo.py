"""``aurorad demo``: a made-up market under bursts, live; ``make run`` starts it."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from catalog.network import Network
    from engine.cli.remote import Remote
    from engine.lab.demo.scene import Scene


FOOTER_LINES = 2


def register(app: typer.Typer) -> None:
    app.command()(demo)


def demo(
    rate: Annotated[
        float, typer.Option(min=1, max=1e6, help="Tuples a second of both streams, outside bursts.")
    ] = 7000,
    seed: Annotated[int, typer.Option(min=0, help="Another seed makes another market.")] = 1,
    seconds: Annotated[float, typer.Option(min=0, help="End after this many seconds; 0: never.")] = 0,
    port_base: Annotated[
        int | None, typer.Option(min=1, max=65535, help="Move all ports: 19400 makes 9400 19400, and 9411 19411.")
    ] = None,
    file: Annotated[Path | None, typer.Option(help="Another network file, with streams trades and quotes.")] = None,
) -> None:
    """Run the demo: a made-up market feeds a network with four outputs of different QoS.

    The command starts a daemon on configs/demo.yaml and a feed with bursts,
    and shows the table of `aurorad top`. Without a terminal it prints one
    line a second. Ctrl-C ends it; the daemon drains first. When a port is
    taken, nothing starts and the command names the process that has it.

    \b
      aurorad demo
      aurorad demo --rate 50000 --seed 7
      aurorad demo --port-base 19400
      aurorad demo --seconds 10 | tail -3

    Exit codes: 0 the daemon drained and ended, 1 the daemon or the feed
    failed, 69 a port is taken, 78 a bad network file.
    """
    from catalog.config.overrides import Overrides
    from engine.cli.remote import Remote
    from engine.lab.demo.scene import SceneError, play, reachable
    from engine.lab.processes import shipped
    from engine.run.network_file import read_network

    path = file or shipped("demo.yaml")
    network = read_network(path, overrides=Overrides(port_base=port_base))
    moved = () if port_base is None else ("--port-base", str(port_base))
    remote = Remote(f"http://{reachable(network.config.http.listen)}")
    signal.signal(signal.SIGTERM, _interrupt)
    live = sys.stdout.isatty()
    try:
        with play(path, network, rate, seed, quiet=live, options=moved) as scene:
            for line in addresses(network, remote):
                typer.echo(line)
            try:
                (_show_live if live else _show_lines)(scene, network, remote, time.monotonic() + (seconds or 1e9))
            except KeyboardInterrupt:
                pass
            typer.echo(summary(remote))
        code = scene.daemon.returncode
    except SceneError as error:
        typer.echo(f"aurorad: {error}", err=True)
        raise typer.Exit(error.code) from None
    typer.echo("ended" if code == 0 else f"the daemon ended with code {code}")
    raise typer.Exit(0 if code == 0 else 1)


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def addresses(network: Network, remote: Remote) -> Iterator[str]:
    """Name the address of every stream, output and page."""
    from engine.lab.demo.scene import reachable

    for stream in network.streams:
        at = reachable(stream.source.tcp)
        yield f"feed {stream.name:8} nc {at.host} {at.port}   ({stream.source.format})"
    for output in network.outputs:
        at = reachable(output.sink.tcp)
        yield f"read {output.name:8} nc {at.host} {at.port}   ({output.sink.format})"
    yield f"metrics       {remote.url}/metrics"
    yield f"page          {remote.url}/"


def footer(network: Network, remote: Remote) -> list[str]:
    """Name the same addresses in two lines, for the bottom of the screen."""
    from engine.lab.demo.scene import reachable

    feeds = [f"{s.name} {reachable(s.source.tcp).port}" for s in network.streams]
    reads = [f"{o.name} {reachable(o.sink.tcp).port}" for o in network.outputs]
    host = reachable(network.streams[0].source.tcp).host
    return [
        f"nc {host} PORT   feed: {', '.join(feeds)}   read: {', '.join(reads)}",
        f"{remote.url}/metrics   {remote.url}/   Ctrl-C ends it",
    ]


def _show_live(scene: Scene, network: Network, remote: Remote, until_s: float) -> None:
    from rich.console import Console, Group
    from rich.live import Live
    from rich.text import Text

    from engine.cli.views.stats import draw, rows_left

    posts = Text("\n".join(footer(network, remote)), "dim", no_wrap=True, overflow="ellipsis")
    console = Console(highlight=False)
    with Live(console=console, screen=True, auto_refresh=False) as live:
        for stats in _each_second(scene, remote, until_s):
            rows = rows_left(stats, console.height - FOOTER_LINES - 1)
            live.update(Group(draw(stats, rows), posts), refresh=True)


def _show_lines(scene: Scene, _network: Network, remote: Remote, until_s: float) -> None:
    from engine.cli.views.stats import one_line

    for stats in _each_second(scene, remote, until_s):
        typer.echo(one_line(stats))
        sys.stdout.flush()


def _each_second(scene: Scene, remote: Remote, until_s: float) -> Iterator[Any]:
    from engine.cli.remote import RemoteError

    while time.monotonic() < until_s:
        scene.check()
        try:
            yield remote.json("/api/v1/stats")
        except RemoteError:
            scene.check()  # raises if the daemon has ended; else it was too busy to answer in time
        time.sleep(1.0)


def summary(remote: Remote) -> str:
    """Count the tuples in and out, in one line."""
    from engine.cli.remote import RemoteError

    try:
        stats = remote.json("/api/v1/stats")
    except RemoteError as error:
        return str(error)
    admitted = sum(s["admitted"] for s in stats["streams"])
    out = ", ".join(f"{o['name']} {o['emitted']:,}" for o in stats["outputs"])
    return f"{admitted:,} tuples in; out: {out}; unaccounted for: {sum(stats['conservation_residual'].values())}"
