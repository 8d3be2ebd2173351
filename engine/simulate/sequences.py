"""A plan's sequence as the simulator runs it: the workers' table with costs and selectivities.

Where a box's output goes is read from ``engine/run/followers``, the table that the workers compile a plan from. This
module adds the selectivity of each port, and finds the usual plan: a line of boxes, each of which hands everything on
to the next one. A line needs no inbox, so it is run in one pass (``Execution``).
"""

from __future__ import annotations

from typing import NamedTuple

from catalog.network import Network
from catalog.stats import Statistics
from engine.run.followers import sequence_steps
from engine.run.fuse import chain_length


class SimulatedPort(NamedTuple):
    """One output port at one step: its selectivity, and its arcs by where they lead (``Followers``)."""

    selectivity: float
    handed_on: tuple[int, ...]
    queued: tuple[int, ...]
    delivered: tuple[int, ...]


class SimulatedStep(NamedTuple):
    """One box at its place in a plan."""

    box: int
    in_arcs: tuple[int, ...]
    ports: tuple[SimulatedPort, ...]


Operator = tuple[SimulatedStep, ...]
"""The steps that run without a look at what waits: one box, or a fused chain."""


class LineBox(NamedTuple):
    """One box of a line."""

    box: int
    call_ns: float  # with the engine's overhead of a call
    tuple_ns: float
    selectivity: float


class Line(NamedTuple):
    """A plan whose boxes hand everything on to the next one."""

    arc: int  # from which the first box takes
    boxes: tuple[LineBox, ...]
    queued: tuple[int, ...]  # arcs on which the last box puts its tuples
    outputs: tuple[int, ...]  # to which the last box delivers


class Sequences:
    """The sequences of one simulation, each compiled on its first use and kept."""

    def __init__(self, network: Network, statistics: Statistics, call_overhead_ns: float, fuses: bool = True) -> None:
        self._network = network
        self._fuses = fuses  # chains of filters and maps are one operator
        self._call_overhead_ns = call_overhead_ns
        self._call_ns: list[float] = statistics.cost_per_call_ns.tolist()
        self._tuple_ns: list[float] = statistics.cost_per_tuple_ns.tolist()
        self._selectivity: list[float] = statistics.port_selectivity.tolist()
        self._port_start: list[int] = statistics.port_start.tolist()
        self._steps: dict[tuple[int, ...], tuple[SimulatedStep, ...]] = {}
        self._lines: dict[tuple[int, ...], Line | None] = {}
        self._operators: dict[tuple[int, ...], tuple[Operator, ...]] = {}

    def steps(self, boxes: tuple[int, ...]) -> tuple[SimulatedStep, ...]:
        """Return the steps of a plan, one for each of these boxes."""
        steps = self._steps.get(boxes)
        if steps is None:
            steps = self._steps[boxes] = self._compile(boxes)
        return steps

    def line(self, boxes: tuple[int, ...]) -> Line | None:
        """Return the plan as a line; None if it is not one."""
        try:
            return self._lines[boxes]
        except KeyError:
            line = self._lines[boxes] = self._compile_line(boxes)
            return line

    def operators(self, boxes: tuple[int, ...]) -> tuple[Operator, ...]:
        """Return the operators of a plan, between which it may end: its steps, a fused chain as one."""
        operators = self._operators.get(boxes)
        if operators is None:
            operators = self._operators[boxes] = self._compile_operators(boxes)
        return operators

    def _compile_operators(self, boxes: tuple[int, ...]) -> tuple[Operator, ...]:
        table, steps = sequence_steps(self._network, boxes), self.steps(boxes)
        operators: list[Operator] = []
        at = 0
        while at < len(steps):
            length = chain_length(self._network, table, at) if self._fuses else 1
            operators.append(steps[at : at + length])
            at += length
        return tuple(operators)

    def _compile(self, boxes: tuple[int, ...]) -> tuple[SimulatedStep, ...]:
        return tuple(
            SimulatedStep(
                step.box,
                step.in_arcs,
                tuple(
                    SimulatedPort(self._selectivity[port], *followers)
                    for port, followers in enumerate(step.ports, self._port_start[step.box])
                ),
            )
            for step in sequence_steps(self._network, boxes)
        )

    def _compile_line(self, boxes: tuple[int, ...]) -> Line | None:
        table = sequence_steps(self._network, boxes)
        last = table[-1]
        if not all(step.is_chained for step in table[:-1]) or len(table[0].in_arcs) != 1 or len(last.ports) != 1:
            return None
        [ends] = last.ports
        outputs = [self._network.arcs[a].output for a in ends.delivered]
        return Line(
            arc=table[0].in_arcs[0],
            boxes=tuple(self._line_box(box) for box in boxes),
            queued=ends.queued,
            outputs=tuple(o for o in outputs if o is not None),
        )

    def _line_box(self, box: int) -> LineBox:
        selectivity = self._selectivity[self._port_start[box]]
        return LineBox(box, self._call_ns[box] + self._call_overhead_ns, self._tuple_ns[box], selectivity)
