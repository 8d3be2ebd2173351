"""The group ``aurorad bench``, and the options that its commands share."""

from __future__ import annotations

from typing import Annotated

import typer

PLAIN_WIDTH = 120  # columns of a table that goes to a file or a pipe

Json = Annotated[bool, typer.Option("--json", help="Print one JSON object a line for each case.")]
Quick = Annotated[bool, typer.Option("--quick", help="Take fewer and shorter rounds: a look, not a figure to quote.")]

bench = typer.Typer(
    no_args_is_help=True,
    help="Measure the engine against a bare loop: interleaved rounds, the best of each, as a ratio.",
)
