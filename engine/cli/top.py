"""``aurorad top``: a running daemon as a live table; without a terminal, as one line a second.

What is drawn is a pure function of what ``/api/v1/stats`` answers (``draw``, ``one_line``), so that the demo can show
the same without a second process. rich is imported where it draws: every other command would wait for it too.
"""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from engine.cli.fitted import FittedTable
from engine.cli.remote import DEFAULT_URL, Remote, RemoteError, fail
from engine.cli.top_spark import spark_lines
from engine.draw.strip import strip

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.text import Text

Stats = Mapping[str, Any]

FIXED_LINES = 12  # header, titles, rules: what is on the screen beside rows
PLAIN_WIDTH = 140
MEMORY_LOOKS = 30  # shown as a strip in the header


def register(app: typer.Typer) -> None:
    app.command(help="Show a running daemon: outputs with rate, latency and utility; boxes with cost and queue.")(top)


def top(
    url: Annotated[str, typer.Option(envvar="AURORAD_URL", help="the daemon's http.listen")] = DEFAULT_URL,
    once: Annotated[bool, typer.Option("--once", help="print once and exit")] = False,
    interval: Annotated[float, typer.Option(min=0.1, max=3600, help="seconds between two looks")] = 1.0,
) -> None:
    try:
        remote = Remote(url)
        first = remote.json("/api/v1/stats")
        if once:
            show_once(first)
        elif sys.stdout.isatty():
            _live(remote, first, interval)
        else:
            _lines(remote, first, interval)
    except RemoteError as error:
        fail(error)
    except KeyboardInterrupt:
        return


def show_once(stats: Stats) -> None:
    from rich.console import Console

    tty = sys.stdout.isatty()
    Console(width=None if tty else PLAIN_WIDTH, highlight=False).print(draw(stats, boxes=10**9))


def _live(remote: Remote, stats: Stats, interval_s: float) -> None:
    from rich.console import Console, Group
    from rich.live import Live
    from rich.text import Text

    console = Console(highlight=False)
    waited: deque[float] = deque(maxlen=MEMORY_LOOKS)
    with Live(console=console, screen=True, auto_refresh=False) as live:
        while True:
            waited.append(stats["engine"]["memory_used"])
            live.update(draw(stats, rows_left(stats, console.height), waited), refresh=True)
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


# -- drawing ----------------------------------------------------------------------------------------------------------


def rows_left(stats: Stats, height: int) -> int:
    """How many boxes fit below the outputs."""
    outputs = len(stats["outputs"])
    return max(3, height - FIXED_LINES - outputs - (outputs > 1))


def draw(stats: Stats, boxes: int, waited: Sequence[float] = ()) -> RenderableType:
    """Header, outputs, and the boxes that matter most: where most waits, then who is busiest.

    ``waited``: bytes in queues at the last looks.
    """
    from rich.console import Group
    from rich.text import Text

    return Group(
        _header(stats),
        _second_line(stats, waited),
        *map(Text, spark_lines(stats)),
        _outputs(stats),
        _boxes(stats, boxes),
    )


def one_line(stats: Stats) -> str:
    """Everything that a log line has room for."""
    engine = stats["engine"]
    parts = [f"load {engine['load_ratio']:.0%}", f"memory {size(engine['memory_used'])}"]
    if shedding := shed_line(stats):
        parts.append(shedding)
    if lost := sum(stats["conservation_residual"].values()):
        parts.append(f"UNACCOUNTED {lost}")
    for o in stats["outputs"]:
        latency = o["latency"]
        parts.append(
            f"{o['name']} {count(o['rate_per_s'])}/s p50 {duration(latency['p50_ns'])} "
            f"p99 {duration(latency['p99_ns'])} utility {utility(o):.2f}"
        )
    return " | ".join([*parts, *spark_lines(stats)])


def _header(stats: Stats) -> Text:
    from rich.text import Text

    engine, scheduler = stats["engine"], stats["scheduler"]
    load = engine["load_ratio"]
    workers = " ".join(f"{w['busy_ns'] / max(1, engine['uptime_ns']):.0%}" for w in stats["workers"])
    text = Text.assemble(
        ("aurorad ", "bold"), engine["version"], "   load ", (f"{load:.0%}", "bold red" if load > 1 else "bold"),
        "   memory ", (f"{size(engine['memory_used'])} of {size(engine['memory_budget'])}", "bold"),
        "   policy ", (f"{scheduler['policy']} {scheduler['unit']}".strip() or "-", "bold"),
        "   up ", (duration(engine["uptime_ns"]), "bold"),
    )  # fmt: skip
    if workers:
        text.append(f"   workers busy {workers}")
    if shedding := shed_line(stats):
        text.append(f"   {shedding}", "bold yellow")
    if lost := sum(stats["conservation_residual"].values()):
        text.append(f"   unaccounted for: {lost} tuples", "bold red")
    return text


def shed_line(stats: Stats) -> str:
    """How far the shedder goes, and what was dropped by reason since the start; nothing when nothing ever was."""
    dropped: dict[str, int] = {}
    for arc in stats["arcs"]:
        for reason, tuples in arc["shed"].items():
            dropped[reason] = dropped.get(reason, 0) + tuples
    level = stats["engine"]["shed_level"]
    parts = [f"shedding {level:.2f}"] if level else []
    if dropped:
        parts.append("dropped " + ", ".join(f"{count(n)} {reason}" for reason, n in sorted(dropped.items())))
    return "   ".join(parts)


def _second_line(stats: Stats, waited: Sequence[float]) -> Text:
    from rich.text import Text

    parts = [chosen(stats["scheduler"]), overhead(stats)]
    if len(waited) > 1:
        parts.append(f"queues {strip(list(waited), max(waited), MEMORY_LOOKS)} most {size(max(waited))}")
    return Text("   ".join(part for part in parts if part), "dim")


def _outputs(stats: Stats) -> FittedTable:
    from rich.text import Text

    table = FittedTable(
        "output", "rate/s", "mean", "p50", "p99", "p99.9", "max", "utility", "SDMR", "slowdown", "worst", "l2",
        "waiting", "readers", spare=("l2", "worst", "p99.9", "mean", "slowdown", "max", "SDMR", "waiting"),
    )  # fmt: skip
    for o in stats["outputs"]:
        latency, slowdown = o["latency"], o["slowdown"]
        u = utility(o)
        table.add_row(
            Text(o["name"], "bold"), count(o["rate_per_s"]),
            *(duration(latency[key]) for key in ("mean_ns", "p50_ns", "p99_ns", "p999_ns", "max_ns")),
            Text(f"{u:.3f}", "green" if u > 0.9 else "yellow" if u > 0.5 else "red"),
            f"{o['sdmr']:.1%}" if o["deadline_ns"] else "-",
            *(count(slowdown[key]) for key in ("mean", "max", "l2")), count(o["queue_tuples"]), str(o["readers"]),
        )  # fmt: skip
    if len(stats["outputs"]) > 1:
        table.add_row(*overall(stats["outputs"]), style="dim")
    return table


def overall(outputs: Sequence[Stats]) -> list[str]:
    """All outputs as one: every tuple of the last seconds counts alike. Quantiles do not add up, so they are left out;
    slowdown is since the start, as in the rows above."""
    tuples = [o["latency"]["window_tuples"] for o in outputs]
    ever = [o["emitted"] for o in outputs]

    def mean(values: Sequence[float], weights: Sequence[int]) -> float:
        return sum(v * w for v, w in zip(values, weights, strict=True)) / max(1, sum(weights))

    due = [(o["sdmr"], n) for o, n in zip(outputs, tuples, strict=True) if o["deadline_ns"]]
    useful = mean([utility(o) for o in outputs], tuples) if any(tuples) else 1.0
    return [
        "(all)", count(sum(o["rate_per_s"] for o in outputs)),
        duration(mean([o["latency"]["mean_ns"] for o in outputs], tuples)), "", "", "",
        duration(max(o["latency"]["max_ns"] for o in outputs)), f"{useful:.3f}",
        f"{mean([s for s, _ in due], [n for _, n in due]):.1%}" if due else "-",
        count(mean([o["slowdown"]["mean"] for o in outputs], ever)), count(max(o["slowdown"]["max"] for o in outputs)),
        count(sum(o["slowdown"]["l2"] ** 2 for o in outputs) ** 0.5), "", "",
    ]  # fmt: skip


def chosen(scheduler: Stats) -> str:
    """What `auto` has chosen and why; nothing where the network file chose."""
    if scheduler.get("asked") != "auto":
        return ""
    return f"auto chose {scheduler['policy']} ({scheduler['changes']} changes): {scheduler['reason']}"


def overhead(stats: Stats) -> str:
    """Where busy time went beside the boxes, since the start (figure 9 of P0)."""
    parts = {name: stats["scheduler"].get(f"{name}_ns", 0) for name in ("scheduler", "storage", "worker")}
    busy_ns = sum(parts.values()) + sum(b["cost_ns"] for b in stats["boxes"])
    if not busy_ns:
        return ""
    return "overhead " + " ".join(f"{name} {ns / busy_ns:.0%}" for name, ns in parts.items())


def _boxes(stats: Stats, most: int) -> RenderableType:
    from rich.console import Group
    from rich.text import Text

    boxes = stats["boxes"]
    shown = sorted(boxes, key=lambda b: (-b["queue_tuples"], -b["busy_ratio"]))[:most] if len(boxes) > most else boxes
    table = FittedTable(
        "box", "kind", "in/s", "cost/tuple", "cost/call", "selectivity", "train", "busy", "waiting",
        spare=("cost/call", "train", "selectivity", "kind"), left=("kind",),
    )  # fmt: skip
    for b in shown:
        table.add_row(
            Text(b["name"], "bold"), b["kind"], count(b["rate_per_s"]), duration(b["cost_per_tuple_ns"]),
            duration(b["cost_per_call_ns"]), f"{b['selectivity']:.3f}", count(b["mean_train_tuples"]),
            f"{b['busy_ratio']:.1%}", count(b["queue_tuples"]),
        )  # fmt: skip
    if len(shown) == len(boxes):
        return table
    return Group(table, Text(f"{len(boxes) - len(shown)} boxes more, where less waits", "dim"))


# -- numbers for people -----------------------------------------------------------------------------------------------


def utility(output: Stats) -> float:
    """The worst of them: an output that is in time but half lost is not fine."""
    return float(min(output["utility"]["latency"], output["utility"]["loss"]))


def count(n: float) -> str:
    """Three or four digits and a letter: 12, 1,234, 56.7k, 8.9M."""
    for limit, divisor, letter in ((1e4, 1, ""), (1e6, 1e3, "k"), (1e9, 1e6, "M"), (float("inf"), 1e9, "G")):
        if n < limit:
            return f"{n / divisor:,.0f}" if divisor == 1 and (n >= 100 or n == int(n)) else f"{n / divisor:.1f}{letter}"
    return str(n)


def duration(ns: float) -> str:
    """As people say it: 850ns, 12.3us, 4.5ms, 1.2s, 3m20s, 5h02m."""
    if ns <= 0:
        return "-"
    for limit, divisor, unit in ((1e3, 1, "ns"), (1e6, 1e3, "us"), (1e9, 1e6, "ms"), (60e9, 1e9, "s")):
        if ns < limit:
            return f"{ns / divisor:.0f}{unit}" if divisor == 1 or ns / divisor >= 100 else f"{ns / divisor:.1f}{unit}"
    seconds = int(ns / 1e9)
    if seconds < 3600:
        return f"{seconds // 60}m{seconds % 60:02d}s"
    return f"{seconds // 3600}h{seconds // 60 % 60:02d}m"


def size(nbytes: float) -> str:
    for unit in ("B", "KiB", "MiB"):
        if nbytes < 1024:
            return f"{nbytes:.0f}{unit}" if unit == "B" or nbytes >= 10 else f"{nbytes:.1f}{unit}"
        nbytes /= 1024
    return f"{nbytes:.1f}GiB"
