"""What ``aurorad explain OUTPUT`` shows: who is to blame, and the slowest tuple's way as a line of time.

Drawn from what ``/api/v1/explain`` answers. rich is imported where it draws.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table
    from rich.text import Text

Answer = Mapping[str, Any]

WIDTH = 60
KINDS = {
    "admit": ("admission", "·", "dim"),
    "wait": ("waited for its turn at", "░", "yellow"),
    "worker": ("waited for a worker before", "▒", "magenta"),
    "service": ("served by", "█", "green"),
    "plan": ("beside other work of its plan at", "▓", "cyan"),
    "held": ("held in the state of", "▚", "blue"),
}


def show_journeys(answer: Answer) -> None:
    import sys

    from rich.console import Console

    Console(width=None if sys.stdout.isatty() else 120, highlight=False).print(draw(answer))


def draw(answer: Answer) -> RenderableType:
    from rich.console import Group
    from rich.text import Text

    if not answer["sampled"]:
        told = f" with {answer['where']}" if answer["where"] else ""
        return Text(
            f"no sampled tuple of {answer['output']}{told} came out in the last {answer['window_s']:.0f} s "
            "(only some tuples a second are followed: send it again, or ask for less)"
        )
    latency, journeys = answer["latency"], answer["journeys"]
    head = Text.assemble(
        (answer["output"], "bold"),
        f": {answer['sampled']} sampled tuple{'s' * (answer['sampled'] > 1)} in the last {answer['window_s']:.0f} s, "
        f"latency p50 {ns(latency['p50_ns'])}, p99 {ns(latency['p99_ns'])}, most {ns(latency['max_ns'])}; policy "
        f"{answer['policy']}\n",
    )
    parts: list[RenderableType] = [head, _blame(answer["blame"], len(journeys))]
    for number, journey in enumerate(journeys, 1):
        parts += [Text(), _journey(number, journey)]
    return Group(*parts)


def _blame(rows: list[Mapping[str, Any]], journeys: int) -> Table:
    from rich.table import Table

    title = f"where the time of the slowest {journeys} went" if journeys > 1 else "where the time of the slowest went"
    table = Table(title=title, title_justify="left", box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for name, justify in (("box", "left"), ("share", "right"), ("", "left")):
        table.add_column(name, justify=justify)  # type: ignore[arg-type]
    for name in ("served", "others waited for it", "held"):
        table.add_column(name, justify="right")
    for row in rows[:12]:
        table.add_row(
            row["box"], f"{row['share']:.1%}", "█" * max(1, round(row["share"] * 20)),
            ns(row["service_ns"]), ns(row["waited_for_ns"]), ns(row["held_ns"]),
        )  # fmt: skip
    return table


def _journey(number: int, journey: Mapping[str, Any]) -> Text:
    from rich.text import Text

    text = Text()
    row = ", ".join(f"{name}={value}" for name, value in journey["row"].items())
    text.append(f"{number}. {ns(journey['latency_ns'])} from {journey['stream']}", "bold")
    text.append(f"  {row[:200]}\n", "dim")
    text.append("   ")
    for part in journey["parts"]:
        _, sign, style = KINDS[part["kind"]]
        text.append(sign * round(WIDTH * part["ns"] / max(1, journey["latency_ns"])), style)
    for part in sorted(journey["parts"], key=lambda p: -p["ns"])[:8]:
        what, sign, style = KINDS[part["kind"]]
        text.append(f"\n   {ns(part['ns']):>9}  ")
        text.append(f"{sign} ", style)
        text.append(f"{what} {part['box']}" if part["box"] else what.removesuffix(" at"))
    for hop in journey["hops"]:
        text.append(f"\n   {_hop(hop)}", "dim")
    return text


def _hop(hop: Mapping[str, Any]) -> str:
    said = f"on {hop['arc']}: taken in a train of {hop['train_tuples']:,}"
    if hop["priority"]:
        said += f" at priority ({hop['priority']})"
    if not (times := hop["decisions_in_favour_of_others"]):
        return f"{said}, at the first decision"
    by = ", ".join(_preferred(p, hop["box"]) for p in hop["passed_over_by"][:4])
    return f"{said}, after {times} decision{'s' * (times > 1)} in favour of {by}"


def _preferred(other: Mapping[str, Any], own: str) -> str:
    priority = f" ({other['priority']})" if other["priority"] else ""
    who = "what came before it" if other["box"] == own else other["box"]
    return f"{who} {other['times']}x{priority}"


def ns(value: float) -> str:
    """A duration with three digits."""
    for unit, scale in (("s", 1e9), ("ms", 1e6), ("us", 1e3)):
        if value >= scale:
            return f"{value / scale:.3g} {unit}"
    return f"{value:.0f} ns" if value else "-"
