"""A superbox with a queue inside it that is partly on disk."""

from __future__ import annotations

from queue import SimpleQueue

from catalog.network import Network
from engine.run.network_file import read_network
from scheduler.claims import QueuedPlan
from scheduler.events import Enqueued, Finished
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


def spilled_inside(network: Network) -> tuple[SchedulerLoop, SpillingStorage, SimpleQueue[QueuedPlan]]:
    """More than the budget on the queue inside the superbox, of which 50 tuples are in memory; one tuple before it."""
    loop, storage, queue = loop_with_spill(network)
    schema = network.streams[0].schema
    outer, inner = network.box("first").in_arcs[0], network.box("second").in_arcs[0]
    storage.pin_bytes = 200
    storage.rank([inner])
    for start in range(0, 400, 50):
        storage.enqueue((inner,), Train.from_pylists(schema, {"a": list(range(start, start + 50))}, 0))
    assert storage.is_spilled(inner) and not storage.is_spilled(outer)
    storage.enqueue((outer,), Train.from_pylists(schema, {"a": [1]}, 0))
    for event in loop.mailbox.drain():
        loop.state.apply(event)
    return loop, storage, queue


def whole(network: Network) -> Plan:
    return Plan(tuple(Step(network.box(name).number, ALL) for name in ("first", "second")))


def test_a_superbox_ends_where_a_queue_is_on_disk() -> None:
    network = read_network(NETWORK, {})
    loop, _, queue = spilled_inside(network)
    loop.dispatch(whole(network))
    _, claims = queue.get()
    inner = network.box("second").in_arcs[0]
    assert not claims[inner].emptied, "what bypassed it would overtake what is on disk"


def test_the_search_upstream_ends_at_the_box_whose_queue_is_on_disk() -> None:
    """P3: the second box runs on its tuples in memory; the first would only send more to the disk. Once the second has
    nothing in memory, the first runs."""
    network = read_network(NETWORK, {})
    loop, storage, queue = spilled_inside(network)
    outer, inner = network.box("first").in_arcs[0], network.box("second").in_arcs[0]
    in_memory = storage.queues[inner].tuples
    plan = whole(network)
    loop.dispatch(plan)
    _, claims = queue.get()
    assert in_memory and sum(t.count for t in claims[inner].trains) == in_memory
    assert outer not in claims and loop.state.arcs[outer].tuples == 1
    loop.state.apply(Finished(plan))
    plan = whole(network)
    loop.dispatch(plan)
    _, claims = queue.get()
    assert sum(t.count for t in claims[outer].trains) == 1
