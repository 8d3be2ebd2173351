"""The engine as the Spark pipeline sees it: where rows enter, and where tuples come from that Spark must not lose."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from router.codecs.base import Reject
from router.spark.pipeline import Engine as SparkEngine
from storage.admission import Entry, Verdict
from storage.train import Train

if TYPE_CHECKING:
    from engine.daemon import Daemon
    from engine.durable.desk import OutputHistory
    from engine.durable.keeper import Keeper
    from engine.durable.outbox import Piece

BULK_BYTES = 2 * 1024**2
"""Rows from Spark enter while less than this waits in the queues: what a live tuple may meet in front of it."""


def spark_engine(
    daemon: Daemon,
    enter: Callable[[int, Train], None],
    has_room: Callable[[], bool],
    call_on_io: Callable[..., object],
) -> SparkEngine:
    """``enter`` puts a train into the network, by way of the log where there is one."""
    storage, keeper = daemon.engine.storage, daemon.keeper

    def admit(stream: int, train: Train) -> None:
        daemon.watch_stream(stream, train)
        enter(stream, train)

    def letters(stream: str, peer: str, rejects: Sequence[Reject]) -> None:
        call_on_io(daemon.server.dead_letters.add, daemon.now_ns(), stream, peer, rejects)

    def history(output: int) -> KeptHistory | None:
        return None if keeper is None else KeptHistory(keeper, output)

    return SparkEngine(
        admit=admit,
        end=lambda stream: admit(stream, daemon.event_time.end(stream)),
        rest=daemon.event_time.rest,
        may_enter=lambda: has_room() and storage.used_bytes < BULK_BYTES,
        letters=letters,
        now_ns=daemon.now_ns,
        block_output=daemon.engine.block_output,
        room_again=daemon.server.room_again,
        data_dir=daemon.network.config.engine.data_dir,
        numbered=None if keeper is None else KeptTrains(keeper, daemon.watch_stream),
        history=history,
    )


class KeptTrains:
    """Trains of bulk jobs with their numbers, into the log. See ``router.spark.loads.Numbered``."""

    def __init__(self, keeper: Keeper, watch: Callable[[int, Train], None]) -> None:
        self._keeper = keeper
        self._watch = watch

    def submit(self, stream: int, train: Train, source: str, epoch: int, sequence: int) -> bool | None:
        entry = Entry(source, epoch, sequence)
        committer = self._keeper.committer
        with committer.table:
            verdict = committer.admissions[stream].offer(entry)
        if verdict is Verdict.DUPLICATE:
            return False
        if verdict is not Verdict.NEW:
            return None
        self._watch(stream, train)
        self._keeper.submit(stream, train, entry)
        return True

    def committed(self, stream: int, source: str, epoch: int) -> int:
        committer = self._keeper.committer
        with committer.table:
            return committer.admissions[stream].committed(source, epoch)


class KeptHistory:
    """An output's tuples in the log. See ``router.spark.feeds.History``."""

    def __init__(self, keeper: Keeper, output: int) -> None:
        from engine.durable.desk import OutputHistory

        self._history: OutputHistory = OutputHistory(keeper, output)
        self._outbox = keeper.outboxes[output]

    @property
    def newest(self) -> int:
        return self._outbox.next - 1

    @property
    def readable(self) -> int:
        return self._outbox.readable

    @property
    def oldest(self) -> int:
        """The lowest number that is still there."""
        outbox = self._outbox
        with outbox.lock:
            return outbox.index[0][0] if outbox.index else outbox.readable + 1

    def subscribe(self, name: str, after: int | None) -> int:
        return self._history.subscribe(name, after)

    def acknowledge(self, name: str, number: int) -> None:
        self._history.acknowledge(name, number)

    def forget(self, name: str) -> None:
        self._history.forget(name)

    def read(self, name: str, after: int, limit_bytes: int) -> list[Piece]:
        return self._history.read(name, after, limit_bytes)
