"""What ``aurorad top`` and the demo show: a table of a running daemon, or one line for a log.

A drawing is a pure function of the answer of ``/api/v1/stats``, so that the demo draws without a second process. rich
is imported inside the functions: other commands would pay for it too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from engine.cli.views.fitted_table import FittedTable
from engine.cli.views.kept import history_top_lines
from engine.cli.views.numbers import cost, count, duration, size
from engine.cli.views.spark_jobs import spark_lines
from engine.cli.views.wrapped_parts import WrappedParts
from engine.simulate.sparkline import sparkline

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.text import Text

Stats = Mapping[str, Any]

FIXED_LINES = 16  # of the screen beside the rows: header, titles, rules
MEMORY_SAMPLES = 30  # in the sparkline of the header
EMPTY = "no network runs yet: begin on the page of this daemon, or with `aurorad apply FILE`"


def rows_left(stats: Stats, height: int) -> int:
    """Compute how many boxes fit on a screen below the outputs."""
    outputs = len(stats["outputs"])
    return max(
        3, height - FIXED_LINES - outputs - (outputs > 1) - len(stats["streams"]) - len(stats.get("history", ()))
    )


def draw(stats: Stats, boxes: int, queued_bytes: Sequence[float] = ()) -> RenderableType:
    """Draw the header, outputs, streams, and as many ``boxes`` as fit: the longest queues first, then the busiest.

    ``queued_bytes`` are the bytes in queues at the last updates, for the sparkline.
    """
    from rich.console import Group
    from rich.text import Text

    if not stats["streams"] and not stats["outputs"]:
        return Group(_header(stats), Text(EMPTY, "dim"))
    return Group(
        _header(stats),
        _second_line(stats, queued_bytes),
        *map(Text, spark_lines(stats)),
        _outputs(stats),
        _streams(stats),
        *map(Text, history_top_lines(stats.get("history", ()))),
        _boxes(stats, boxes),
    )


def one_line(stats: Stats) -> str:
    """Write what fits in a log line."""
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
            f"p99 {duration(latency['p99_ns'])} delivered {o['share_delivered']:.0%} utility {utility(o):.2f}"
        )
    return " | ".join([*parts, *spark_lines(stats)])


def _header(stats: Stats) -> WrappedParts:
    from rich.text import Text

    engine, scheduler = stats["engine"], stats["scheduler"]
    load = engine["load_ratio"]
    workers = " ".join(f"{w['busy_ratio']:.0%}" for w in stats["workers"])
    parts = [
        Text.assemble(("aurorad ", "bold"), engine["version"]),
        Text.assemble("utility ", (total_utility(stats), "bold")),
        Text.assemble("load ", (f"{load:.0%}", "bold red" if load > 1 else "bold")),
        Text.assemble("memory ", (f"{size(engine['memory_used'])} of {size(engine['memory_budget'])}", "bold")),
        Text.assemble("policy ", (f"{scheduler['policy']} {scheduler['unit']}".strip() or "-", "bold")),
        Text.assemble("up ", (duration(engine["uptime_ns"]), "bold")),
    ]
    if workers:
        parts.append(Text(f"workers busy {workers}"))
    if shedding := shed_line(stats):
        parts.append(Text(shedding, "bold yellow"))
    if lost := sum(stats["conservation_residual"].values()):
        parts.append(Text(f"unaccounted for: {lost} tuples", "bold red"))
    return WrappedParts(parts)


def shed_line(stats: Stats) -> str:
    """Name the shed level and the drops by reason since the start; nothing when nothing was ever dropped."""
    dropped = stats["totals"]["dropped"]
    level = stats["engine"]["shed_level"]
    parts = [f"shedding {level:.2f}"] if level else []
    if dropped:
        parts.append("dropped " + ", ".join(f"{count(n)} {reason}" for reason, n in sorted(dropped.items())))
    return "   ".join(parts)


def total_utility(stats: Stats) -> str:
    """Write the sum of the outputs' utilities, as the page does."""
    totals = stats["totals"]
    return f"{totals['utility']:.3f} of {totals['outputs']}" if totals["outputs"] else "-"


def _second_line(stats: Stats, queued_bytes: Sequence[float]) -> Text:
    from rich.text import Text

    parts = [chosen(stats["scheduler"]), overhead(stats), resources(stats)]
    if len(queued_bytes) > 1:
        most = max(queued_bytes)
        parts.append(f"queues {sparkline(list(queued_bytes), most, MEMORY_SAMPLES)} most {size(most)}")
    return Text("   ".join(part for part in parts if part), "dim")


def _outputs(stats: Stats) -> FittedTable:
    from rich.text import Text

    table = FittedTable(
        "output", "rate/s", "delivered", "dropped", "utility", "p50", "p99", "p99.9", "max", "mean", "missed",
        "slowdown", "worst", "l2", "waiting", "readers",
        spare=("l2", "worst", "p99.9", "mean", "slowdown", "max", "missed", "waiting", "readers", "p50", "rate/s",
               "dropped"),
    )  # fmt: skip
    for o in stats["outputs"]:
        latency, slowdown = o["latency"], o["slowdown"]
        u = utility(o)
        table.add_row(
            Text(o["name"], "bold"), count(o["rate_per_s"]), share(o["share_delivered"]), count(dropped(o)),
            Text(f"{u:.3f}", "green" if u > 0.9 else "yellow" if u > 0.5 else "red"),
            *(duration(latency[key]) for key in ("p50_ns", "p99_ns", "p999_ns", "max_ns", "mean_ns")),
            f"{o['sdmr']:.1%}" if o["deadline_ns"] else "-",
            *(count(slowdown[key]) for key in ("mean", "max", "l2")), count(o["queue_tuples"]),
            str(o["readers"] or "none"),
        )  # fmt: skip
    if len(stats["outputs"]) > 1:
        table.add_row(*overall(stats), style="dim")
    return table


def dropped(place: Stats) -> int:
    """Count the tuples dropped on the arcs of an output or stream, and those that readers of the output missed."""
    return int(sum(place["shed"].values())) + int(place.get("dropped", 0))


def resources(stats: Stats) -> str:
    """Write the load of each resource that has any."""
    loads = [f"{r['name']} {r['load_ratio']:.0%}" for r in stats["resources"] if r["load_ratio"] >= 0.005]
    return f"load by resource: {', '.join(loads)}" if loads else ""


def share(ratio: float) -> str:
    """Write a share so that 100% means all."""
    return "100%" if ratio >= 1 else f"{min(ratio, 0.999):.1%}"


def _streams(stats: Stats) -> FittedTable:
    from rich.text import Text

    table = FittedTable("stream", "rate/s", "received", "refused", "dropped", "senders", "", left=("",))
    for s in stats["streams"]:
        table.add_row(
            Text(s["name"], "bold"), count(s["rate_per_s"]), count(s["received"]), count(sum(s["rejected"].values())),
            count(dropped(s)), count(s["connections"]), _stream_state(s),
        )  # fmt: skip
    return table


def _stream_state(stream: Mapping[str, Any]) -> str:
    if stream["paused"]:
        return "paused: no room"
    decoded = stream["edge"]["share"]
    return f"decodes {decoded:.0%}" if decoded < 1 else ""


def overall(stats: Stats) -> list[str]:
    """Summarise all outputs in one row: the mean of their utilities, and of their delays by tuple. Quantiles cannot be
    added, so the row has none; slowdown counts since the start, as in the rows above. A drop on an arc that leads to
    several outputs counts once."""
    outputs = stats["outputs"]
    tuples = [o["latency"]["window_tuples"] for o in outputs]
    ever = [o["emitted"] for o in outputs]

    def mean(values: Sequence[float], weights: Sequence[int]) -> float:
        return sum(v * w for v, w in zip(values, weights, strict=True)) / max(1, sum(weights))

    due = [(o["sdmr"], n) for o, n in zip(outputs, tuples, strict=True) if o["deadline_ns"]]
    totals = stats["totals"]
    useful, lost = totals["utility"] / totals["outputs"], totals["dropped_tuples"]
    return [
        "(all)", count(sum(o["rate_per_s"] for o in outputs)), "", count(lost), f"{useful:.3f}", "", "", "",
        duration(max(o["latency"]["max_ns"] for o in outputs)),
        duration(mean([o["latency"]["mean_ns"] for o in outputs], tuples)),
        f"{mean([s for s, _ in due], [n for _, n in due]):.1%}" if due else "-",
        count(mean([o["slowdown"]["mean"] for o in outputs], ever)), count(max(o["slowdown"]["max"] for o in outputs)),
        count(sum(o["slowdown"]["l2"] ** 2 for o in outputs) ** 0.5), "", "",
    ]  # fmt: skip


def chosen(scheduler: Stats) -> str:
    """Name the policy that `auto` has chosen and why; nothing where the network file names a policy."""
    if scheduler.get("asked") != "auto":
        return ""
    return f"auto chose {scheduler['policy']} ({scheduler['changes']} changes): {scheduler['reason']}"


def overhead(stats: Stats) -> str:
    """Name the shares of busy time outside the boxes since the start (figure 9 of P0)."""
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
        "box", "kind", "in/s", "cost/tuple", "cost/call", "train", "selectivity", "busy", "waiting", "keys",
        "state", spare=("keys", "cost/call", "train", "selectivity", "kind", "state"), left=("kind",),
    )  # fmt: skip
    for b in shown:
        table.add_row(
            Text(b["name"], "bold"), b["kind"], count(b["rate_per_s"]), cost(b["mean_tuple_ns"]),
            cost(b["mean_call_ns"]), count(b["mean_call_tuples"]), f"{b['selectivity']:.3f}",
            f"{b['busy_ratio']:.0%}", count(b["queue_tuples"]), *_remembered(b),
        )  # fmt: skip
    if len(shown) == len(boxes):
        return table
    return Group(table, Text(f"and {len(boxes) - len(shown)} boxes with shorter queues", "dim"))


def _remembered(box: Stats) -> tuple[str, str]:
    """Write the keys and the bytes of a box's state; nothing for a box without state."""
    keys, held = box["state_keys"], box["state_bytes"]
    return count(keys) if keys else "", size(held) if held else ""


def utility(output: Stats) -> float:
    """Take the worse of latency and loss."""
    return float(output["utility"]["worst"])
