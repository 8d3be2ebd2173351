"""The results of a benchmark: a table for people, one JSON object a line for tools."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any, Literal, TypedDict, Unpack

import orjson
from rich.console import Console
from rich.table import Table

RowsFrom = Literal["in memory", "from bytes", ""]
"""Where the engine's rows come from: trains that are decoded already, or bytes that the engine decodes and encodes."""


class Goal(TypedDict, total=False):
    """The goal of a ratio."""

    at_least: float | None
    at_most: float | None


@dataclass(frozen=True, slots=True)
class Result:
    """One measured figure. ``at_least`` and ``at_most`` are the goal of its ratio; only the table shows them."""

    bench: str
    case: str
    metric: str  # unit last
    value: float
    baseline: float | None = None
    at_least: float | None = None
    at_most: float | None = None
    extra: dict[str, Any] = field(default_factory=dict)  # figure, engine, verdict, why
    spread: tuple[float, float] | None = None  # the lowest and the highest ratio of a round
    rows_from: RowsFrom = ""

    @classmethod
    def of_rounds(
        cls,
        bench: str,
        case: str,
        metric: str,
        values: Sequence[float],
        baselines: Sequence[float],
        rows_from: RowsFrom,
        extra: dict[str, Any] | None = None,
        **goal: Unpack[Goal],
    ) -> Result:
        """Make a result of interleaved rounds: the medians of both sides, and how far the ratios of rounds scatter."""
        ratios = [value / baseline for value, baseline in zip(values, baselines, strict=True)]
        spread = (min(ratios), max(ratios))
        return cls(
            bench,
            case,
            metric,
            median(values),
            median(baselines),
            goal.get("at_least"),
            goal.get("at_most"),
            extra=extra or {},
            spread=spread,
            rows_from=rows_from,
        )

    @property
    def ratio(self) -> float | None:
        return None if not self.baseline else self.value / self.baseline

    @property
    def verdict(self) -> str:
        """``reached`` or ``missed``; empty without a goal."""
        if self.ratio is None or (self.at_least is None and self.at_most is None):
            return ""
        low = self.at_least is None or self.ratio >= self.at_least
        high = self.at_most is None or self.ratio <= self.at_most
        return "reached" if low and high else "missed"

    @property
    def target(self) -> str:
        parts = [f">= {self.at_least:g}"] if self.at_least is not None else []
        parts += [f"<= {self.at_most:g}"] if self.at_most is not None else []
        return " ".join(parts)

    def to_json(self) -> str:
        record: dict[str, Any] = {
            "bench": self.bench,
            "case": self.case,
            "metric": self.metric,
            "value": significant(self.value),
        }
        record["baseline"] = significant(self.baseline)
        record["ratio"] = significant(self.ratio)
        if self.spread is not None:
            record["ratio_low"], record["ratio_high"] = (significant(ratio) for ratio in self.spread)
        if self.rows_from:
            record["rows"] = self.rows_from
        return orjson.dumps(record | self.extra).decode()


def significant(value: float | None, digits: int = 5) -> float | None:
    """Round to the digits that a measurement can carry."""
    if value is None:
        return None
    rounded = float(f"{value:.{digits}g}")
    return int(rounded) if rounded.is_integer() else rounded


def human(value: float | None) -> str:
    if value is None:
        return ""
    for size, unit in ((1e9, " G"), (1e6, " M"), (1e3, " k")):
        if abs(value) >= size:
            return f"{value / size:.3g}{unit}"
    return f"{value:.3g}"


def show(results: Iterable[Result], *, as_json: bool, console: Console) -> list[Result]:
    """Print each result at once as JSON, or all as a table at the end, with a progress line for each meanwhile."""
    seen: list[Result] = []
    progress = Console(stderr=True)
    for result in results:
        seen.append(result)
        if as_json:
            console.file.write(result.to_json() + "\n")
            console.file.flush()
        elif progress.is_terminal:
            progress.print(f"[dim]{result.bench} {result.case} {result.metric}: {human(result.value)}[/dim]")
    if not as_json:
        console.print(table(seen))
    return seen


def table(results: Iterable[Result]) -> Table:
    out = Table(header_style="bold", pad_edge=False)
    for name, justify in (("bench", "left"), ("case", "left"), ("metric", "left"), ("value", "right")):
        out.add_column(name, justify=justify, no_wrap=True)  # type: ignore[arg-type]
    for name in ("baseline", "ratio", "rounds", "target", ""):
        out.add_column(name, justify="right", no_wrap=True)
    out.add_column("rows", no_wrap=True)
    for r in results:
        colour = {"reached": "green", "missed": "red"}.get(r.verdict, "")
        ratio = "" if r.ratio is None else f"{r.ratio:.2f}"
        verdict = f"[{colour}]{r.verdict}[/{colour}]" if colour else ""
        rounds = "" if r.spread is None else f"{r.spread[0]:.2f} to {r.spread[1]:.2f}"
        figures = (human(r.value), human(r.baseline), ratio, rounds, r.target, verdict)
        out.add_row(r.bench, r.case, r.metric, *figures, r.rows_from)
    return out
