"""``aurorad bench figure`` and ``figures``: the papers' own experiments, run again."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from engine.cli.bench import PLAIN_WIDTH, Json, Quick

if TYPE_CHECKING:
    from rich.progress import Progress

    from engine.bench.figures.run import Record

Reuse = Annotated[bool, typer.Option("--reuse", help="Keep what the folder already has; measure the rest.")]
Engine = Annotated[str | None, typer.Option(help="Only on this engine: real or simulated.")]


@cache
def add(bench: typer.Typer) -> None:
    """Once, however often a command line is made."""
    bench.command()(figure)
    bench.command()(figures)


def figure(
    name: Annotated[list[str], typer.Argument(help="P0.5 and such, or all.")],
    engine: Engine = None,
    out: Annotated[Path, typer.Option(help="Where the PNG goes, and what was measured, as JSON.")] = Path("figures"),
    reuse: Reuse = False,
    as_json: Json = False,
    quick: Quick = False,
) -> None:
    """A figure of the papers: its table and plot, the paper's claim beside ours, and whether it holds."""
    from rich.console import Console

    from engine.bench.figures.text import show_record

    console = Console(width=None if sys.stdout.isatty() else PLAIN_WIDTH)
    for record in _run(name, engine, quick, out, reuse=reuse):
        if as_json:
            typer.echo(record.result().to_json())
        else:
            show_record(console, record)


def figures(
    report: Annotated[Path, typer.Option(help="The folder of the page: index.html, and the plots as PNG.")],
    only: Annotated[list[str] | None, typer.Option(help="Measure only these; the page has all that are there.")] = None,
    engine: Engine = None,
    reuse: Reuse = False,
    quick: Quick = False,
) -> None:
    """One page with every figure of the papers: plots, tables, claims and verdicts."""
    from engine.bench.figures.page import page
    from engine.bench.figures.run import stored, wanted

    for record in _run(only or ["all"], engine, quick, report, reuse=reuse):
        typer.echo(f"{record.name:6} {record.engine:10} {record.verdict.word:8} {record.why}")
    found = [stored(report, *which) for which in wanted(["all"], None)]
    path = report / "index.html"
    path.write_text(page([record for record in found if record is not None]), encoding="utf-8")
    typer.echo(f"the page is at {path}")


def _run(names: list[str], engine: str | None, quick: bool, out: Path, *, reuse: bool) -> Iterator[Record]:
    from engine.bench.figures import figure_names
    from engine.bench.figures.run import run_figure, save, stored, wanted
    from engine.bench.harness import BenchError, make_folder

    try:
        chosen = wanted(names, engine)
    except KeyError as error:
        raise typer.BadParameter(f"{error.args[0]}: a figure is one of {', '.join(figure_names())}, or all") from None
    if not chosen:
        raise typer.BadParameter(f"{engine}: an engine is real or simulated, and not every figure runs on both")
    make_folder(out)
    with _progress() as progress:
        for number, (name, on) in enumerate(chosen):
            record = stored(out, name, on) if reuse else None
            if record is None:
                which = f"{name} {on}  ({number + 1} of {len(chosen)})"
                task = progress.add_task(which, total=1.0)
                try:
                    record = run_figure(name, on, quick, lambda share, t=task: progress.update(t, completed=share))  # type: ignore[misc]
                except BenchError as error:
                    typer.echo(f"aurorad: bench figure {name}: {error}", err=True)
                    raise typer.Exit(1) from None
                progress.remove_task(task)
                if progress.disable:
                    typer.echo(f"{which}  {record.seconds:.0f} s", err=True)
                save(out, record)
                _save_plot(out, record)
            yield record


def _save_plot(folder: Path, record: Record) -> None:
    from engine.bench.figures.draw import picture
    from engine.bench.figures.run import file_of
    from engine.simulate.report import PlotError

    try:
        file_of(folder, record.name, record.engine, "png").write_bytes(picture(record))
    except PlotError as error:
        typer.echo(f"aurorad: no plot: {error}", err=True)


@contextmanager
def _progress() -> Iterator[Progress]:
    """On a terminal only; elsewhere a line is written when a figure is done. What is piped stays clean."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        yield progress
