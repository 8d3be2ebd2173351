"""A figure as a picture: PNG for files, SVG for the page. Needs matplotlib, the extra ``plots``."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from io import BytesIO
from typing import Any

from engine.lab.figures.figure import Panel, PaperPoint
from engine.lab.figures.record import FigureRecord
from engine.simulate.report import PlotError

COLOURS = ("#1f5fa8", "#d1495b", "#2a9d6f", "#e39a1f", "#7b4fa6", "#3aa6b9", "#8a5a44", "#c2569b", "#6b7280")
MARKERS = "osD^vPXd"
INK = "#111827"
WIDTH, HEIGHT = 5.4, 3.6  # inches, of a panel
NARROW = 60.0  # a logarithmic range with fewer than two powers of ten in it
MISSING = "plots need matplotlib: pip install 'aurorad[plots]' (tables and verdicts need nothing)"


def picture(record: FigureRecord, format: str = "png", dpi: int = 110) -> bytes:
    """Draw the panels of a record. Raises PlotError if matplotlib is not installed."""
    try:
        agg: Any = import_module("matplotlib.backends.backend_agg")
        figures: Any = import_module("matplotlib.figure")
        matplotlib: Any = import_module("matplotlib")
    except ImportError as error:
        raise PlotError(MISSING) from error
    panels = record.measured.panels
    columns = min(len(panels), 2)
    lines = -(-len(panels) // columns)
    with matplotlib.rc_context({"font.size": 9, "svg.hashsalt": "aurorad", "axes.titlesize": 9.5}):
        figure = figures.Figure(figsize=(WIDTH * columns, HEIGHT * lines), layout="constrained")
        agg.FigureCanvasAgg(figure)
        axes = figure.subplots(lines, columns, squeeze=False)
        for number, (axis, panel) in enumerate(zip(axes.flat, panels, strict=False)):
            _panel(axis, panel, [p for p in record.figure.paper if p.panel == number])
        for axis in list(axes.flat)[len(panels) :]:
            axis.set_visible(False)
        out = BytesIO()
        metadata = {"Software": None} if format == "png" else {"Date": None, "Creator": None}
        figure.savefig(out, format=format, dpi=dpi, metadata=metadata)
    return out.getvalue()


def _panel(axis: Any, panel: Panel, paper: Sequence[PaperPoint]) -> None:
    if panel.kind == "lines":
        _lines(axis, panel)
    else:
        _bars(axis, panel)
    _printed(axis, paper)
    axis.set_xlabel(panel.x)
    axis.set_ylabel(panel.y)
    if panel.title:
        axis.set_title(panel.title, loc="left", fontweight="bold", pad=6 if panel.kind == "lines" else 20)
    if panel.log_x:
        axis.set_xscale("log")
        _plain_ticks(axis.xaxis, [x for curve in panel.curves.values() for x, _ in curve])
    if panel.log_y:
        axis.set_yscale("log")
        _plain_ticks(axis.yaxis, [y for curve in panel.curves.values() for _, y in curve])
    elif all(y >= 0 for curve in panel.curves.values() for _, y in curve):
        axis.set_ylim(bottom=0)
    axis.grid(axis="y", alpha=0.25)
    axis.spines[["top", "right"]].set_visible(False)
    if len(panel.curves) + len(paper) > 1:
        above = {"loc": "lower center", "bbox_to_anchor": (0.5, 1.0), "ncols": len(panel.curves)}
        axis.legend(frameon=False, fontsize=8, **({} if panel.kind == "lines" else above))


def _printed(axis: Any, paper: Sequence[PaperPoint]) -> None:
    """Draw the numbers that the paper prints: a star, a level or a place on the x axis."""
    for point in paper:
        label = f"the paper: {point.what}, {point.value:g}"
        if point.is_x:
            axis.axvline(point.value, color=INK, linewidth=0.9, linestyle=":", label=label, zorder=1)
        elif point.x is None:
            axis.axhline(point.value, color=INK, linewidth=0.9, linestyle=":", label=label, zorder=1)
        else:
            axis.plot(
                [point.x], [point.value], "*", markersize=13, color="none", markeredgecolor=INK, label=label, zorder=5
            )


def _plain_ticks(axis: Any, values: list[float]) -> None:
    """Label ticks 0.1, 1, 10 instead of powers; add minor ticks only if there would be hardly a tick otherwise."""
    ticker: Any = import_module("matplotlib.ticker")
    plain = ticker.FuncFormatter(lambda value, _: f"{value:,.0f}" if value >= 1_000 else f"{value:g}")
    positive = [v for v in values if v > 0] or [1.0]
    axis.set_major_formatter(plain)
    if max(positive) / min(positive) < NARROW:
        axis.set_minor_locator(ticker.LogLocator(subs=(2, 5)))
        axis.set_minor_formatter(plain)
    else:
        axis.set_minor_formatter(ticker.NullFormatter())


def _lines(axis: Any, panel: Panel) -> None:
    for i, (name, curve) in enumerate(panel.curves.items()):
        dashed = name in panel.dashed
        axis.plot(
            [x for x, _ in curve],
            [y for _, y in curve],
            color=COLOURS[i % len(COLOURS)],
            linestyle="--" if dashed else "-",
            marker="" if dashed or len(curve) > 40 else MARKERS[i % len(MARKERS)],
            markersize=4,
            linewidth=1.6,
            label=name,
        )
        if band := panel.bands.get(name):
            low, high = zip(*band, strict=True)
            axis.fill_between(
                [x for x, _ in curve], low, high, color=COLOURS[i % len(COLOURS)], alpha=0.15, linewidth=0
            )


def _bars(axis: Any, panel: Panel) -> None:
    """Draw bars side by side, or stacked."""
    stacked = panel.kind == "stacked"
    width = 0.6 if stacked else 0.8 / max(1, len(panel.curves))
    below = dict.fromkeys(range(len(panel.ticks)), 0.0)
    for i, (name, curve) in enumerate(panel.curves.items()):
        shift = 0.0 if stacked else (i - (len(panel.curves) - 1) / 2) * width
        bottom = [below[int(x)] if stacked else 0.0 for x, _ in curve]
        heights = [y for _, y in curve]
        axis.bar([x + shift for x, _ in curve], heights, width, bottom, color=COLOURS[i % len(COLOURS)], label=name)
        for x, y in curve:
            below[int(x)] += y
    axis.set_xticks(range(len(panel.ticks)), panel.ticks)
