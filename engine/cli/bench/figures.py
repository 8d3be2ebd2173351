"""``aurorad bench figure`` and ``figures``: repeat the experiments that the papers plot."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from engine.cli.bench.group import PLAIN_WIDTH, Json, Quick, bench

if TYPE_CHECKING:
    from rich.progress import Progress

    from engine.lab.figures.record import FigureRecord

Reuse = Annotated[bool, typer.Option("--reuse", help="Reuse the results in the folder; measure the rest.")]
Engine = Annotated[str | None, typer.Option(help="Only this engine: real or simulated.")]


@bench.command()
def figure(
    name: Annotated[list[str], typer.Argument(help="P0.5 and such, or all.")],
    engine: Engine = None,
    out: Annotated[Path, typer.Option(help="The folder of the plots (PNG) and the results (JSON).")] = Path("figures"),
    reuse: Reuse = False,
    as_json: Json = False,
    quick: Quick = False,
) -> None:
    """Repeat figures of the papers: print the table, the paper's claim, and whether it holds; plot it.

    \b
      aurorad bench figure P0.5 --engine simulated
      aurorad bench figure P4.8 --quick --json

    Exit codes: 0 measured (also if a claim does not hold), 1 failed, 2
    there is no such figure.
    """
    from rich.console import Console

    from engine.lab.figures.terminal import show_record

    console = Console(width=None if sys.stdout.isatty() else PLAIN_WIDTH)
    for record in _run(name, engine, quick, out, reuse=reuse):
        if as_json:
            typer.echo(record.result().to_json())
        else:
            show_record(console, record)


@bench.command()
def figures(
    report: Annotated[Path, typer.Option(help="The folder of the page: index.html, plots, results.")],
    only: Annotated[
        list[str] | None, typer.Option(help="Measure only these; the page shows all results of the folder.")
    ] = None,
    engine: Engine = None,
    reuse: Reuse = False,
    quick: Quick = False,
) -> None:
    """Make one page with every figure of the papers: plots, tables, claims and verdicts.

    \b
      aurorad bench figures --report figures
      aurorad bench figures --report figures --reuse --only P0.5

    Exit codes: 0 made (also if claims do not hold), 1 failed, 2 there is no
    such figure.
    """
    from engine.lab.figures.page import page
    from engine.lab.figures.record import stored, wanted

    for record in _run(only or ["all"], engine, quick, report, reuse=reuse):
        typer.echo(f"{record.name:6} {record.engine:10} {record.verdict.word:8} {record.why}")
    found = [stored(report, *which) for which in wanted(["all"], None)]
    path = report / "index.html"
    path.write_text(page([record for record in found if record is not None]), encoding="utf-8")
    typer.echo(f"the page is at {path}")


def _run(names: list[str], engine: str | None, quick: bool, out: Path, *, reuse: bool) -> Iterator[FigureRecord]:
    from engine.lab.bench.harness import BenchError, make_folder
    from engine.lab.figures import figure_names
    from engine.lab.figures.record import run_figure, save, stored, wanted

    try:
        chosen = wanted(names, engine)
    except KeyError as error:
        raise typer.BadParameter(
            f"there is no figure {error.args[0]}; the figures are {', '.join(figure_names())}, or all"
        ) from None
    if not chosen:
        raise typer.BadParameter(f"engine {engine}: must be real or simulated, and not every figure runs on both")
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


def _save_plot(folder: Path, record: FigureRecord) -> None:
    from engine.lab.figures.plot import picture
    from engine.lab.figures.record import file_of
    from engine.simulate.report import PlotError

    try:
        file_of(folder, record.name, record.engine, "png").write_bytes(picture(record))
    except PlotError as error:
        typer.echo(f"aurorad: no plot: {error}", err=True)


@contextmanager
def _progress() -> Iterator[Progress]:
    """Show progress on a terminal only. Elsewhere the command writes a line to standard error for each figure."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        yield progress
