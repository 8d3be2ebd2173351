"""Bugs that the crash tests plant in the product, to prove that they would catch them.

A test of a guarantee is worth what it catches. Each plant is a mistake that a storage engine has really been shipped
with, or that this one had. ``plant(name)`` makes the mistake for the duration of a ``with`` block: it replaces a
function, method or constant of the product. The product itself knows nothing of this.

A plant whose target no longer exists raises ``AttributeError`` as it is planted. A plant whose target is no longer
called lets its scenario pass, and ``test_plants.py`` then fails.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from engine.daemon.durable.checkpointer import Checkpointer
from engine.daemon.durable.committer import Committer
from engine.daemon.durable.cut import _Queues
from engine.daemon.durable.keeper import Keeper
from engine.daemon.durable.records import OUTPUT
from engine.daemon.durable.recovery import Recovery
from router import client_protocol
from router.access.logins import Logins
from router.access.owners import NameOwners
from router.event_time import StreamClock
from router.spark.daemon.batches import BatchLedger
from scheduler.claims import Claims
from storage.admission import Admission, Standing
from storage.checkpoint import Checkpoints
from storage.log import Log
from storage.manager import StorageManager
from storage.spill_files import SpillFiles
from storage.string_account import StringAccount

Original = Callable[..., Any]
Make = Callable[[Original], Any]
"""Returns the wrong function, or the wrong constant."""


@contextmanager
def replaced(owner: Any, name: str, make: Make) -> Iterator[None]:
    """Replace ``owner.name`` with ``make(original)``. AttributeError when ``owner`` itself does not define the name."""
    if name not in vars(owner):
        raise AttributeError(f"{owner.__name__}.{name} is gone: plant this elsewhere")
    original = vars(owner)[name]
    setattr(owner, name, make(original))
    try:
        yield
    finally:
        setattr(owner, name, original)


def _does(result: Any) -> Make:
    """Do nothing and return this."""
    return lambda original: lambda *arguments, **named: result


# -- the mistakes -----------------------------------------------------------------------------------------------------


def _acknowledge_before_sync(original: Original) -> Original:
    tell = vars(Committer)["_acknowledge"]

    def append(self: Committer, group: Any, inputs: Any, now_ns: int) -> Any:
        emitted = original(self, group, inputs, now_ns)
        tell(self, inputs)
        return emitted

    return append


def _sync_again(original: Original) -> Original:
    def sync(self: Log, file: Any) -> None:
        try:
            file.sync()
        except OSError:
            file.sync()

    return sync


def _replay_without_batches(original: Original) -> Original:
    return lambda self, stream, train, now_ns, batches: original(self, stream, train, now_ns, [])


def _prune_first(original: Original) -> Original:
    def persist(self: Checkpointer, cut: Any, *rest: Any) -> None:
        self._prune(cut.position)
        original(self, cut, *rest)

    return persist


def _without_trains(original: Original) -> Original:
    return lambda self, arc, content: original(self, arc, content._replace(trains=[]))


def _clock_ahead(original: Original) -> Original:
    return lambda self, data: original(self, {**data, "watermark_ns": data["watermark_ns"] + 25 * 10**9})


def _without_outputs(original: Original) -> Original:
    return lambda self: (found for found in original(self) if found[0].kind != OUTPUT)


def _first_record_twice(original: Original) -> Original:
    def replay(self: Recovery, engine: Any, admit: Any, on_progress: Any) -> int:
        admitted = 0

        def admit_twice(stream: int, train: Any, now_ns: int, batches: Any) -> None:
            nonlocal admitted
            for _ in range(1 if admitted else 2):
                admit(stream, train, now_ns, batches)
            admitted += train.count

        return int(original(self, engine, admit_twice, on_progress))

    return replay


def _trust_segments(original: Original) -> Original:
    def sync(self: SpillFiles) -> None:
        try:
            original(self)
        finally:
            for segment in self._segments.values():
                segment.is_lost = False

    return sync


def _decide_in_memory(original: Original) -> Original:
    def write(self: BatchLedger, epoch: int, queries: Any, pending: Any) -> None:
        self._epoch, self._queries, self._pending = epoch, queries, pending
        original(self, epoch, queries, pending)

    return write


class Plant:
    """A mistake in words, and the replacements that make it."""

    def __init__(self, mistake: str, *replacements: tuple[Any, str, Make]) -> None:
        self.mistake = mistake
        self.replacements = replacements


PLANTS = {
    "ack_before_sync": Plant(
        "acknowledge a group when it is written and not yet synced",
        (Committer, "_append", _acknowledge_before_sync),
        (Committer, "_acknowledge", _does(None)),
    ),
    "retry_sync": Plant("call sync again after it failed, and believe it", (Log, "_sync", _sync_again)),
    "truncate_damage": Plant(
        "take damage in the middle of the log for a torn tail",
        (Log, "_is_torn_tail", _does(True)),
        (Log, "_check_end", _does(None)),  # the mark beside the log would show it too
    ),
    "dedup_in_memory": Plant(
        "forget at a restart which batches were admitted",
        (Admission, "restore", _does(None)),
        (Keeper, "_enter_replayed", _replay_without_batches),
    ),
    "accept_gap": Plant(
        "admit a batch although the ones before it never came",
        (Standing, "is_gap", _does(False)),
        (Committer, "_without_gaps", lambda original: lambda self, group: group),
    ),
    "unlink_before_persist": Plant(
        "remove log segments before the checkpoint that replaces them is on disk",
        (Checkpointer, "_persist", _prune_first),
    ),
    "checkpoint_in_place": Plant(
        "give a checkpoint its name before its bytes are synced",
        (Checkpoints, "_sync", _does(None)),
        (Checkpoints, "_sync_part_names", _does(None)),
    ),
    "cut_without_queues": Plant(
        "leave the trains that wait on arcs out of a checkpoint", (_Queues, "_arc", _without_trains)
    ),
    "window_off_by_one": Plant("restore a stream's clock one window too far", (StreamClock, "restore", _clock_ahead)),
    "spill_overtakes": Plant(
        "let a train bypass a queue that has older trains on disk", (Claims, "_stop_at_disk", _does(None))
    ),
    "forget_sent": Plant(
        "number the outputs again from the checkpoint after a crash", (Recovery, "_notes", _without_outputs)
    ),
    "replay_twice": Plant(
        "replay the first record behind the checkpoint twice", (Recovery, "replay", _first_record_twice)
    ),
    "trust_failed_segment": Plant(
        "take a spilled segment for good after a sync of it has failed", (SpillFiles, "sync", _trust_segments)
    ),
    "decide_in_memory": Plant(
        "go by a decision about a batch of Spark that could not be written", (BatchLedger, "_write", _decide_in_memory)
    ),
    "leak_input": Plant("never give back the memory of a plan's input", (StorageManager, "unpin", _does(None))),
    "strings_for_free": Plant("count no strings in the memory budget", (StringAccount, "enter", _does(None))),
    "checkpoint_for_free": Plant(
        "forget the memory of trains that a checkpoint is writing", (StorageManager, "hold", _does([]))
    ),
    "believe_header": Plant(
        "count as many tuples as the header of a batch claims", (client_protocol, "TUPLES_A_BYTE", lambda _: 2**62)
    ),
    "guess_for_ever": Plant("slow failed logins down by nothing", (Logins, "_must_wait_s", _does(0.0))),
    "any_name": Plant("let everybody use the name of a reader", (NameOwners, "may_use", _does(True))),
}


@contextmanager
def plant(name: str) -> Iterator[None]:
    """Make this mistake inside the block."""
    with ExitStack() as planted:
        for owner, target, make in PLANTS[name].replacements:
            planted.enter_context(replaced(owner, target, make))
        yield
