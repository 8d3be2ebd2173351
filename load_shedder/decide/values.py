"""The worth of a tuple on an arc to the outputs behind it: ``prefer`` and value graphs, evaluated before the boxes.

An output states which of *its own* tuples matter. The same statement can be evaluated on an arc further up when every
box in between keeps the fields of the statement unchanged: then a tuple there is worth as much as the result that it
leads to. Where several outputs behind an arc state a preference, their utilities are added (and scaled to [0, 1], for
the histogram). NULL and NaN are worth nothing: no predicate is true for them, and no graph has a point for them.

``prefer`` is an SQL expression, and this package knows no expressions. The engine hands in the compiler
(``CompilePreference``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt

from catalog.errors import ExpressionError
from catalog.loss import ValueCells
from catalog.network import Arc, Network, Output
from catalog.schema import Schema
from load_shedder.decide.places import outputs_behind
from storage.train import Train

Utilities = npt.NDArray[np.float64]

Valuation = Callable[[Train], Utilities]
"""Return the utility of each tuple of a train, in [0, 1]."""

Remark = tuple[tuple[str, ...], str, str]
"""A place in the network file, the warning about it, and the advice."""

OTHERS_WORTH = 0.25
"""The utility of a tuple for which ``prefer`` is false: such tuples go first, but they still count for something."""


class Preference(Protocol):
    """A compiled ``prefer`` expression over one schema."""

    @property
    def fields(self) -> frozenset[str]:
        """The fields that the expression reads."""

    def mask(self, train: Train) -> npt.NDArray[np.bool_] | None:
        """Return True where the preference holds; None when it holds for every tuple."""


CompilePreference = Callable[[str, Schema], Preference]
"""Compile the text of ``prefer``. Raises ExpressionError when the schema lacks a field of it."""


class Valuations:
    """The valuation of every arc that has one, made on first use."""

    def __init__(self, network: Network, compile_preference: CompilePreference) -> None:
        self._network = network
        self._compile = compile_preference
        self._by_arc: dict[int, Valuation | None] = {}

    def of_arc(self, arc: int) -> Valuation | None:
        """Return the arc's valuation; None where the worth of a tuple cannot be evaluated."""
        if arc not in self._by_arc:
            self._by_arc[arc] = _arc_valuation(self._network, self._network.arcs[arc], self._compile)
        return self._by_arc[arc]

    @property
    def semantic_arcs(self) -> frozenset[int]:
        """The arcs on which drops may go by value."""
        return frozenset(a.number for a in self._network.arcs if self.of_arc(a.number) is not None)


def _arc_valuation(network: Network, arc: Arc, compile_preference: CompilePreference) -> Valuation | None:
    found = [
        valuation
        for o in outputs_behind(network, arc)
        if (valuation := _output_valuation(network, arc, network.outputs[o], compile_preference)) is not None
    ]
    if not found:
        return None
    if len(found) == 1:
        return found[0]
    return lambda train: np.sum([valuation(train) for valuation in found], axis=0) / len(found)


def _output_valuation(
    network: Network, arc: Arc, output: Output, compile_preference: CompilePreference
) -> Valuation | None:
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
        preference = compile_preference(qos.prefer, arc.schema)
    except ExpressionError:
        return None
    if not _reaches(network, arc, output, preference.fields):
        return None

    def by_preference(train: Train) -> Utilities:
        mask = preference.mask(train)
        return np.ones(train.count) if mask is None else mask.astype(np.float64)

    return by_preference


def _is_number(schema: Schema, field: str) -> bool:
    return field in schema and schema[field].type.is_numeric


def _reaches(network: Network, arc: Arc, output: Output, fields: Sequence[str] | frozenset[str]) -> bool:
    """Whether every box on every way from the arc to the output keeps these fields unchanged."""
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


def known_values(network: Network, distributions: Mapping[int, ValueCells]) -> dict[int, ValueCells]:
    """Return, by arc where drops go by value, the worth of its tuples to the output behind it.

    ``prefer`` answers yes or no and not how much, so a tuple for which it is false counts ``OTHERS_WORTH``.
    """
    found: dict[int, ValueCells] = {}
    for arc, values in distributions.items():
        outputs = outputs_behind(network, network.arcs[arc])
        if outputs and all(network.outputs[o].qos.prefer for o in outputs):
            worths = tuple(OTHERS_WORTH + (1 - OTHERS_WORTH) * worth for worth in values.worths)
            values = ValueCells(values.shares, worths)
        found[arc] = values
    return found


def unvalued_drops(network: Network, compile_preference: CompilePreference) -> list[Remark]:
    """List the outputs whose preference cannot be evaluated before their last box: drops further up go at random."""
    found: list[Remark] = []
    for output in network.outputs:
        key = "prefer" if output.qos.prefer else "value" if output.qos.value is not None else ""
        own = network.arcs[output.arc]
        if not key or own.source.box is None:
            continue
        before = [a for a in network.arcs if a.box is not None and output.number in outputs_behind(network, a)]
        if any(_output_valuation(network, a, output, compile_preference) is not None for a in before):
            continue
        if any(s.overload == "shed" for s in network.streams):
            message = (
                f"the worth of a tuple to '{output.name}' is known only after its last box: earlier drops go at random"
            )
            hint = "keep the fields unchanged, and under their names, in the boxes before it"
            found.append((("outputs", output.name, "qos", key), message, hint))
    return found
