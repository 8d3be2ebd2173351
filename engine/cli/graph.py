"""``aurorad graph``: draw a network in the terminal, as SVG, or as a list."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Annotated

import typer


def register(app: typer.Typer) -> None:
    app.command()(graph)


def graph(
    file: Annotated[str, typer.Argument(metavar="FILE", help="A network file; - reads standard input.")],
    svg: Annotated[
        str | None, typer.Option("--svg", metavar="FILE", help="Write an SVG file instead; - is standard output.")
    ] = None,
    as_list: Annotated[bool, typer.Option("--list", help="Print one line for each stream, box and output.")] = False,
) -> None:
    """Draw a network: streams on the left, outputs on the right, boxes and arrows between.

    A terminal that is too narrow for the drawing gets the list; pipe it
    into less -S to see the drawing.

    \b
      aurorad graph network.yaml
      aurorad graph network.yaml | less -S
      aurorad graph network.yaml --svg network.svg

    Exit codes: 0 drawn, 1 the SVG cannot be written, 78 a bad network file.
    """
    from engine.cli.views.problems import wants_colour
    from engine.lab.draw import draw_list, draw_svg, draw_text, sketch
    from engine.run.network_file import read_network

    drawing = sketch(read_network(sys.stdin.read() + "\n" if file == "-" else file))
    if svg is not None:
        if svg == "-":
            typer.echo(draw_svg(drawing), nl=False)
        else:
            _write(svg, draw_svg(drawing))
        return
    if not as_list:
        plain = draw_text(drawing)
        wide = max(len(line) for line in plain.splitlines())
        if not sys.stdout.isatty() or wide <= shutil.get_terminal_size().columns:
            typer.echo(draw_text(drawing, colour=True) if wants_colour(sys.stdout) else plain)
            return
        typer.echo(f"(the drawing is {wide} columns wide: aurorad graph {file} | less -S)", err=True)
    typer.echo(draw_list(drawing))


def _write(name: str, text: str) -> None:
    try:
        Path(name).write_text(text, encoding="utf-8")
    except OSError as error:
        typer.echo(f"aurorad: {name} cannot be written: {error.strerror}", err=True)
        raise typer.Exit(1) from None
    typer.echo(f"{name}: {len(text):,} bytes", err=True)
