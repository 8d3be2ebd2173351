"""The results of ``bench auto --real``: a table for each network and load, and figures with their goals."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import Any

from rich.console import Console
from rich.table import Table

from engine.lab.bench.auto.real import OFTEN, OVERLOAD, CaseTable
from engine.lab.bench.auto.real_run import RealRun
from engine.lab.bench.report import Result
from scheduler.choice import AUTO


def results(table: CaseTable) -> list[Result]:
    """Return auto against the best fixed policy and, in an overload, against ``qos`` and ``round_robin``."""
    case, mine = table.case, table.utility(AUTO)
    rows = {policy: table_row(runs) for policy, runs in table.runs.items()}
    extra = {"engine": "real", "chose": [r.chose for r in table.runs[AUTO]], "policies": rows}
    best = table.best
    found = [Result("auto", f"{case}, best fixed {best}", "utility", mine, table.utility(best), extra=extra)]
    for policy in OFTEN[1:] if case.load >= OVERLOAD else ():
        if policy in table.runs:
            theirs, noise = table.utility(policy), max(table.spread(AUTO), table.spread(policy))
            goal = 1.0 - noise / max(theirs, 1e-9)
            found.append(Result("auto", f"{case}, against {policy}", "utility", mine, theirs, at_least=goal))
    return found


def table_row(runs: Sequence[RealRun]) -> dict[str, Any]:
    """Return the medians of a policy's runs."""
    return {
        "utility": round(median(r.utility for r in runs), 3),
        "from": round(min(r.utility for r in runs), 3),
        "to": round(max(r.utility for r in runs), 3),
        "p99_ms": round(median(r.p99_ns for r in runs) / 1e6),
        "memory_kb": round(median(r.memory_bytes for r in runs) / 1e3),
        "others_cores": round(max(r.others_cores for r in runs), 2),
    }


def draw_table(table: CaseTable, console: Console) -> None:
    """Print the policies of a case, the best first."""
    outputs = len(table.runs[AUTO][0].by_output)
    drawn = Table(title=f"{table.case} times the knee, {outputs} outputs", title_justify="left")
    drawn.add_column("policy")
    for name in ("utility", "from", "to", "p99 ms", "memory kB", "others, cores"):
        drawn.add_column(name, justify="right")
    for policy in sorted(table.runs, key=lambda p: -table.utility(p)):
        row = table_row(table.runs[policy])
        cells = [*(f"{row[k]:.2f}" for k in ("utility", "from", "to")), str(row["p99_ms"]), str(row["memory_kb"])]
        drawn.add_row(policy, *cells, f"{row['others_cores']:.2f}", style="bold" if policy == AUTO else "")
    console.print(drawn)
    for chosen in table.runs[AUTO][-1].chose:
        console.print(f"  auto: {chosen}", markup=False)
