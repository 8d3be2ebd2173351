"""The bound boxes of a network, for the next one: to bind a box compiles its expressions, which a change of one query
must not do again for a thousand others.

A bound box is immutable, so two networks may share it. It is used again only where ``bind`` and ``runs_behind`` would
get the same arguments. Boxes that call code of users are bound anew: the code may have changed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from catalog.network import BoxNode, BoxProtocol, Network
from catalog.schema import Schema


class BindArguments(NamedTuple):
    """Everything that a bound box depends on, beside its class and its parameters."""

    inputs: tuple[Schema, ...]
    times: tuple[str | None, ...]
    behind: tuple[bool, ...]


class BoundBoxes:
    """The boxes of a network by name, each with the arguments that it was bound with."""

    def __init__(self, network: Network | None) -> None:
        self._known: dict[str, tuple[BoxNode, BindArguments]] = {}
        self.drafts: Mapping[str, Any] = {} if network is None else network.drafts
        behind: dict[int, bool] = {}
        for node in () if network is None else network.boxes:
            arcs = [network.arcs[a] for a in node.in_arcs] if network is not None else []
            inputs = tuple(arc.source.box is not None and behind[arc.source.box] for arc in arcs)
            behind[node.number] = node.box.runs_behind(inputs)
            times = tuple(arc.time_field for arc in arcs)
            for name in node.names:
                self._known[name] = (node, BindArguments(node.in_schemas, times, inputs))

    def find(self, name: str, cls: type[BoxProtocol], parameters: Any, arguments: BindArguments) -> BoxNode | None:
        """Return the box of this name if it would be bound to the same; None when it must be bound anew."""
        if name not in self._known:
            return None
        node, known = self._known[name]
        if known != arguments or node.box.code_digest or not isinstance(parameters, type(node.box.parameters)):
            return None
        return node if node.kind == cls.kind and node.box.parameters.__dict__ == parameters.__dict__ else None
