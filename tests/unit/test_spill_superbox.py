"""A superbox with a queue inside it that is partly on disk."""

from __future__ import annotations

from queue import SimpleQueue

from catalog.network import Network
from engine.run.network_file import read_network
from scheduler.claims import QueuedPlan
from scheduler.events import Enqueued
from scheduler.loop import SchedulerLoop
from scheduler.plan import Plan, Step
from scheduler.policies import policies
from scheduler.state import SchedulerState
from storage.queue import ALL
from storage.spill_files import SpillFiles
from storage.spilling import SpillingStorage
from storage.train import Train
from tests.crash.crash_files import CrashFiles
from tests.unit.storage_harness import ignore_expired, ignore_room

NETWORK = """
streams: {t: {schema: {a: int}, overload: spill}}
boxes:
  first: {filter: t, where: "a > 0"}
  second: {filter: first, where: "a > 0"}
outputs: {o: {from: second}}
"""


def loop_with_spill(network: Network) -> tuple[SchedulerLoop, SpillingStorage, SimpleQueue[QueuedPlan]]:
    queue: SimpleQueue[QueuedPlan] = SimpleQueue()
    state = SchedulerState(network)

    def announce(arcs: tuple[int, ...], train: Train, nbytes: int) -> None:
        loop.mailbox.put(Enqueued(arcs, train.count, 0, 0, nbytes))

    storage = SpillingStorage(
        [arc.schema for arc in network.arcs], 400, SpillFiles(CrashFiles()), [True] * len(network.arcs),
        announce=announce, wake_scheduler=lambda: None, wake_spiller=lambda: None,
        on_room=ignore_room, on_expired=ignore_expired,
    )  # fmt: skip
    loop = SchedulerLoop(state, policies()["round_robin"], storage, queue, 1, lambda: 0, lambda: 0)
    return loop, storage, queue


def test_a_superbox_ends_where_a_queue_is_on_disk() -> None:
    network = read_network(NETWORK, {})
    loop, storage, queue = loop_with_spill(network)
    schema = network.streams[0].schema
    outer, inner = network.box("first").in_arcs[0], network.box("second").in_arcs[0]
    storage.pin_bytes = 0
    storage.rank([inner])
    for start in range(0, 400, 50):  # more than the budget, on the arc inside the superbox
        storage.enqueue((inner,), Train.from_pylists(schema, {"a": list(range(start, start + 50))}, 0))
    assert storage.is_spilled(inner) and not storage.is_spilled(outer)
    for event in loop.mailbox.drain():
        loop.state.apply(event)
    storage.enqueue((outer,), Train.from_pylists(schema, {"a": [1]}, 0))
    for event in loop.mailbox.drain():
        loop.state.apply(event)
    boxes = (network.box("first").number, network.box("second").number)
    loop.dispatch(Plan(tuple(Step(box, ALL) for box in boxes)))
    _, claims = queue.get()
    assert not claims[inner].emptied, "what bypassed it would overtake what is on disk"
