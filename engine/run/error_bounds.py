"""Refuse ``max_error`` of an output where no box before it can keep it."""

from __future__ import annotations

from catalog.network import Network

Refusal = tuple[tuple[str, ...], str, str]
"""The place in the network file, the message, and a hint."""


def unbounded_errors(network: Network) -> list[Refusal]:
    """Return what is wrong with ``max_error``, by output."""
    found: list[Refusal] = []
    for output in network.outputs:
        if output.qos.max_error is None:
            continue
        path = ("outputs", output.name, "qos", "max_error")
        before = [n for n in network.boxes if output.number in network.box_outputs[n.number]]
        approximate = [n for n in before if n.box.under_loss() == "approximate"]
        if not approximate:
            found.append((path, "no approximate aggregate leads to this output: its results have no error",
                          "an aggregate needs approximate: {confidence: 95%}"))  # fmt: skip
        found += [
            (path, f"{node.name}: {why}", "take these fields out, or give them an aggregate of their own")
            for node in approximate
            if (why := node.box.unbounded())
        ]
    return found
