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


FOOTER_LINES = 3
SETTLE_SECONDS = 15.0


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
            scene.end_feed()
            typer.echo(summary(settled(remote)))
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
    """Name the same addresses in short, for the bottom of the screen."""
    from engine.lab.demo.scene import reachable

    feeds = [f"{s.name} {reachable(s.source.tcp).port}" for s in network.streams]
    reads = [f"{o.name} {reachable(o.sink.tcp).port}" for o in network.outputs]
    host = reachable(network.streams[0].source.tcp).host
    return [
        f"nc {host} PORT",
        f"feed: {', '.join(feeds)}",
        f"read: {', '.join(reads)}",
        f"{remote.url}/metrics",
        f"{remote.url}/",
        "? explains the words, Ctrl-C ends it",
    ]


def _show_live(scene: Scene, network: Network, remote: Remote, until_s: float) -> None:
    from rich.console import Group, RenderableType
    from rich.text import Text

    from engine.cli.live_screen import live_screen
    from engine.cli.views.stats import draw, rows_left
    from engine.cli.views.wrapped_parts import WrappedParts

    posts = WrappedParts([Text(part, "dim") for part in footer(network, remote)])
    with live_screen() as screen:
        for stats in _answers(scene, remote, until_s):

            def view(stats: Any = stats) -> RenderableType:
                rows = rows_left(stats, screen.console.height - FOOTER_LINES - 1)
                return Group(draw(stats, rows), posts)

            if not screen.show(view, 1.0):
                return


def _show_lines(scene: Scene, _network: Network, remote: Remote, until_s: float) -> None:
    from engine.cli.views.stats import one_line

    for stats in _answers(scene, remote, until_s):
        typer.echo(one_line(stats))
        sys.stdout.flush()
        time.sleep(1.0)


def _answers(scene: Scene, remote: Remote, until_s: float) -> Iterator[Any]:
    """Yield the daemon's statistics until the time is over. Raises SceneError if the daemon or the feed has ended."""
    from engine.cli.remote import RemoteError

    while time.monotonic() < until_s:
        scene.check()
        try:
            yield remote.json("/api/v1/stats")
        except RemoteError:
            scene.check()  # raises if the daemon has ended; else it was too busy to answer in time
            time.sleep(1.0)


def settled(remote: Remote) -> Any:
    """Return the daemon's statistics once nothing waits any more, or the last ones when that takes too long."""
    from engine.cli.remote import RemoteError

    deadline_s = time.monotonic() + SETTLE_SECONDS
    stats: Any = None
    while time.monotonic() < deadline_s:
        try:
            before, stats = stats, remote.json("/api/v1/stats")
        except RemoteError:
            time.sleep(0.2)
            continue
        waiting = sum(box["queue_tuples"] for box in stats["boxes"])
        if before is not None and not waiting and _counts(before) == _counts(stats):
            break
        time.sleep(0.2)
    return stats


def _counts(stats: Any) -> list[int]:
    return [s["received"] for s in stats["streams"]] + [o["emitted"] for o in stats["outputs"]]


def summary(stats: Any) -> str:
    """Count the tuples in, dropped and out, in one line."""
    if stats is None:
        return "the daemon does not answer"
    admitted = sum(s["admitted"] for s in stats["streams"])
    dropped = sum(sum(arc["shed"].values()) for arc in stats["arcs"])
    out = ", ".join(f"{o['name']} {o['emitted']:,}" for o in stats["outputs"])
    lost = sum(stats["conservation_residual"].values())
    return f"{admitted:,} tuples in; {dropped:,} dropped; out: {out}; unaccounted for: {lost}"
