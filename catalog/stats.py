"""Statistics that every policy reads: the cost and the selectivity of boxes, the rates of streams.

The cost of a box call is affine in the train length, ``a + b*n``: ``cost_per_call_ns`` is a, ``cost_per_tuple_ns`` is
b. A Kalman filter with two states for each box fits both online, to the mean cost and mean train of one tick's calls:

- The filter forgets (process noise), so it follows a box that becomes more expensive within seconds.
- With trains of one length only a + b*n can be known. The filter then leaves the split between a and b unchanged, where
  least squares with forgetting would diverge.
- An outlier (a page fault, a wait for the GIL) moves the estimate by at most ``OUTLIER_SIGMAS`` deviations: it is
  clipped, not discarded. After three outliers in a row the fit starts again: that is the new cost.
- Neither part is ever negative. A part that would fall below 0 is set to 0, and the other part takes the rest.

Selectivity is the ratio of exponentially weighted sums (out over in), not the mean of ratios, so that a train of one
tuple does not outweigh one of a thousand. A declared ``cost`` or ``selectivity`` is the first guess. A box with several
inputs also has one selectivity for each (P2 section 2.2: "for a multiple input AOP, like the multi-way join, the
selectivities is calculated for each input").

The selectivity of a join changes with the rates of its inputs, and with every drop before it. Its *pair rate* does not:
the pairs per second that it makes, over the product of the rates of its inputs. It is measured by the tuples that
really came, so it tells what the join would make of any others.

Pure arithmetic; time is an argument. Owner: the monitor thread. Readers (policies, the shedder) keep references to the
arrays, which are indexed by the number of the box, stream or output and written in place. A value that is one tick old
does no harm.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from catalog.network import Network
from catalog.schema import Schema

Floats = npt.NDArray[np.float64]
Counts = npt.NDArray[Any]
Index = npt.NDArray[np.intp]

DEFAULT_CALL_NS = 10_000.0  # cost of a box call on a 2-core machine, before anything is measured
DEFAULT_TUPLE_NS = 10.0
MEASURE_ERROR = 0.25  # relative noise of one call's time
OUTLIER_SIGMAS = 3.0
NEW_COST_TICKS = 3  # this many clipped ticks in a row are not outliers but a new cost
DRIFT_PER_S = 0.10  # relative drift of a cost in a second
SELECTIVITY_TAU_S = 5.0
RATE_TAU_S = 1.0
TRAIN_TAU_S = 2.0
SEED_TUPLES = 20.0  # the weight, in observed tuples, of the first guess of a selectivity
INPUT_TAU_S = 0.3  # of the rates of a join's inputs
MAX_CALLS_WEIGHT = 100.0  # calls of one tick share its disturbances: more of them add no certainty


class Statistics:
    """Arrays by number. ``observe_*`` take the differences since the last tick, never totals."""

    def __init__(self, network: Network) -> None:
        boxes = network.boxes
        self.cost_per_call_ns: Floats = np.full(len(boxes), DEFAULT_CALL_NS)  # a declared cost is per tuple
        self.cost_per_tuple_ns: Floats = np.array(
            [DEFAULT_TUPLE_NS if b.cost_ns is None else b.cost_ns for b in boxes], np.float64
        )
        self.selectivity: Floats = np.array(
            [1.0 if b.selectivity is None else b.selectivity for b in boxes], np.float64
        )
        self.train_tuples: Floats = np.ones(len(boxes))  # mean tuples per call
        self.kept_share: Floats = np.ones(len(boxes))  # of the tuples for the box, the share that a shed plan leaves it
        self.unshed_factor: Floats = np.ones(len(boxes))  # its selectivity if nothing were shed, over the present one
        self.tuple_bytes: Floats = np.array([_width(b.in_schemas[0]) for b in boxes], np.float64)  # on its input
        self.observed_calls: Counts = np.zeros(len(boxes), np.int64)  # 0: all values are still first guesses
        self.rate_per_s: Floats = np.zeros(len(network.streams))  # valid tuples offered by the sources
        self.output_cost_ns: Floats = np.zeros(len(network.outputs))  # cost of delivering a tuple: mostly encoding

        # Ports are laid out one after another: port p of box b is at port_start[b] + p.
        self.port_start: Index = port_starts(network)
        ports = np.diff(self.port_start)
        self.port_box: Index = np.repeat(np.arange(len(boxes)), ports)
        self.port_selectivity: Floats = self.selectivity[self.port_box] / ports[self.port_box]

        # By arc, where a box has several inputs: tuples out for one that comes by the arc; NaN: not observed yet.
        self.input_selectivity: Floats = np.full(len(network.arcs), np.nan)
        self._input_in = np.zeros(len(network.arcs))
        self._input_out = np.zeros(len(network.arcs))

        self.pair_rate: Floats = np.full(len(boxes), np.nan)  # of joins; NaN: not observed yet
        self._joins = [(b.number, b.in_arcs) for b in boxes if b.kind == "join" and len(b.in_arcs) == 2]
        self._passed_per_s = np.zeros(len(network.arcs))  # tuples put on this arc lately
        self._met, self._made = np.zeros(len(boxes)), np.zeros(len(boxes))  # weighted sums of what met, and of pairs

        # The covariance of the filter, [[aa, ab], [ab, bb]], and the weighted sums of the selectivities.
        self._aa = np.square(self.cost_per_call_ns)
        self._ab = np.zeros(len(boxes))
        self._bb = np.square(np.maximum(self.cost_per_tuple_ns, DEFAULT_TUPLE_NS))
        self._clipped_ticks = np.zeros(len(boxes), np.int64)  # in a row
        self._seen_in = np.full(len(boxes), SEED_TUPLES)
        self._seen_out = self.port_selectivity * SEED_TUPLES
        self._rate_known = np.zeros(len(network.streams), np.bool_)
        self._delivered = np.zeros(len(network.outputs))
        self._delivery_ns = np.zeros(len(network.outputs))

    # -- written by the tick ------------------------------------------------------------------------------------------

    def observe_boxes(
        self, calls: Counts, tuples_in: Counts, tuples_out_by_port: Counts, cost_ns: Counts, elapsed_ns: int
    ) -> None:
        """Take calls, tuples and time by box since the last tick; tuples out are by port, in the layout of
        ``port_start``."""
        if elapsed_ns <= 0:
            return
        elapsed_s = elapsed_ns / 1e9
        came = np.asarray(tuples_in, np.float64)
        self._fold_selectivity(came, np.asarray(tuples_out_by_port, np.float64), elapsed_s)
        at = np.flatnonzero((np.asarray(calls) > 0) & (came > 0))
        if at.shape[0] == 0:
            return
        made = np.asarray(calls, np.float64)[at]
        train = came[at] / made
        keep = np.where(self.observed_calls[at] > 0, np.exp(-elapsed_s / TRAIN_TAU_S), 0.0)
        self.train_tuples[at] = keep * self.train_tuples[at] + (1 - keep) * train
        self._fit_costs(at, made, train, np.asarray(cost_ns, np.float64)[at] / made, elapsed_s)
        self.observed_calls[at] += np.asarray(calls, np.int64)[at]

    def observe_inputs(self, arcs: Sequence[int], came: Counts, made: Counts, elapsed_ns: int) -> None:
        """Take, for inputs of boxes with several, the tuples that came by these arcs since the last tick, and the
        tuples that left in the same calls."""
        at = np.asarray(arcs, np.intp)
        keep = np.where(np.asarray(came) > 0, np.exp(-elapsed_ns / 1e9 / SELECTIVITY_TAU_S), 1.0)
        self._input_in[at] = keep * self._input_in[at] + came
        self._input_out[at] = keep * self._input_out[at] + made
        seen = at[self._input_in[at] >= SEED_TUPLES]
        self.input_selectivity[seen] = self._input_out[seen] / self._input_in[seen]

    def observe_pairs(self, boxes: Sequence[int], met: Floats, made: Floats, elapsed_ns: int) -> None:
        """Take, for joins, what met since the last tick (the product of the rates of both inputs, times the seconds for
        which they met), and the pairs that came out."""
        at = np.asarray(boxes, np.intp)
        keep = np.where((met > 0) | (made > 0), np.exp(-elapsed_ns / 1e9 / SELECTIVITY_TAU_S), 1.0)
        self._met[at] = keep * self._met[at] + met
        self._made[at] = keep * self._made[at] + made
        seen = at[(self._made[at] >= SEED_TUPLES) & (self._met[at] > 0)]
        self.pair_rate[seen] = self._made[seen] / self._met[seen]

    def observe_arcs(self, passed: Floats, elapsed_ns: int) -> None:
        """Take the tuples put on each arc since the last tick, behind the drops."""
        gain = 1.0 - np.exp(-elapsed_ns / 1e9 / INPUT_TAU_S)
        self._passed_per_s += gain * (passed * 1e9 / max(elapsed_ns, 1) - self._passed_per_s)

    def observe_streams(self, tuples: Counts, elapsed_ns: int) -> None:
        """Take the valid tuples that each stream offered since the last tick, shed or not."""
        if elapsed_ns <= 0:
            return
        now = np.asarray(tuples, np.float64) * (1e9 / elapsed_ns)
        keep = np.where(self._rate_known, np.exp(-elapsed_ns / 1e9 / RATE_TAU_S), 0.0)
        self.rate_per_s[:] = keep * self.rate_per_s + (1 - keep) * now
        self._rate_known |= now > 0

    def observe_outputs(self, tuples: Counts, cost_ns: Counts, elapsed_ns: int) -> None:
        """Take the tuples delivered by each output since the last tick, and the time of the delivery."""
        came = np.asarray(tuples, np.float64)
        keep = np.where(came > 0, np.exp(-elapsed_ns / 1e9 / SELECTIVITY_TAU_S), 1.0)
        self._delivered[:] = keep * self._delivered + came
        self._delivery_ns[:] = keep * self._delivery_ns + np.asarray(cost_ns, np.float64)
        np.divide(self._delivery_ns, self._delivered, out=self.output_cost_ns, where=self._delivered > 0)

    def observe_tuple_bytes(self, tuples: Counts, nbytes: Counts) -> None:
        """Take the tuples and bytes that wait before each box now. A box with an empty queue keeps its last value."""
        waiting = np.asarray(tuples, np.float64)
        at = np.flatnonzero(waiting > 0)
        if at.shape[0]:
            self.tuple_bytes[at] += 0.2 * (np.asarray(nbytes, np.float64)[at] / waiting[at] - self.tuple_bytes[at])

    # -- read by policies ---------------------------------------------------------------------------------------------

    def call_cost_ns(self, box: int, tuples: float) -> float:
        """Return the expected time of one call with a train of this many tuples."""
        return float(self.cost_per_call_ns[box] + self.cost_per_tuple_ns[box] * tuples)

    def effective_cost_ns(self) -> Floats:
        """Return the time per tuple by box, at its present train length: the tuples of a call share its fixed cost."""
        return self.cost_per_tuple_ns + self.cost_per_call_ns / np.maximum(self.train_tuples, 1.0)

    def unshed_cost_ns(self) -> Floats:
        """Return the time per tuple by box, at the train length that it would have if nothing were shed.

        A shed plan leaves short trains, and in them each tuple carries more of the call. A plan that is made by such
        costs finds the boxes that it has relieved the dearest, and relieves them for ever.
        """
        return self.cost_per_tuple_ns + self.cost_per_call_ns * self.kept_share / np.maximum(self.train_tuples, 1.0)

    def unshed_selectivity(self) -> Floats:
        """Return the selectivities by flat port as they would be if nothing were shed: a join would find all pairs."""
        return self.port_selectivity * self.unshed_factor[self.port_box]

    def present_selectivity(self) -> Floats:
        """Return the selectivities by flat port at the rates at which tuples reach the joins now, with the drops before
        them."""
        found = self.port_selectivity.copy()
        for box, (left, right) in self._joins:
            a, b = self._passed_per_s[left], self._passed_per_s[right]
            if a + b > 0 and self.selectivity[box] > 0 and np.isfinite(self.pair_rate[box]):
                ports = slice(self.port_start[box], self.port_start[box + 1])
                found[ports] *= self.pair_rate[box] * a * b / (a + b) / self.selectivity[box]
        return found

    def carry_over(self, old: Statistics, network: Network, old_network: Network) -> None:
        """Copy the statistics of boxes and streams of the same name and kind: a live change forgets nothing."""
        pairs: list[tuple[int, int]] = []
        for box in network.boxes:
            before = next((b for name in box.names if (b := old_network.find_box(name)) is not None), None)
            if before is not None and before.kind == box.kind and before.ports == box.ports:
                pairs.append((box.number, before.number))
        now, was = np.array(pairs, np.intp).reshape(-1, 2).T
        for name in _BY_BOX:
            getattr(self, name)[now] = getattr(old, name)[was]
        ports = np.diff(self.port_start)[now]
        within = np.arange(ports.sum()) - np.repeat(np.cumsum(ports) - ports, ports)
        for name in _BY_PORT:
            here, there = (np.repeat(s.port_start[at], ports) + within for s, at in ((self, now), (old, was)))
            getattr(self, name)[here] = getattr(old, name)[there]
        streams = {s.name: s.number for s in old_network.streams}
        for stream in network.streams:
            if stream.name in streams:
                self.rate_per_s[stream.number] = old.rate_per_s[streams[stream.name]]
                self._rate_known[stream.number] = old._rate_known[streams[stream.name]]
        outputs = {o.name: o.number for o in old_network.outputs}
        for output in network.outputs:
            if output.name in outputs:
                for name in _BY_OUTPUT:
                    getattr(self, name)[output.number] = getattr(old, name)[outputs[output.name]]

    # -- inside -------------------------------------------------------------------------------------------------------

    def _fit_costs(self, at: Index, calls: Floats, n: Floats, y: Floats, elapsed_s: float) -> None:
        a, b = self.cost_per_call_ns[at], self.cost_per_tuple_ns[at]
        expected = a + b * n
        # Start again from a guess where nothing was observed yet, or where the cost is a new one.
        afresh = (self.observed_calls[at] == 0) | (self._clipped_ticks[at] >= NEW_COST_TICKS)
        usual = np.maximum(expected, a + b * self.train_tuples[at])
        scale = np.where(afresh, np.maximum(usual, y), usual)
        aa, ab, bb = self._predict(at, afresh, scale, n, elapsed_s)
        # Correct: clip the innovation, then divide it between the parts by their uncertainty.
        noise = np.square(MEASURE_ERROR * np.where(afresh, y, expected)) / np.minimum(calls, MAX_CALLS_WEIGHT)
        pa, pb = aa + ab * n, ab + bb * n
        spread = pa + pb * n + noise + 1.0
        miss = y - expected
        reach = np.where(afresh, np.inf, OUTLIER_SIGMAS * np.sqrt(spread))
        clipped = np.clip(miss, -reach, reach)
        self._clipped_ticks[at] = np.where(miss != clipped, self._clipped_ticks[at] + 1, 0)
        a, b = a + pa / spread * clipped, b + pb / spread * clipped
        aa, ab, bb = aa - pa * pa / spread, ab - pa * pb / spread, bb - pb * pb / spread
        # Never negative: when one part is set to 0, the other moves along their correlation.
        low_a, low_b = a < 0, b < 0
        b = np.where(low_a & ~low_b, b - a * ab / aa, b)
        a = np.where(low_b & ~low_a, a - b * ab / bb, a)
        self.cost_per_call_ns[at] = np.maximum(a, 0.0)
        self.cost_per_tuple_ns[at] = np.maximum(b, 0.0)
        self._aa[at], self._ab[at], self._bb[at] = aa, ab, bb

    def _predict(
        self, at: Index, afresh: npt.NDArray[np.bool_], scale: Floats, n: Floats, elapsed_s: float
    ) -> tuple[Floats, Floats, Floats]:
        """Return the covariance before this tick: both parts have drifted, but are never less certain than a guess."""
        a, b = self.cost_per_call_ns[at], self.cost_per_tuple_ns[at]
        per_tuple = scale / np.maximum(n, self.train_tuples[at])  # a train of one says little about the cost per tuple
        drift = DRIFT_PER_S**2 * elapsed_s
        # The tenth of the scale lets a part that is 0 rise again.
        aa = self._aa[at] + drift * np.square(np.maximum(a, 0.1 * scale))
        bb = self._bb[at] + drift * np.square(np.maximum(b, 0.1 * per_tuple))
        most_a, most_b = np.square(scale), np.square(np.maximum(b, per_tuple))
        aa = np.where(afresh, most_a, np.minimum(aa, most_a))
        bb = np.where(afresh, most_b, np.minimum(bb, most_b))
        limit = 0.999 * np.sqrt(aa * bb)
        return aa, np.where(afresh, 0.0, np.clip(self._ab[at], -limit, limit)), bb

    def _fold_selectivity(self, came: Floats, out: Floats, elapsed_s: float) -> None:
        """Update the selectivities. A window may emit while nothing comes in; a box that is idle on both sides keeps
        its weights."""
        if came.shape[0] == 0:
            return
        gone = np.add.reduceat(out, self.port_start[:-1])
        keep = np.where((came > 0) | (gone > 0), np.exp(-elapsed_s / SELECTIVITY_TAU_S), 1.0)
        self._seen_in[:] = keep * self._seen_in + came
        self._seen_out[:] = keep[self.port_box] * self._seen_out + out
        self.port_selectivity[:] = self._seen_out / np.maximum(self._seen_in[self.port_box], 1e-9)
        self.selectivity[:] = np.add.reduceat(self.port_selectivity, self.port_start[:-1])


_BY_BOX = (
    "cost_per_call_ns", "cost_per_tuple_ns", "selectivity", "train_tuples", "tuple_bytes", "observed_calls",
    "_aa", "_ab", "_bb", "_clipped_ticks", "_seen_in", "pair_rate", "_met", "_made",
)  # fmt: skip
_BY_OUTPUT = ("output_cost_ns", "_delivered", "_delivery_ns")
_BY_PORT = ("port_selectivity", "_seen_out")


def port_starts(network: Network) -> Index:
    """Return the index of each box's first port in one list of all ports; last, the number of ports."""
    return np.concatenate([[0], np.cumsum([max(1, len(b.ports)) for b in network.boxes])]).astype(np.intp)


def _width(schema: Schema) -> int:
    """Return the bytes of a tuple without NULLs that shares its arrival stamp with its train."""
    return max(1, sum(f.type.dtype.itemsize for f in schema))
