"""``aurorad bench on-spark``: a network on Spark against Spark's own operators."""

from __future__ import annotations

from typing import Annotated

import typer

from engine.cli.bench.benchmarks import take
from engine.cli.bench.group import Json, Quick, bench


@bench.command("on-spark")
def on_spark(
    case: Annotated[
        list[str] | None,
        typer.Option(help="window, join, executors or state; repeatable. \\[default: all]"),
    ] = None,
    as_json: Json = False,
    quick: Quick = False,
) -> None:
    """Measure a network with `run --on spark` against Spark's own operators, and against the daemon on the same rows.

    cold is the first run of a JVM, warm the median of interleaved rounds. A
    batch on a large state is compared with the same batch on a small one.

    \b
      aurorad bench on-spark --case window
      aurorad bench on-spark --quick

    Exit codes: 0 measured, 1 rows differ or Spark failed, 2 there is no such
    case.
    """
    from engine.lab.bench.on_spark.bench import CASES, run

    if unknown := set(case or ()) - set(CASES):
        raise typer.BadParameter(f"{', '.join(sorted(unknown))}: a case is one of {', '.join(CASES)}")
    take("on-spark", quick, as_json, lambda options: run(options, case or CASES))
