"""``aurorad bench figure`` and ``figures``: repeat the experiments that the papers plot."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Annotated

import typer

from engine.cli.bench.group import PLAIN_WIDTH, Json, Quick, bench

if TYPE_CHECKING:
    from engine.lab.figures.record import FigureRecord

LINE_EVERY_S = 10.0
Reuse = Annotated[bool, typer.Option("--reuse", help="Reuse the runs in the folder; measure the missing ones.")]
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
    """Repeat figures of the papers: print the table, the paper's claim, and in how many runs it holds; plot it.

    The simulator sweeps the settings that the paper does not print; the
    real engine runs five seeds. The word is holds, shape (the claim holds,
    our numbers lie elsewhere) or differs.

    \b
      aurorad bench figure P0.5 --engine simulated
      aurorad bench figure P4.8 --quick --json

    Exit codes: 0 measured (also if a claim does not hold), 1 failed, 2
    there is no such figure.
    """
    from rich.console import Console

    from engine.lab.figures.terminal import show_record

    console = Console(width=None if sys.stdout.isatty() else PLAIN_WIDTH)
    records = []
    for record in _run(name, engine, quick, out, reuse=reuse):
        records.append(record)
        if as_json:
            typer.echo(record.result().to_json())
        else:
            show_record(console, record)
    if not as_json and len(records) > 1:
        typer.echo(_counted(records))


@bench.command()
def figures(
    report: Annotated[Path, typer.Option(help="The folder of the page: index.html, plots, results.")],
    only: Annotated[
        list[str] | None, typer.Option(help="Measure only these; the page shows all results of the folder.")
    ] = None,
    engine: Engine = None,
    results: Annotated[
        Path | None, typer.Option(help="Put the verdicts into this JSON file, in place of older ones.")
    ] = None,
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

    for done in _run(only or ["all"], engine, quick, report, reuse=reuse):
        outcome = done.outcome
        typer.echo(
            f"{done.name:11} {done.engine:10} {outcome.word:8} {outcome.held} of {outcome.variations}  {done.why}"
        )
    kept = [stored(report, *which) for which in wanted(["all"], None)]
    found = [record for record in kept if record is not None and not record.missing]  # half a sweep has no verdict
    if results is not None:
        _put_results(results, found)
    path = report / "index.html"
    path.write_text(page(found), encoding="utf-8")
    typer.echo(_counted(found))
    typer.echo(f"the page is at {path}")


def _run(names: list[str], engine: str | None, quick: bool, out: Path, *, reuse: bool) -> Iterator[FigureRecord]:
    from engine.lab.bench.harness import BenchError, make_folder
    from engine.lab.figures import figure_names
    from engine.lab.figures.record import wanted
    from engine.lab.figures.runner import FigureRunner

    try:
        chosen = wanted(names, engine)
    except KeyError as error:
        raise typer.BadParameter(
            f"there is no figure {error.args[0]}; the figures are {', '.join(figure_names())}, or all"
        ) from None
    if not chosen:
        raise typer.BadParameter(f"engine {engine}: must be real or simulated, and not every figure runs on both")
    make_folder(out)
    with _progress() as show:
        runner = FigureRunner(quick, out, reuse, on_progress=show)
        try:
            for record in runner.records(chosen):
                _save_plot(out, record)
                yield record
        except BenchError as error:
            typer.echo(f"aurorad: bench figure: {error}", err=True)
            raise typer.Exit(1) from None


def _put_results(path: Path, records: Sequence[FigureRecord]) -> None:
    from engine.lab.bench.harness import BenchError
    from engine.lab.figures.results import merge_results

    try:
        merge_results(path, records)
    except (BenchError, OSError) as error:
        typer.echo(f"aurorad: bench figures: {error}", err=True)
        raise typer.Exit(1) from None


def _counted(records: Sequence[FigureRecord]) -> str:
    """Count the three words, by engine."""
    from engine.lab.figures.record import counts

    engines = dict.fromkeys(r.engine for r in records)
    parts = []
    for engine in engines:
        words = counts([r for r in records if r.engine == engine])
        parts.append(f"{engine}: " + ", ".join(f"{count} {word}" for word, count in words.items()))
    return "; ".join(parts)


def _save_plot(folder: Path, record: FigureRecord) -> None:
    from engine.lab.figures.plot import picture
    from engine.lab.figures.record import file_of
    from engine.simulate.report import PlotError

    try:
        file_of(folder, record.name, record.engine, "png").write_bytes(picture(record))
    except PlotError as error:
        typer.echo(f"aurorad: no plot: {error}", err=True)


@contextmanager
def _progress() -> Iterator[Callable[[str, int, int], None]]:
    """Show progress: a bar on a terminal, elsewhere now and then a line on standard error."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.completed}/{task.total}"),
        TimeElapsedColumn(),
    )
    last = 0.0
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("figures", total=None)

        def show(what: str, done: int, of: int) -> None:
            nonlocal last
            progress.update(task, description=what, completed=done, total=of)
            if progress.disable and (monotonic() - last > LINE_EVERY_S):
                last = monotonic()
                typer.echo(f"{what}: {done} of {of} runs", err=True)

        yield show
