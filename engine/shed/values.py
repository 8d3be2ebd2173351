"""What a tuple on an arc is worth to the outputs behind it: ``prefer`` and value graphs, judged before the boxes.

An output says which of *its* tuples matter. On an arc further up that can be judged when every box in between keeps the
fields that it speaks of, as they are: then a tuple's worth there is that of what becomes of it. Where several outputs
behind an arc say something, their utilities are added (and scaled to [0, 1], for the histogram). NULL and NaN are worth
nothing: no predicate is true of them, and no graph has a point for them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from catalog.errors import ExpressionError
from catalog.network import Arc, Network, Output
from catalog.schema import Schema, Type
from engine.expressions import Scope, compile_expression
from storage.train import Train

Utilities = npt.NDArray[np.float64]
Judge = Callable[[Train], Utilities]


Remark = tuple[tuple[str, ...], str, str]
"""A place in the network file, what is to be said about it, and what to do."""


class Judges:
    """The judges of every arc that has one, made when they are asked for."""

    def __init__(self, network: Network) -> None:
        self._network = network
        self._judges: dict[int, Judge | None] = {}

    def judge(self, arc: int) -> Judge | None:
        """Utilities in [0, 1] of a train's tuples on this arc; None where no output behind it can say."""
        if arc not in self._judges:
            self._judges[arc] = _judge(self._network, self._network.arcs[arc])
        return self._judges[arc]

    @property
    def semantic_arcs(self) -> frozenset[int]:
        """Where drops may go by value."""
        return frozenset(a.number for a in self._network.arcs if self.judge(a.number) is not None)


def outputs_behind(network: Network, arc: Arc) -> tuple[int, ...]:
    return (arc.output,) if arc.output is not None else network.box_outputs[arc.box] if arc.box is not None else ()


def _judge(network: Network, arc: Arc) -> Judge | None:
    judges = [
        judge
        for o in outputs_behind(network, arc)
        if (judge := _output_judge(network, arc, network.outputs[o])) is not None
    ]
    if not judges:
        return None
    if len(judges) == 1:
        return judges[0]
    return lambda train: np.sum([judge(train) for judge in judges], axis=0) / len(judges)


def _output_judge(network: Network, arc: Arc, output: Output) -> Judge | None:
    qos = output.qos
    if qos.value is not None:
        if not _reaches(network, arc, output, [qos.value_field]) or not _is_number(arc.schema, qos.value_field):
            return None
        column, graph = arc.schema.index(qos.value_field), qos.value

        def by_value(train: Train) -> Utilities:
            worth = np.nan_to_num(graph.utilities(train.columns[column]), nan=0.0)
            valid = train.null_mask(column)
            return worth if valid is None else np.where(valid, worth, 0.0)

        return by_value
    if not qos.prefer:
        return None
    try:
        predicate = compile_expression(qos.prefer, arc.schema, expect=Type.BOOLEAN)
    except ExpressionError:
        return None
    if not _reaches(network, arc, output, predicate.fields):
        return None

    def by_preference(train: Train) -> Utilities:
        mask = predicate.mask(Scope(train))
        return np.ones(train.count) if mask is None else mask.astype(np.float64)

    return by_preference


def _is_number(schema: Schema, field: str) -> bool:
    return field in schema and schema[field].type.is_numeric


def _reaches(network: Network, arc: Arc, output: Output, fields: Sequence[str] | frozenset[str]) -> bool:
    """Whether every box on every way from the arc to the output keeps these fields as they are."""
    if arc.output is not None:
        return arc.output == output.number
    stack, seen = [arc.box], set()
    while stack:
        box = stack.pop()
        if box is None or box in seen or output.number not in network.box_outputs[box]:
            continue
        seen.add(box)
        node = network.boxes[box]
        if not all(node.box.keeps(f) for f in fields):
            return False
        stack += [network.arcs[a].box for arcs in node.out_arcs for a in arcs]
    return True


def unjudged(network: Network) -> list[Remark]:
    """Outputs that say which tuples matter, where that cannot be seen before the last box: what is dropped further up
    goes at random."""
    found: list[Remark] = []
    for output in network.outputs:
        key = "prefer" if output.qos.prefer else "value" if output.qos.value is not None else ""
        own = network.arcs[output.arc]
        before = [a for a in network.arcs if a.box is not None and output.number in outputs_behind(network, a)]
        if not key or own.source.box is None or any(_output_judge(network, a, output) is not None for a in before):
            continue
        if any(s.overload == "shed" for s in network.streams):
            message = f"what '{output.name}' values is seen only after its last box: earlier drops go at random"
            hint = "let the boxes before it keep the fields as they are, under their names"
            found.append((("outputs", output.name, "qos", key), message, hint))
    return found
