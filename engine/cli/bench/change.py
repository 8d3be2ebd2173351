"""``aurorad bench change`` and ``admission``: queries come to a network under load, and go."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from engine.cli.bench.benchmarks import take
from engine.cli.bench.group import Json, Quick, bench


@bench.command()
def change(
    queries: Annotated[
        list[int] | None,
        typer.Option(min=1, help="Only this number of queries; repeatable. \\[default: 10, 1000, 3000]"),
    ] = None,
    as_json: Json = False,
    quick: Quick = False,
) -> None:
    """Measure how long a query takes to come to a running network and to go, and what the others notice.

    It also measures the time to read the network, the throughput after 1,000
    changes against a fresh start, and how much of the busy time is in no
    bill. The baseline of a time with a goal is the goal, and that of a p99
    the p99 before the change.

    \b
      aurorad bench change
      aurorad bench change --queries 1000 --quick

    Exit codes: 0 measured, 1 the engine did not come to rest.
    """
    from engine.lab.bench.change import run

    take("change", quick, as_json, lambda options: run(options, queries or ()))


@bench.command()
def admission(as_json: Json = False, quick: Quick = False) -> None:
    """Measure the forecast of a change against what happened, for five queries that are added to the demo.

    A value is the utility that an output of the demo had after the change,
    its baseline the utility that the plan of the change promised.

    \b
      aurorad bench admission
      aurorad bench admission --quick

    Exit codes: 0 measured, 1 the benchmark failed.
    """
    from engine.lab.bench.admission import run
    from engine.lab.processes import shipped

    take("admission", quick, as_json, lambda options: run(options, Path(shipped("demo.yaml"))))
