"""What ``aurorad explain OUTPUT`` prints: which box took how much of the time, and a time line for each slow tuple.

The drawing is a pure function of the answer of ``/api/v1/explain``. rich is imported where it draws.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from engine.cli.views.numbers import spaced_duration

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table
    from rich.text import Text

Answer = Mapping[str, Any]

PLAIN_WIDTH = 120
LINE_WIDTH = 60  # of a time line
WORDS = (
    "served: time inside the box. made others wait: the box kept the workers busy while these tuples waited. held: "
    "kept in its state, such as a window. priority: the key by which the policy chooses, the smallest first; a time "
    "in it counts from now. A train is the tuples of one call."
)
KINDS = {
    "admit": ("from the socket to the first queue", "·", "dim"),
    "wait": ("waited for its turn at", "░", "yellow"),
    "worker": ("waited for a worker before", "▒", "magenta"),
    "service": ("served by", "█", "green"),
    "plan": ("beside other work of its plan at", "▓", "cyan"),
    "held": ("held in the state of", "▚", "blue"),
}


def show_journeys(answer: Answer) -> None:
    from rich.console import Console

    Console(width=None if sys.stdout.isatty() else PLAIN_WIDTH, highlight=False).print(draw(answer))


def draw(answer: Answer) -> RenderableType:
    from rich.console import Group
    from rich.text import Text

    if not answer["sampled"]:
        condition = f" with {answer['where']}" if answer["where"] else ""
        return Text(
            f"no sampled tuple of {answer['output']}{condition} came out in {answer['window_s']:.0f} s "
            "(the daemon samples only some tuples: start again with --follow, then send the tuple)"
        )
    latency, journeys = answer["latency"], answer["journeys"]
    p50, p99, most = (spaced_duration(latency[key]) for key in ("p50_ns", "p99_ns", "max_ns"))
    head = Text.assemble(
        (answer["output"], "bold"),
        f": {answer['sampled']} sampled tuple{'s' * (answer['sampled'] > 1)} in the last {answer['window_s']:.0f} s, "
        f"latency p50 {p50}, p99 {p99}, most {most}; policy {answer['policy']}\n",
    )
    parts: list[RenderableType] = [head, _blame(answer["blame"], len(journeys))]
    for number, journey in enumerate(journeys, 1):
        parts += [Text(), _journey(number, journey)]
    return Group(*parts, Text(), Text(WORDS, "dim"))


def _blame(rows: list[Mapping[str, Any]], journeys: int) -> Table:
    from rich.table import Table

    title = (
        f"where the time of the slowest {journeys} tuples went"
        if journeys > 1
        else "where the time of the slowest tuple went"
    )
    table = Table(title=title, title_justify="left", box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for name, justify in (("box", "left"), ("share", "right"), ("", "left")):
        table.add_column(name, justify=justify)  # type: ignore[arg-type]
    for name in ("served", "made others wait", "held"):
        table.add_column(name, justify="right")
    for row in rows[:12]:
        table.add_row(
            row["box"], f"{row['share']:.1%}", "█" * max(1, round(row["share"] * 20)),
            spaced_duration(row["service_ns"]), spaced_duration(row["waited_for_ns"]), spaced_duration(row["held_ns"]),
        )  # fmt: skip
    return table


def _journey(number: int, journey: Mapping[str, Any]) -> Text:
    from rich.text import Text

    text = Text()
    row = ", ".join(f"{name}={value}" for name, value in journey["row"].items())
    text.append(f"{number}. {spaced_duration(journey['latency_ns'])} from {journey['stream']}", "bold")
    text.append(f"  {row[:200]}\n", "dim")
    text.append("   ")
    for part in journey["parts"]:
        _, sign, style = KINDS[part["kind"]]
        text.append(sign * round(LINE_WIDTH * part["ns"] / max(1, journey["latency_ns"])), style)
    for part in sorted(journey["parts"], key=lambda p: -p["ns"])[:8]:
        what, sign, style = KINDS[part["kind"]]
        text.append(f"\n   {spaced_duration(part['ns']):>9}  ")
        text.append(f"{sign} ", style)
        text.append(f"{what} {part['box']}" if part["box"] else what.removesuffix(" at"))
    for hop in journey["hops"]:
        text.append(f"\n   {_hop(hop)}", "dim")
    return text


def _hop(hop: Mapping[str, Any]) -> str:
    text = f"on {hop['arc']}: taken in a train of {hop['train_tuples']:,}"
    if hop["priority"]:
        text += f" at priority ({hop['priority']})"
    if not (times := hop["decisions_in_favour_of_others"]):
        return f"{text}, at the first decision"
    preferred = ", ".join(_preferred(p, hop["box"]) for p in hop["passed_over_by"][:4])
    return f"{text}, after {times} decision{'s' * (times > 1)} in favour of {preferred}"


def _preferred(other: Mapping[str, Any], own: str) -> str:
    priority = f" ({other['priority']})" if other["priority"] else ""
    name = "earlier tuples of its own box" if other["box"] == own else other["box"]
    return f"{name} {other['times']}x{priority}"
