"""Superboxes: sets of boxes that are scheduled as one (P0 section 4).

Where no two applications share a box, a superbox is the tree of boxes above an output, as in the paper. Where they do,
a tree would belong to two applications and a box could run in two plans at once. So a shared box is the root of its own
superbox, together with all boxes above it that lead to it alone. Every box is then in exactly one superbox, and the
boxes inside hand trains to each other without a queue.

Under ``unit: vpipe`` an application is the whole DAG, whatever it shares: all boxes that arcs connect, as one *line*
(P2 section 3).
"""

from __future__ import annotations

from dataclasses import dataclass

from catalog.network import Network


@dataclass(frozen=True, slots=True)
class Superbox:
    """Boxes in post-order: every box after all boxes that feed it, the root last."""

    number: int
    root: int
    boxes: tuple[int, ...]


def static_superboxes(network: Network) -> tuple[Superbox, ...]:
    """Divide the network into superboxes, numbered in the order of their roots."""
    root_of: dict[int, int] = {}
    for node in reversed(network.boxes):  # consumers before their feeders
        roots = {root_of[consumer] for consumer in network.fed[node.number]}
        delivers = any(network.arcs[a].output is not None for arcs in node.out_arcs for a in arcs)
        root_of[node.number] = roots.pop() if len(roots) == 1 and not delivers else node.number
    members: dict[int, set[int]] = {}
    for box, root in root_of.items():
        members.setdefault(root, set()).add(box)
    return tuple(
        Superbox(number, root, post_order(network, root, members[root])) for number, root in enumerate(sorted(members))
    )


def lines(network: Network) -> tuple[Superbox, ...]:
    """Return the applications of the network, each as one line: every box after all boxes that feed it."""
    line_of: dict[int, int] = {}
    for node in network.boxes:
        if node.number in line_of:
            continue
        stack = [node.number]
        while stack:
            box = stack.pop()
            if line_of.setdefault(box, node.number) == node.number:
                stack += [b for b in (*network.fed[box], *network.feeders[box]) if b not in line_of]
    members: dict[int, list[int]] = {}
    for box in range(len(network.boxes)):  # a box's number is above those of its feeders
        members.setdefault(line_of[box], []).append(box)
    return tuple(Superbox(number, boxes[-1], tuple(boxes)) for number, boxes in enumerate(members.values()))


def post_order(network: Network, root: int, members: set[int]) -> tuple[int, ...]:
    """Return the members from the leaves to the root, each after its feeders.

    Without recursion: a chain may be thousands of boxes long.
    """
    order: list[int] = []
    seen: set[int] = set()
    stack: list[tuple[int, bool]] = [(root, False)]
    while stack:
        box, feeders_done = stack.pop()
        if feeders_done:
            order.append(box)
        elif box not in seen:
            seen.add(box)
            stack.append((box, True))
            stack.extend((f, False) for f in reversed(network.feeders[box]) if f in members and f not in seen)
    return tuple(order)
