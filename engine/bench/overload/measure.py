"""From what the readers saw to utilities, and from a step to how fast it was answered. Pure.

An output with a loss graph is worth what its graph says. One without has asked for no loss, and the shedder takes it at
its word; so a strategy that loses a tenth of it anyway has nothing from it (``WHOLE``). Beside that everything is
counted *in proportion* as well, which is kinder to those who drop without asking.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from catalog.network import Network, Output
from catalog.qos import IN_PROPORTION, QoSGraph

WHOLE = QoSGraph(((0.0, 0.0), (0.9, 0.0), (0.99, 1.0), (1.0, 1.0)))  # a hundredth may be on its way when a run ends

Floats = npt.NDArray[np.float64]


class Delivered(NamedTuple):
    """One output in one run, over the tuples that were due after the warm-up."""

    name: str
    share: float  # of its tuples
    value: float  # of their value
    latency_utility: float
    utility: float
    in_proportion: float  # the same, where no loss was asked for: by the share delivered
    p50_ns: float
    p99_ns: float


class Outcome(NamedTuple):
    strategy: str
    shape: str
    load: float
    outputs: tuple[Delivered, ...]
    offered: int
    behind_s: float  # how far the sender fell behind its own schedule, at worst: a client that is too slow says so
    rate: float | None = None  # `random`: of the knee that it lets in
    ideal: float | None = None  # `shed`: what the best plan there is would be worth

    @property
    def utility(self) -> float:
        """Of all outputs together."""
        return sum(o.utility for o in self.outputs)

    @property
    def in_proportion(self) -> float:
        return sum(o.in_proportion for o in self.outputs)


class Due(NamedTuple):
    """What would come out of an output if nothing were lost, by tenths of a second: tuples, and their value."""

    tuples: Floats
    value: Floats


def due_at_rates(answers: Sequence[Mapping[str, Any]], offered_then: Floats, offered: Floats) -> dict[str, Due]:
    """From a run in which nothing was lost: in proportion to what is offered, by tenths of a second."""
    total = max(float(offered_then.sum()), 1.0)
    return {a["name"]: Due(offered * (sum(a["counts"]) / total), offered * (sum(a["value"]) / total)) for a in answers}


def delivered(answer: Mapping[str, Any], output: Output, due: Due) -> Delivered:
    warm = int(answer["warm"])
    counts, utility, value = (float(sum(answer[k][warm:])) for k in ("counts", "utility", "value"))
    share = min(1.0, counts / max(float(due.tuples[warm:].sum()), 1e-9))
    worth = min(1.0, value / max(float(due.value[warm:].sum()), 1e-9))
    latency = utility / counts if counts else 0.0
    strict, kind = ((output.qos.shed_by or otherwise).utility(worth) * latency for otherwise in (WHOLE, IN_PROPORTION))
    return Delivered(output.name, share, worth, latency, strict, kind, answer["p50_ns"], answer["p99_ns"])


def utility_series(
    answers: Sequence[Mapping[str, Any]], network: Network, due: Mapping[str, Due], every: int = 5
) -> Floats:
    """The utility of all outputs together, by half seconds of when tuples were due; an output that nothing was due at
    has all of its own."""
    spans = min(len(d.tuples) for d in due.values()) // every

    def summed(values: Any) -> Floats:
        parts: Floats = np.asarray(values, np.float64)[: spans * every].reshape(spans, every)
        found: Floats = parts.sum(axis=1)
        return found

    total = np.zeros(spans)
    for answer in answers:
        output = network.output(answer["name"])
        counts, utility, value = (summed(answer[k]) for k in ("counts", "utility", "value"))
        whole = summed(due[output.name].value)
        worth = np.minimum(1.0, np.divide(value, whole, out=np.ones(spans), where=whole > 0))
        loss = (output.qos.shed_by or WHOLE).utilities(worth)
        late = np.divide(utility, counts, out=(whole <= 0).astype(np.float64), where=counts > 0)
        total += loss * late
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
