"""From what the readers saw to utilities, and from a step to how fast it was answered. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from catalog.network import Network, Output

Floats = npt.NDArray[np.float64]


class Delivered(NamedTuple):
    """One output in one run, over the tuples that were due after the warm-up."""

    name: str
    share: float  # of its tuples
    value: float  # of their value
    latency_utility: float
    utility: float
    p50_ns: float
    p99_ns: float


class Outcome(NamedTuple):
    strategy: str
    shape: str
    load: float
    outputs: tuple[Delivered, ...]
    offered: int
    behind_s: float  # how far the sender fell behind its own schedule, at worst: a client that is too slow says so

    @property
    def utility(self) -> float:
        """Of all outputs together."""
        return sum(o.utility for o in self.outputs)


class Reference(NamedTuple):
    """What comes out for a tuple that is offered when nothing is lost, by output: tuples, and their value."""

    tuples: Mapping[str, float]
    value: Mapping[str, float]


def reference(answers: Sequence[Mapping[str, Any]], offered: Floats) -> Reference:
    """From a run in which nothing was lost; ``offered`` by tenths of a second."""
    total = max(float(offered.sum()), 1.0)
    return Reference(
        {a["name"]: sum(a["counts"]) / total for a in answers}, {a["name"]: sum(a["value"]) / total for a in answers}
    )


def delivered(answer: Mapping[str, Any], output: Output, whole: Reference, offered: Floats) -> Delivered:
    warm = int(answer["warm"])
    counts, utility, value = (float(sum(answer[k][warm:])) for k in ("counts", "utility", "value"))
    due = max(float(offered[warm:].sum()), 1e-9)
    share = min(1.0, counts / max(due * whole.tuples[output.name], 1e-9))
    worth = min(1.0, value / max(due * whole.value[output.name], 1e-9))
    latency = utility / counts if counts else 0.0
    loss = output.qos.loss.utility(worth) if output.qos.loss is not None else worth
    return Delivered(output.name, share, worth, latency, latency * loss, answer["p50_ns"], answer["p99_ns"])


def utility_series(
    answers: Sequence[Mapping[str, Any]], network: Network, whole: Reference, offered: Floats, every: int = 5
) -> Floats:
    """The utility of all outputs together, by half seconds of when tuples were due."""
    spans = len(offered) // every
    due = offered[: spans * every].reshape(spans, every).sum(axis=1)
    total = np.zeros(spans)
    for answer in answers:
        output = network.output(answer["name"])
        counts, utility, value = (
            np.array(answer[k][: spans * every]).reshape(spans, every).sum(axis=1)
            for k in ("counts", "utility", "value")
        )
        worth = np.minimum(1.0, value / np.maximum(due * whole.value[output.name], 1e-9))
        loss = output.qos.loss.utilities(worth) if output.qos.loss is not None else worth
        total += loss * np.divide(utility, counts, out=np.zeros(spans), where=counts > 0)
    return total


class StepAnswer(NamedTuple):
    plateau: float  # utility under the high load, once settled
    settled_s: float  # after the step up, until it stays within a twentieth of the plateau
    restored_s: float  # after the step down, until all is delivered again
    overshoots: int  # how often utility fell below the plateau by more than a tenth after it had been there


def step_answer(series: Floats, up: int, down: int, span_s: float, before: float) -> StepAnswer:
    """``series`` by spans; the high load lasts from ``up`` to ``down``; ``before`` is the utility at the low load."""
    high = series[up:down]
    plateau = float(np.median(high[len(high) // 2 :]))
    settled = _stays(high >= 0.95 * plateau)
    restored = _stays(series[down:] >= 0.98 * before)
    low = high[_first(high >= 0.95 * plateau) :] < 0.9 * plateau
    overshoots = int(np.count_nonzero(np.diff(low.astype(np.int8)) == 1))
    return StepAnswer(plateau, settled * span_s, restored * span_s, overshoots)


def _stays(ok: npt.NDArray[np.bool_]) -> int:
    """From which one on all are true; the length when the last one is not."""
    wrong = np.flatnonzero(~ok)
    return 0 if not len(wrong) else int(wrong[-1]) + 1


def _first(ok: npt.NDArray[np.bool_]) -> int:
    true = np.flatnonzero(ok)
    return int(true[0]) if len(true) else len(ok)
