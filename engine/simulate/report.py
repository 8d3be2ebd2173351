"""The results of simulations, for people (tables and plots in the terminal), for tools (JSON) and for papers (PNG)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from importlib import import_module
from itertools import groupby
from math import floor, log10
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from catalog.config.units import format_duration, format_size
from catalog.errors import AuroraError
from catalog.readings import plain
from engine.simulate.experiment import Experiment, ExperimentRun, knee
from engine.simulate.sparkline import sparkline
from engine.simulate.uncertainty import COST_ERROR, MedianRange

if TYPE_CHECKING:
    from engine.simulate.check import Comparison

WIDTH, HEIGHT = 64, 12
OUTPUTS_SHOWN = 8
RANGES_SHOWN = 4  # outputs of a run: those that may be off most
MARKS = "ox+*#@%&$=abcdefghijklmn"


class PlotError(AuroraError):
    """A plot cannot be drawn or written."""


class LoadsError(ValueError):
    """A range of loads goes down."""


def by_policy(runs: Sequence[ExperimentRun]) -> dict[str, list[ExperimentRun]]:
    found: dict[str, list[ExperimentRun]] = {}
    for run in runs:
        found.setdefault(run.policy, []).append(run)
    return found


def as_json(
    experiment: Experiment, runs: Sequence[ExperimentRun], ranges: Sequence[MedianRange] = ()
) -> dict[str, Any]:
    """Return plain data; the same experiment gives the same bytes."""
    held = {name: knee(rows) for name, rows in by_policy(runs).items()}
    return {
        "seed": experiment.seed,
        "arrivals": "trace" if experiment.trace else experiment.process,
        "duration_s": experiment.duration_ns / 1e9,
        "workers": experiment.workers,
        "unit": experiment.settings.unit,
        "traversal": experiment.settings.traversal,
        "knee": {name: {"held": last, "lost": first} for name, (last, first) in held.items()},
        "runs": [{**plain(run), "outputs": {name: plain(q) for name, q in run.outputs}} for run in runs],
        "cost_error": COST_ERROR,
        "p50_ranges": [plain(found) for found in ranges],
    }


HEAD = (
    "load", "tuples/s", "mean", "p50", "p99", "max", "utility", "slowdown", "worst", "l2", "missed", "expired",
    "queues", "most", "overhead", "sched", "stor", "work",
)  # fmt: skip
"""Slowdown as mean, worst and l2 norm; expired: tuples dropped on arcs because they were too late for every output;
queues as mean and most; overhead as a whole and by part of the engine (figure 9 of P0)."""


def row(run: ExperimentRun) -> tuple[str, ...]:
    """Return the cells of one run, under ``HEAD``."""
    q = run.overall
    return (
        f"{run.load:g}",
        f"{run.rate_per_s:,.0f}",
        format_duration(q.mean_ns),
        format_duration(q.p50_ns),
        format_duration(q.p99_ns),
        format_duration(q.max_ns),
        f"{q.utility:.3f}",
        f"{q.slowdown_mean:.3g}",
        f"{q.slowdown_max:.3g}",
        f"{q.slowdown_l2:.3g}",
        f"{q.sdmr:.1%}",
        f"{run.expired:,}",
        format_size(round(run.memory.mean_bytes)),
        format_size(round(run.memory.peak_bytes)),
        f"{1 - run.overhead.boxes:.0%}",
        *(f"{share:.0%}" for share in run.overhead[1:4]),
    )


def memory_lines(runs: Sequence[ExperimentRun]) -> list[str]:
    """Draw the bytes on queues over time, on one scale for all of these runs."""
    most = max((nbytes for run in runs for _, nbytes in run.memory.samples), default=0.0)
    if most <= 0:
        return []
    lines = [f"queue memory over time, the highest is {format_size(round(most))}"]
    return lines + [f"{run.load:>6g} |{sparkline([b for _, b in run.memory.samples], most)}|" for run in runs]


def choice_lines(runs: Sequence[ExperimentRun]) -> list[str]:
    """List the choices of the policy auto, and why it made them."""
    return [f"{run.load:>6g} {c.at_ns / 1e9:.1f}s {c.policy}: {c.reason}" for run in runs for c in run.choices]


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Return lines with right-aligned columns."""
    widths = [max(len(line[i]) for line in [head, *rows]) for i in range(len(head))]
    return ["  ".join(f"{cell:>{w}}" for cell, w in zip(line, widths, strict=True)) for line in [head, *rows]]


def output_tables(runs: Sequence[ExperimentRun]) -> list[str]:
    """Return a table for each output, the worst outputs first: every policy at every load."""
    lines: list[str] = []
    names = [name for name, _ in runs[0].outputs] if runs else []
    worst = sorted(range(len(names)), key=lambda i: (min(run.outputs[i][1].utility for run in runs), i))
    for i in worst[:OUTPUTS_SHOWN]:
        name = names[i]
        rows = []
        for run in runs:
            q = run.outputs[i][1]
            times = (q.mean_ns, q.p50_ns, q.p99_ns, q.max_ns)
            slow = (f"{n:.3g}" for n in (q.slowdown_mean, q.slowdown_max, q.slowdown_l2))
            shown = (*map(format_duration, times), f"{q.utility:.3f}", *slow, f"{q.sdmr:.1%}")
            rows.append((run.policy, f"{run.load:g}", f"{q.tuples:,}", *shown))
        head = ("policy", "load", "tuples", "mean", "p50", "p99", "max", "utility", "slowdown", "worst", "l2", "missed")
        lines += ["", f"output {name}", *table(head, rows)]
    if len(names) > OUTPUTS_SHOWN:
        lines += ["", f"{len(names) - OUTPUTS_SHOWN} more outputs did no worse; --json has them all"]
    return lines


def knee_line(name: str, rows: Sequence[ExperimentRun]) -> str:
    held, lost = knee(rows)
    if lost is None:
        return f"{name}: no knee up to load {rows[-1].load:g}"
    if held is None:
        return f"{name}: overloaded at every load from {lost:g} on"
    return f"{name}: the knee is between load {held:g} and {lost:g}"


def plot(title: str, curves: dict[str, list[tuple[float, float]]], *, log: bool) -> list[str]:
    """Draw curves in characters, one mark for each policy. ``log``: y is on a logarithmic scale."""
    points = [p for curve in curves.values() for p in curve if not log or p[1] > 0]
    if not points:
        return []
    xs, ys = [p[0] for p in points], [log10(p[1]) if log else p[1] for p in points]
    low_x, high_x, low_y, high_y = min(xs), max(xs), min(ys), max(ys)
    if low_y == high_y:
        return ["", f"{title}: {format_duration(10**low_y) if log else f'{low_y:.3g}'} throughout"]
    cells = [[" "] * WIDTH for _ in range(HEIGHT)]
    for mark, curve in zip(MARKS, curves.values(), strict=False):
        for x, y in curve:
            if log and y <= 0:
                continue
            column = round((x - low_x) / max(high_x - low_x, 1e-12) * (WIDTH - 1))
            line = round(((log10(y) if log else y) - low_y) / max(high_y - low_y, 1e-12) * (HEIGHT - 1))
            cells[HEIGHT - 1 - line][column] = mark
    ends = [format_duration(10**v) if log else f"{v:.3g}" for v in (high_y, low_y)]
    width = max(map(len, ends))
    lines = ["", title + "   " + "  ".join(f"{m} {n}" for m, n in zip(MARKS, curves, strict=False))]
    for i, cell_row in enumerate(cells):
        label = ends[0] if i == 0 else ends[1] if i == HEIGHT - 1 else ""
        lines.append(f"{label:>{width}} |{''.join(cell_row).rstrip()}")
    lines.append(f"{'':>{width}} +{'-' * WIDTH}")
    lines.append(f"{'':>{width}}  {f'{low_x:g}':<{WIDTH - 8}}{f'load {high_x:g}':>8}")
    return lines


def range_lines(ranges: Sequence[MedianRange]) -> list[str]:
    """Say how far the medians near the knee may be off."""
    if not ranges:
        return []
    rows: list[tuple[str, ...]] = []
    for (policy, load), group in groupby(ranges, key=lambda r: (r.policy, r.load)):
        most = sorted(group, key=lambda r: r.low_ns / max(r.high_ns, 1))[:RANGES_SHOWN]
        rows += [(policy, f"{load:g}", r.output, *map(format_duration, (r.low_ns, r.p50_ns, r.high_ns))) for r in most]
    head = ("policy", "load", "output", "lowest p50", "p50", "highest p50")
    return ["", f"near the knee: p50 if all costs are off by up to {COST_ERROR:.0%}", *table(head, rows)]


def text(runs: Sequence[ExperimentRun], ranges: Sequence[MedianRange] = (), *, outputs: bool = True) -> str:
    """Return the whole report as text: a table for each policy, the plots, the outputs, the knee."""
    lines: list[str] = []
    policies = by_policy(runs)
    for name, rows in policies.items():
        lines += [f"policy {name}", *table(HEAD, [row(r) for r in rows]), *memory_lines(rows), *choice_lines(rows), ""]
    if any(len(rows) > 1 for rows in policies.values()):
        latency = {n: [(r.load, r.overall.p50_ns) for r in rows] for n, rows in policies.items()}
        utility = {n: [(r.load, r.overall.utility) for r in rows] for n, rows in policies.items()}
        lines += plot("p50 latency over load", latency, log=True) + plot("utility over load", utility, log=False)
    if outputs:
        lines += output_tables(runs) + range_lines(ranges)
    lines += ["", *(knee_line(name, rows) for name, rows in policies.items())]
    return "\n".join(lines)


CHECK_LEGEND = (
    "p50: from the stamp of a read until its tuples are delivered. all: the largest error of an output.",
    "fed in time: the share of reads that were fed when due. other cores: cores that other processes used meanwhile.",
    "overheads: the engine's cost beside its boxes, as measured around the runs (`engine/simulate/overheads.py`).",
)


def comparison_text(found: Sequence[Comparison]) -> str:
    """Return the engine and the simulation side by side, by output; the last line of a load is for all outputs."""
    head = ("policy", "load", "output", "tuples", "p50 engine", "p50 simulated", "off by", "utility engine",
            "utility simulated", "fed in time", "other cores")  # fmt: skip
    rows: list[tuple[str, ...]] = []
    for c in found:
        where = (c.policy, f"{c.load:g}")
        for pair in c.every_output:
            p50s = (format_duration(pair.engine_ns), format_duration(pair.simulated_ns), f"{pair.error:.0%}")
            p50s = p50s if pair in c.outputs else ("too few", "-", "-")
            rows.append((*where, pair.name, f"{pair.tuples:,}", *p50s, "", "", "", ""))
        others = "-" if c.others_cores is None else f"{c.others_cores:.2f}"
        utilities = (f"{c.engine_utility:.3f}", f"{c.simulated_utility:.3f}")
        rows.append((*where, "all", "", "", "", f"{c.p50_error:.0%}", *utilities, f"{c.fed_ratio:.0%}", others))
    return "\n".join([*map(_overheads_line, found), *table(head, rows), *CHECK_LEGEND])


def _overheads_line(found: Comparison) -> str:
    costs = asdict(found.overheads).items()
    middle = {name: median(v) if isinstance(v, tuple) else v for name, v in costs if name.endswith("_ns")}
    parts = [f"{name[:-3]} {value / 1e3:.0f}" for name, value in middle.items()]
    return f"overheads in us, {found.policy} at {found.load:g}: {', '.join(parts)}"


def draw_png(path: Path, runs: Sequence[ExperimentRun]) -> None:
    """Draw latency, utility, queue memory and missed deadlines over load into a PNG file."""
    try:
        agg: Any = import_module("matplotlib.backends.backend_agg")
        figures: Any = import_module("matplotlib.figure")
    except ImportError as error:
        raise PlotError("a PNG needs matplotlib: pip install 'aurorad[plots]'") from error
    figure = figures.Figure(figsize=(10, 7), layout="constrained")
    agg.FigureCanvasAgg(figure)
    axes = figure.subplots(2, 2)
    panels: tuple[tuple[str, Callable[[ExperimentRun], float], bool], ...] = (
        ("p50 (solid) and p99 latency in s", lambda r: r.overall.p50_ns / 1e9, True),
        ("utility", lambda r: r.overall.utility, False),
        ("mean bytes in queues", lambda r: r.memory.mean_bytes, True),
        ("share of missed deadlines", lambda r: r.overall.sdmr, False),
    )
    for axis, (title, value, log) in zip(axes.flat, panels, strict=True):
        for number, (name, rows) in enumerate(by_policy(runs).items()):
            axis.plot([r.load for r in rows], [value(r) for r in rows], marker="o", color=f"C{number}", label=name)
        axis.set(title=title, xlabel="load")
        if not log:
            axis.set_ylim(-0.03, 1.03)
        if log and any(value(r) > 0 for r in runs):
            axis.set_yscale("log")
        axis.grid(alpha=0.3)
    for number, (name, rows) in enumerate(by_policy(runs).items()):
        p99_s = [r.overall.p99_ns / 1e9 for r in rows]
        axes[0, 0].plot([r.load for r in rows], p99_s, linestyle=":", color=f"C{number}", label=f"{name} p99")
    axes[0, 0].legend()
    try:
        figure.savefig(path, format="png", metadata={"Software": None})
    except OSError as error:
        raise PlotError(f"{path} cannot be written: {error.strerror or error}") from error


def parse_loads(text_: str) -> tuple[float, ...]:
    """Parse ``0.8``, ``0.5,1,2``, ``0.5..3`` (a dozen steps) or ``0.5..3:0.5``. Raises ValueError."""
    try:
        if ".." not in text_:
            loads = tuple(float(part) for part in text_.split(","))
        else:
            span, _, step_text = text_.partition(":")
            low, high = (float(part) for part in span.split(".."))
            step = float(step_text) if step_text else nice_step((high - low) / 10)
            if low > high > 0:
                raise LoadsError(f"{text_!r} is not a load, the range goes down: write {high:g}..{low:g}")
            if not 0 < low <= high or step <= 0 or (high - low) / step > 1_000:
                raise ValueError(text_)
            loads = tuple(round(low + i * step, 9) for i in range(floor((high - low) / step + 1e-9) + 1))
            loads = loads if abs(loads[-1] - high) < 1e-9 else (*loads, high)
    except LoadsError:
        raise
    except ValueError:
        raise ValueError(f"{text_!r} is not a load: write 0.8, or 0.5,1,2, or 0.5..3, or 0.5..3:0.5") from None
    if not all(0 < load <= 1_000 for load in loads):
        raise ValueError(f"a load is a multiple of the knee, above 0 and at most 1000, such as 0.8; {text_} is not")
    return tuple(sorted(set(loads)))


def nice_step(step: float) -> float:
    """Round up to 1, 2, 2.5 or 5 times a power of ten."""
    if step <= 0:
        return 1.0
    size = 10.0 ** floor(log10(step))
    return next(size * m for m in (1, 2, 2.5, 5, 10) if size * m >= step * (1 - 1e-9))
