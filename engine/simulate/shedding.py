"""A simulation in which arcs lose tuples, with the counters that the daemon's monitor reads.

Apart from ``core``, because most simulations shed nothing and run lines of boxes at a stroke; here every box is run by
itself and counted. What an arc keeps is exact and without chance, as selectivities are.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import floor
from typing import Any

from engine.simulate.core import JOINED_TUPLES, TRAIN, Port, Simulation
from engine.simulate.storage import SimulatedTrain
from scheduler.loop import Claim


class SheddingSimulation(Simulation):
    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        network = self.network
        self.kept: Mapping[int, float] = {}  # by arc on which something is dropped: the share that stays
        self.shed = [0] * len(network.arcs)  # tuples dropped so
        self.calls = [0] * len(network.boxes)
        self.tuples_in = [0] * len(network.boxes)
        self.cost_ns = [0.0] * len(network.boxes)
        self.out = [0] * len(self.statistics.port_box)  # by flat port
        self.emitted = [0] * len(network.outputs)
        self.busy_ns = 0  # of all workers
        self._owed = [0.0] * len(network.arcs)  # what dropping has rounded off so far

    def _admit(self, stream: int, count: int) -> None:
        now_ns = self.now_ns
        train = SimulatedTrain(count, now_ns, now_ns, now_ns)
        self.arrived += count
        self.came_tuples[stream] += count
        self.came_trains[stream] += 1
        for arc in self._stream_arcs[stream]:
            if (left := self._thin(arc, train)) is not None:
                self._enqueue((arc,), left)
        for output in self._stream_outputs[stream]:
            self._deliver(output, train, now_ns)

    def _execute(self, boxes: tuple[int, ...], claims: Mapping[int, Claim]) -> int:
        end_ns = self._run_steps(boxes, claims)
        self.busy_ns += end_ns - self.now_ns
        return end_ns

    def _emit(
        self,
        box: int,
        ports: tuple[Port, ...],
        train: SimulatedTrain,
        now_ns: float,
        inbox: dict[int, list[SimulatedTrain]],
        cut: set[int],
    ) -> float:
        count, seen = train.count, self._seen[box]
        self._seen[box] = seen + count
        calls = max(1, -(-count // JOINED_TUPLES))
        self.calls[box] += calls
        self.tuples_in[box] += count
        self.cost_ns[box] += calls * self._call_ns[box] + count * self._tuple_ns[box]
        for port, (selectivity, bypass, queued, outputs) in enumerate(ports, self._port_start[box]):
            passed = floor((seen + count) * selectivity) - floor(seen * selectivity)
            if not passed:
                continue
            self.out[port] += passed
            whole = train.with_count(passed)
            for arc in (*bypass, *queued):
                out = self._thin(arc, whole)
                if out is None:
                    continue
                if arc in queued or arc in cut:
                    self._put += 1
                    now_ns += self.overheads.claim_ns
                    self._push(int(now_ns), TRAIN, ((arc,), out))
                else:
                    inbox[arc] = [*inbox.get(arc, ()), out]
            for output in outputs:
                self._deliver(output, whole, int(now_ns))
        return now_ns

    def _deliver(self, output: int, train: SimulatedTrain, now_ns: int) -> None:
        left = self._thin(self.network.outputs[output].arc, train)
        if left is not None:
            self.emitted[output] += left.count
            self.recorders[output].deliver(left, now_ns)

    def _thin(self, arc: int, train: SimulatedTrain) -> SimulatedTrain | None:
        """What is left of a train on this arc."""
        kept = self.kept.get(arc)
        if kept is None:
            return train
        owed = self._owed[arc] + train.count * kept
        passed = min(int(owed), train.count)
        self._owed[arc] = owed - passed
        self.shed[arc] += train.count - passed
        return train.with_count(passed) if passed else None
