"""The outputs of a data_dir in a change of the network: which go on, which begin anew, which are gone.

Everything is found by name. An output that stays has its numbers and its readers also when it is rebuilt, because a
number never means another tuple. An output that is gone leaves its last number behind: one of that name that comes
later counts on from there.

A removed output with readers that have not read everything loses these tuples. That must be confirmed, like the loss of
state (``unread``). It is asked again when the engine stands still: then no tuple comes any more.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from catalog.network import Network, PortRef
from engine.daemon.durable.data_format import DataFormat
from engine.daemon.durable.histories import LoggedHistory
from engine.daemon.durable.outbox import Outbox
from engine.run.ingress import ConnectionPoint

PAST_AT_MOST = 10_000
"""Names of outputs that are gone and whose last number is kept."""


class FollowingOutputs(NamedTuple):
    """Of the network that is to follow, by output; and the histories of its places."""

    outboxes: list[Outbox]
    histories: list[LoggedHistory]
    points: Mapping[PortRef, ConnectionPoint]


def following_outboxes(
    network: Network, outboxes: Sequence[Outbox], past: Mapping[str, int], format: DataFormat
) -> list[Outbox]:
    """Return an outbox for each output of the next network: the present one of its name, or a new one."""
    known = {outbox.output.name: outbox for outbox in outboxes}
    found: list[Outbox] = []
    for output in network.outputs:
        outbox = known.get(output.name)
        if outbox is None:
            outbox = Outbox(output, format)
            outbox.next = past.get(output.name, 1)
            outbox.readable = outbox.next - 1
        found.append(outbox)
    return found


def unread(network: Network, outboxes: Sequence[Outbox], format: DataFormat) -> dict[str, str]:
    """Return, by output, the readers that would lose tuples in a change to this network."""
    after = {output.name: output for output in network.outputs}
    found: dict[str, str] = {}
    for outbox in outboxes:
        name, waiting = outbox.output.name, outbox.unread()
        output = after.get(name)
        is_lost = output is None or (output.schema != outbox.output.schema and format.reads_history(output))
        if waiting and is_lost:
            readers = [f"{reader} ({tuples} tuples)" for reader, tuples in list(waiting.items())[:5]]
            found[name] = ", ".join(readers)
    return found


def remember(past: dict[str, int], gone: Sequence[Outbox]) -> None:
    """Note the next numbers of outputs that are gone; the oldest names are forgotten."""
    for outbox in gone:
        past.pop(outbox.output.name, None)
        past[outbox.output.name] = outbox.next
    while len(past) > PAST_AT_MOST:
        del past[next(iter(past))]
