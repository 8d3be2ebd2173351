"""From the readers' counts to utilities, and from a step of the load to the time of the answer. Pure functions.

A loss graph defines the utility of its output. An output without one asks for no loss, and the shedder respects that;
so a strategy that loses a tenth of it gets no utility for it (``WHOLE``). A second utility counts such an output *in
proportion* to what was delivered, which favours strategies that drop tuples of every output.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from catalog.network import Network, Output
from catalog.qos import IN_PROPORTION, QoSGraph

WHOLE = QoSGraph(
    ((0.0, 0.0), (0.9, 0.0), (0.99, 1.0), (1.0, 1.0))
)  # a hundredth may still be under way when a run ends

Floats = npt.NDArray[np.float64]


class Delivered(NamedTuple):
    """One output in one run: the tuples that were due after the warm-up."""

    name: str
    share: float  # of its tuples
    value: float  # of their value
    latency_utility: float
    utility: float
    in_proportion: float  # the same, but without a loss graph in proportion to the share delivered
    p50_ns: float
    p99_ns: float


class LoadRun(NamedTuple):
    strategy: str
    shape: str
    load: float
    outputs: tuple[Delivered, ...]
    offered: int
    behind_s: float  # the greatest delay of the sender behind its schedule: shows a client that is too slow
    rate: float | None = None  # `random`: the share of the knee that it lets in
    ideal: float | None = None  # `shed`: the utility of the best possible plan

    @property
    def utility(self) -> float:
        """The sum over all outputs."""
        return sum(o.utility for o in self.outputs)

    @property
    def in_proportion(self) -> float:
        return sum(o.in_proportion for o in self.outputs)


class Due(NamedTuple):
    """The results of an output without any loss, by tenths of a second: their number and their value."""

    tuples: Floats
    value: Floats


def due_at_rates(answers: Sequence[Mapping[str, Any]], offered_then: Floats, offered: Floats) -> dict[str, Due]:
    """Scale a run without loss in proportion to what is offered, by tenths of a second."""
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
    """Compute the sum of utilities by half seconds of the due times. An output without due tuples has full utility."""
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
    settled_s: float  # from the step up until utility stays within a twentieth of the plateau
    restored_s: float  # from the step down until all is delivered again
    overshoots: int  # number of falls below the plateau by more than a tenth after utility had reached it


def step_answer(series: Floats, up: int, down: int, span_s: float, before: float) -> StepAnswer:
    """Evaluate a step. The high load lasts from span ``up`` to ``down``; ``before`` is the utility at the low load."""
    high = series[up:down]
    plateau = float(np.median(high[len(high) // 2 :]))
    settled = _stays(high >= 0.95 * plateau)
    restored = _stays(series[down:] >= 0.98 * before)
    low = high[_first(high >= 0.95 * plateau) :] < 0.9 * plateau
    overshoots = int(np.count_nonzero(np.diff(low.astype(np.int8)) == 1))
    return StepAnswer(plateau, settled * span_s, restored * span_s, overshoots)


def _stays(ok: npt.NDArray[np.bool_]) -> int:
    """Return the index from which on all are true; the length if the last one is false."""
    wrong = np.flatnonzero(~ok)
    return 0 if not len(wrong) else int(wrong[-1]) + 1


def _first(ok: npt.NDArray[np.bool_]) -> int:
    true = np.flatnonzero(ok)
    return int(true[0]) if len(true) else len(ok)
