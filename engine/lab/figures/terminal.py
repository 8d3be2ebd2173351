"""A figure in the terminal: its tables, the claim, the verdict."""

from __future__ import annotations

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from engine.lab.figures.figure import HOLDS, PAPERS, SHAPE, Panel
from engine.lab.figures.record import FigureRecord

COLOURS = {HOLDS: "green", SHAPE: "yellow"}


def number(value: float | None) -> str:
    """Write four digits, which is all that a measurement can carry."""
    if value is None:
        return ""
    return f"{value:,.0f}" if abs(value) >= 1e4 else f"{value:.4g}"


def rows(panel: Panel) -> list[list[str]]:
    """Make the head and the lines of a table: one column a curve, one line an x. Missing points are empty."""
    curves = {name: dict(curve) for name, curve in panel.curves.items()}
    xs = sorted({x for curve in curves.values() for x in curve})
    named = {float(i): tick for i, tick in enumerate(panel.ticks)}
    lines = [[named.get(x, number(x)), *(number(curve.get(x)) for curve in curves.values())] for x in xs]
    return [[panel.x, *curves], *lines]


def show_record(console: Console, record: FigureRecord) -> None:
    figure, outcome = record.figure, record.outcome
    paper = PAPERS[record.name.split(".")[0]]
    quick = ", a quick look" if record.quick else ""
    console.print(f"\n[bold]{record.name}  {escape(figure.title)}[/bold]  ({record.engine} engine{quick})")
    console.print(f"[dim]{escape(paper)}[/dim]")
    for panel in record.measured.panels:
        head, *lines = rows(panel)
        table = Table(header_style="bold", pad_edge=False, title=escape(panel.title or panel.y), title_justify="left")
        for name in head:
            table.add_column(escape(name), justify="right")
        for line in lines:
            table.add_row(*map(escape, line))
        console.print(table)
    for name, value in record.measured.numbers.items():
        console.print(f"{escape(name)}: {number(value)}", highlight=False)
    for point in figure.paper:
        word = "near" if outcome.is_near[point.what] else "not near"
        ours = outcome.ours[point.what]
        console.print(
            f"{escape(point.what)}: the paper {point.value:g}, ours {escape(str(ours))}: {word}", highlight=False
        )
    colour = COLOURS.get(outcome.word, "red")
    console.print(f"[bold]the paper:[/bold] {escape(figure.claim)}")
    console.print(
        f"[bold]ours:[/bold]      [{colour}]{outcome.word}[/{colour}] in {outcome.held} of {outcome.variations} runs "
        f"({outcome.seeds_held} of {outcome.seeds} seeds at our settings): {escape(record.why)}"
    )
    if figure.erratum:
        console.print(f"[bold]erratum:[/bold]   {escape(figure.erratum)}")
