"""From the readers' answers to what users felt: utility by output, beside what the daemon said and what it dropped.

Judged are the results that were due after the warm-up and half a second before the end. The utility of an output is the
mean of its latency graph over the results delivered, times its loss graph at the share of their worth (without a loss
graph, that share itself). A window with a wrong number of rows is worth nothing where windows are exact; an approximate
one counts by the share of its rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from catalog.network import Network, Output
from catalog.qos import IN_PROPORTION
from engine.lab.bench.overload.clients import BINS_PER_S
from engine.lab.bench.overload.utility import Due, StepAnswer
from engine.lab.bench.promise.kinds import PromiseNetwork
from engine.lab.bench.promise.truth import Truth, WindowRows

Floats = npt.NDArray[np.float64]
SLIGHT = 1e-9  # of a mean: sums of floats depend on their order
LAST_S = 0.5  # before the end of the schedule: not judged, some of it is still under way


class Felt(NamedTuple):
    """What the readers of one output had."""

    name: str
    share: float  # of its results
    value: float  # of their worth
    latency_utility: float
    utility: float
    p50_ns: float
    p99_ns: float


class ClaimedUtility(NamedTuple):
    """What the daemon said of one output over the same time."""

    share: float
    utility: float


class DropShare(NamedTuple):
    arc: str
    reason: str
    share: float  # of the tuples that reached the arc
    tuples: int


class PromiseRun(NamedTuple):
    """One contender in one schedule."""

    contender: str
    network: str
    shape: str
    load: float
    outputs: tuple[Felt, ...]
    claims: Mapping[str, ClaimedUtility]  # by output; of our own contenders
    drops: tuple[DropShare, ...]
    wrong_windows: int  # exact windows with a wrong number of rows
    residual: int
    behind_s: float  # the greatest delay of the sender behind its schedule
    load_ratio: float  # as the daemon said at the end
    lost_later: int = 0  # tuples dropped after the first second
    covered: tuple[int, int] = (0, 0)  # approximate windows whose interval held the truth, and all that had one
    step: StepAnswer | None = None  # of a step
    memory_growth: float = 1.0  # resident memory at the end over that after the warm-up

    @property
    def utility(self) -> float:
        return sum(o.utility for o in self.outputs)

    @property
    def worst_claim(self) -> float:
        """The largest difference between the utility that the daemon claims for an output and what was felt."""
        return max(
            (abs(self.claims[o.name].utility - o.utility) for o in self.outputs if o.name in self.claims), default=0
        )


class Judgement(NamedTuple):
    outputs: tuple[Felt, ...]
    wrong_windows: int
    covered: tuple[int, int]
    answers: list[Mapping[str, Any]]  # of the readers, with windows weighed by their rows


class _JudgedWindows(NamedTuple):
    answer: dict[str, Any]
    wrong: int  # exact windows with a wrong number of rows
    held: int  # intervals of approximate windows that hold the true number of rows, or the true mean
    known: int  # and all intervals


def judge_run(
    spec: PromiseNetwork,
    network: Network,
    answers: Sequence[Mapping[str, Any]],
    truth: Truth,
    begun_ns: int,
    rows_files: Mapping[str, Path],
) -> Judgement:
    """Judge what the readers answered."""
    found, weighed, wrong, held, known = [], [], 0, 0, 0
    for answer in answers:
        output = network.output(answer["name"])
        if output.name in spec.windows:
            is_exact = spec.windows[output.name] == "exact"
            judged = _windows(output, answer, truth.windows[output.name], begun_ns, rows_files, is_exact)
            answer = judged.answer
            wrong, held, known = wrong + judged.wrong, held + judged.held, known + judged.known
        weighed.append(answer)
        found.append(felt(answer, output, truth.due[output.name]))
    return Judgement(tuple(found), wrong, (held, known), weighed)


def felt(answer: Mapping[str, Any], output: Output, due: Due) -> Felt:
    warm, last = int(answer["warm"]), len(due.tuples) - int(LAST_S * BINS_PER_S)
    counts, utility, value = (float(np.sum(answer[key][warm:last])) for key in ("counts", "utility", "value"))
    share = min(1.0, counts / max(float(due.tuples[warm:last].sum()), 1e-9))
    worth = min(1.0, value / max(float(due.value[warm:last].sum()), 1e-9))
    latency = utility / counts if counts else 0.0
    total = (output.qos.shed_by or IN_PROPORTION).utility(worth) * latency
    return Felt(output.name, share, worth, latency, total, answer["p50_ns"], answer["p99_ns"])


def _windows(
    output: Output,
    answer: Mapping[str, Any],
    truth: WindowRows,
    begun_ns: int,
    rows_files: Mapping[str, Path],
    is_exact: bool,
) -> _JudgedWindows:
    """Weigh the windows that came by their rows, as the answer of such a reader."""
    bins = len(answer["counts"])
    counts, utility, value = np.zeros(bins), np.zeros(bins), np.zeros(bins)
    wrong = held = known = 0
    file = rows_files[output.name]
    if file.exists():
        with pa.OSFile(str(file), "rb") as source:
            table = pa.ipc.open_file(source).read_all()
        ends = table["window_end"].cast(pa.timestamp("ns")).cast(pa.int64())
        columns: list[list[Any]] = [c.to_pylist() for c in (ends, table["k"], table["n"], table["came_ns"])]
        has_bars = "n_low" in table.column_names
        names = [name if has_bars else "n" for name in ("n_low", "n_high", "mean_low", "mean_high")]
        bars = [table[name].to_pylist() for name in names]
        graph = output.qos.latency
        for end_ns, key, n, came_ns, *bounds in zip(*columns, *bars, strict=True):
            at = (end_ns - begun_ns) * BINS_PER_S // 1_000_000_000
            if not 0 <= at < bins:
                continue
            whole, mean = truth.get((end_ns, key), (0, 0.0))
            weight = float(n == whole) if is_exact else min(1.0, n / max(whole, 1))
            wrong += is_exact and n != whole
            if has_bars and at >= answer["warm"]:
                intervals = [(whole, *bounds[:2]), (mean, *bounds[2:])]
                told = [low - SLIGHT <= value <= high + SLIGHT for value, low, high in intervals if low is not None]
                known, held = known + len(told), held + sum(told)
            late = 1.0 if graph is None else graph.utility(came_ns - end_ns)
            counts[at] += 1
            utility[at] += late
            value[at] += weight
    return _JudgedWindows({**answer, "counts": counts, "utility": utility, "value": value}, wrong, held, known)


def claims(network: Network, before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, ClaimedUtility]:
    """Compute, by output, the utility that the daemon's own figures say, between two looks."""
    found = {}
    for a, b in zip(before["outputs"], after["outputs"], strict=True):
        tuples = b["emitted"] - a["emitted"]
        summed = [look["utility"]["latency_all_time"] * look["emitted"] for look in (a, b)]
        late = (summed[1] - summed[0]) / tuples if tuples else 0.0
        lossy = network.output(b["name"]).qos.shed_by is not None
        kept = b["utility"]["loss"] if lossy else b["share_delivered"]
        found[b["name"]] = ClaimedUtility(b["share_delivered"], late * kept)
    return found


def dropped_tuples(before: Mapping[str, Any], after: Mapping[str, Any]) -> int:
    """Count the tuples dropped between two looks, undecoded or on arcs."""

    def dropped(look: Mapping[str, Any]) -> int:
        counts = [*(s["edge"]["dropped"] for s in look["streams"]), *(a["shed"] for a in look["arcs"])]
        return sum(int(n) for by_reason in counts for n in by_reason.values())

    return dropped(after) - dropped(before)


def dropped_shares(before: Mapping[str, Any], after: Mapping[str, Any]) -> tuple[DropShare, ...]:
    """Compute the shares of the arcs' tuples that were dropped between two looks, the largest first."""
    found = []
    for a, b in zip(before["arcs"], after["arcs"], strict=True):
        gone = {reason: n - a["shed"].get(reason, 0) for reason, n in b["shed"].items()}
        came = b["dequeued"] - a["dequeued"] + sum(gone.values())
        found += [DropShare(b["name"], reason, n / max(came, n), n) for reason, n in gone.items() if n > 0]
    for a, b in zip(before["streams"], after["streams"], strict=True):
        gone = {reason: n - a["edge"]["dropped"].get(reason, 0) for reason, n in b["edge"]["dropped"].items()}
        came = max(b["received"] - a["received"], 1)
        found += [DropShare(b["name"], reason, n / max(came, n), n) for reason, n in gone.items() if n > 0]
    return tuple(sorted(found, key=lambda d: -d.tuples))
