"""The keeper of a data_dir: log, histories and checkpoints around one engine, from its start to its end.

    open()     lock the folder, find the newest good checkpoint, check the log, put the state back; nothing runs yet
    replay()   with the engine running and no listener open: enter the trains that the log holds behind the checkpoint
    start()    commit groups and make checkpoints from now on
    stop()     make a last checkpoint, so that the next start replays nothing

A damaged log or checkpoint raises StorageError from ``open``, with the file and the byte, before anything runs.

The keeper is the engine's log (``engine/run/core.DurableLog``): the ingress submits trains, the outputs emit them. It
is also what the committer acts on (``committer.CommitEffects``): a train that is on disk goes on into the network.

Threads: ``submit`` and ``emit`` on any; the committer's thread enters trains; the checkpoint thread makes checkpoints.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from time import monotonic
from typing import Protocol

from catalog.network import Network
from engine.daemon.durable.checkpointer import Checkpointer, KeptCounters
from engine.daemon.durable.commit_thread import CommitThread
from engine.daemon.durable.committer import Committer, GroupOutcome, Input, Note
from engine.daemon.durable.cut import spilled_refs
from engine.daemon.durable.data_folder import DataFolder
from engine.daemon.durable.data_format import DataFormat, FormatError
from engine.daemon.durable.gone_outputs import GoneOutputs
from engine.daemon.durable.histories import LoggedHistory
from engine.daemon.durable.outbox import Outbox
from engine.daemon.durable.recovery import Progress, Recovered, Recovery
from engine.daemon.durable.regenerated import Regenerated
from engine.daemon.durable.restore import SavedState
from engine.daemon.durable.savepoint import make_savepoint
from engine.daemon.history.keeper import HistoryKeeper
from engine.daemon.history.starts import QueryStarts
from engine.run.core import Engine
from engine.run.open_state import BEGUN_ANEW, begin_anew, has_ended
from engine.run.state_home import StateHome
from router.event_time import EventTime
from storage.admission import BatchNumber
from storage.checkpoint import Checkpoints
from storage.files import Files, StorageError
from storage.log import Log
from storage.source_numbers import SourceNumbers
from storage.spill_files import SpillFiles
from storage.train import Train

log = logging.getLogger("aurorad.durable")


class LogReaders(Protocol):
    """The server as the keeper sees it. Called on the committer's thread."""

    def batches_settled(
        self, committed: list[tuple[int, BatchNumber]], refused: list[tuple[int, BatchNumber, int, str]]
    ) -> None:
        """Answer the clients whose batches were committed or refused."""

    def history_grew(self, output: int) -> None:
        """Note that more of an output's history is on disk."""


class Keeper:
    def __init__(
        self,
        network: Network,
        root: str,
        *,
        now_ns: Callable[[], int],
        on_failure: Callable[[Exception], None],
        checkpoint_s: float = 10.0,
        retain_bytes: int = 1024**3,
        files: Files | None = None,
        threads: bool = True,
    ) -> None:
        """Without ``threads`` the owner of the keeper calls ``committer.step`` and ``checkpointer.make`` itself."""
        self.network = network
        self._folder = DataFolder(root, files)
        files = self._folder.files
        self._threads = threads
        self.log = Log(files)
        self.checkpoints = Checkpoints(files, lambda: self.checkpointer.pace())
        self.spill = SpillFiles(files, keep_dead=True)
        self.state_home = StateHome(files)
        self.numbers = SourceNumbers(len(network.streams))
        self._format = DataFormat(files)
        self.outboxes = [Outbox(output, self._format) for output in network.outputs]
        self.committer = Committer(
            self.log,
            files,
            [s.name for s in network.streams],
            [o.name for o in network.outputs],
            self.numbers,
            self,
            now_ns,
        )
        self._commits = CommitThread(self.committer, on_failure)
        self.history = HistoryKeeper(network, files, now_ns, self.room_again)
        self.starts = QueryStarts(self.history, now_ns)
        self.checkpointer = Checkpointer(
            network,
            self.log,
            self.checkpoints,
            self.spill,
            self.state_home,
            self.committer,
            self.outboxes,
            self.history,
            self.starts,
            every_s=checkpoint_s,
            retain_bytes=retain_bytes,
        )
        self.histories = [
            LoggedHistory(outbox, self.log, self.committer, self.checkpointer.ask) for outbox in self.outboxes
        ]
        self._recovery: Recovery | None = None
        self.recovered = Recovered()

    def attach(self, engine: Engine, event_time: EventTime, readers: LogReaders, counters: KeptCounters) -> None:
        """Bind the engine and the server. Later than the constructor, because both are built on this keeper."""
        self._engine = engine
        self._event_time = event_time
        self._clocks = event_time.clocks
        self._readers = readers
        self._counters = counters
        self.checkpointer.attach(engine, event_time.clocks, counters)

    # -- a start ------------------------------------------------------------------------------------------------------

    def open(self) -> None:
        """Lock the folder and restore the newest good checkpoint. StorageError when the folder cannot be trusted."""
        self._folder.lock()
        try:
            with self._folder.start_errors():
                self._open()
        except StorageError:
            self.close()
            raise

    def _open(self) -> None:
        found = self.checkpoints.open()
        for error in self.checkpoints.passed_over:
            log.warning("a bad checkpoint was passed over: %s", error)
        position = found.position if found is not None else 0
        # First everything that may refuse the start, and that only reads; then what changes the folder.
        self._format.read()
        self.log.examine(position)
        saved = None if found is None else SavedState(found, self._folder.files)
        gone = GoneOutputs(self.network, self._folder.root)
        if saved is not None:
            saved.refuse_another_network(self.network, self._folder.root)
            saved.refuse_changed_queues(self._engine, self._folder.root)
            self._format.learn_from_checkpoint(saved.queues["arcs"], saved.rest["outputs"])
            gone.restore(saved.rest["outputs"])
            saved.restore_boundary(self.network, self.numbers, self._clocks, self.outboxes, self._counters)
        self._recovery = Recovery(self.log, position, self.network, self.outboxes, self.committer, self._format, gone)
        self._recovery.read_emitted([] if saved is None else saved.rest.get("unlogged", []))
        gone.refuse_unread()
        self._refuse_unreadable_histories()
        self.spill.open(() if saved is None else spilled_refs(saved.queues))
        if saved is not None:
            saved.restore_engine(self._engine)
        self.state_home.remove_unused()
        self.history.open({} if saved is None else saved.rest.get("history", {}))
        rest = {} if saved is None else saved.rest
        self._engine.ingress.entered = int(rest.get("entered", 0))
        self.starts.prepare(self._engine, rest.get("starts", {}), rest.get("outputs", {}))
        self._format.use(self.network, [outbox.output.name for outbox in self.outboxes if outbox.unread()])
        self._format.write()
        self.log.repair()
        if self.log.torn_bytes:
            log.warning("%d bytes of a torn tail were removed from the log", self.log.torn_bytes)
        self.checkpointer.position = position
        self.recovered = Recovered(
            checkpoint=found.number if found is not None else 0,
            log_bytes=self._recovery.log_bytes,
            torn_bytes=self.log.torn_bytes,
            passed_over=len(self.checkpoints.passed_over),
        )

    def _refuse_unreadable_histories(self) -> None:
        """Raise FormatError if an output has other fields than the tuples that its readers have not read yet."""
        for outbox in self.outboxes:
            why = self._format.reads_history(outbox.output)
            if not why:
                continue
            if unread := outbox.unread():
                readers = ", ".join(f"{name} ({tuples} tuples)" for name, tuples in list(unread.items())[:5])
                raise FormatError(
                    self._folder.root,
                    None,
                    f"output {outbox.output.name} has other fields than the tuples that its readers have not read: "
                    f"{why}. Unread: {readers}. Put the fields back until they have read on, or give the output with "
                    "the new fields another name and list this one in engine.forget_outputs",
                )
            outbox.forget_history()

    def replay(self, on_progress: Callable[[Progress], None]) -> None:
        """Let the log behind the checkpoint enter. The engine runs, nothing else feeds it, and no listener is open."""
        assert self._recovery is not None
        begun = monotonic()
        if self._threads:
            self._commits.start()
        with self._folder.start_errors():
            tuples = self._recovery.replay(self._engine, self._enter_replayed, on_progress)
        for outbox in self.outboxes:
            if (again := outbox.regenerated) is not None:
                self.starts.compute_again(outbox.output.number, partial(_has_come, again))
        self._recovery.settle(self._engine, self._commit_now, on_progress)
        self._begin_anew()
        self._recovery.finish()
        self._event_time.count_silence_from_now()
        for outbox in self.outboxes:
            outbox.durable_names = set(outbox.names)
        self._commit_now()
        self.recovered = self.recovered._replace(tuples=tuples, seconds=monotonic() - begun)
        self._recovery = None

    def _begin_anew(self) -> None:
        """Let streams that have ended begin anew, and log that: a later replay must do it at the same place.

        The end of a stream alone does not say it: in a batch run other streams go on behind the end of one.
        """
        streams = [s for s in self.network.streams if has_ended((self._clocks[s.number],))]
        begin_anew(self._engine.runtimes, self._clocks)
        for stream in streams:
            self.submit(stream.number, Train.empty(stream.schema, BEGUN_ANEW))

    def _commit_now(self) -> None:
        if not self._threads:
            while self.committer.step():
                pass

    def _enter_replayed(self, stream: int, train: Train, logged_ns: int, batches: list[BatchNumber]) -> None:
        self.numbers.commit(stream, batches)
        if train.watermark_ns == BEGUN_ANEW:
            while not self._engine.drain(1.0) and self._engine.loop.failure is None:
                pass
            begin_anew(self._engine.runtimes, self._clocks)
            return
        self._engine.ingress.enter_logged(stream, train, logged_ns, is_replayed=True)

    @property
    def is_replaying(self) -> bool:
        return self._recovery is not None

    def start(self) -> None:
        if self._threads:
            self.checkpointer.start()
            self.history.start()
            self.starts.start()
        if self.recovered.tuples:
            self.checkpointer.ask()  # so that a second crash does not replay the same log again

    # -- the engine's log ---------------------------------------------------------------------------------------------

    def submit(self, stream: int, train: Train, batch: BatchNumber | None = None) -> None:
        """Log a train; when it is on disk it enters the network. Any thread."""
        self.committer.submit(Input(stream, train, batch, train.nbytes + 64))

    def emit(self, output: int, train: Train) -> None:
        """Keep a train of an output in its history. On the worker that made it."""
        self.histories[output].emit(train)

    @property
    def is_settled(self) -> bool:
        """Whether everything that was submitted is on disk, or cannot get there."""
        return self.committer.is_idle or bool(self.committer.refusal)

    @property
    def has_room(self) -> bool:
        return self.committer.has_room and self.history.has_room

    @property
    def refusal(self) -> str:
        return self.committer.refusal

    @property
    def disk_trouble(self) -> str:
        return self.committer.disk_trouble

    # -- what the committer acts on -----------------------------------------------------------------------------------

    def enter(self, stream: int, train: Train, logged_ns: int) -> None:
        if train.watermark_ns == BEGUN_ANEW:
            return  # only a replay needs it
        self._engine.ingress.enter_logged(stream, train, logged_ns)

    def emitted(self, output: int, first: int, tuples: int, position: int) -> None:
        self.outboxes[output].committed(first, tuples, position)
        self._readers.history_grew(output)

    def settled(self, outcome: GroupOutcome) -> None:
        self._readers.batches_settled(outcome.committed, outcome.refused)

    def notes(self) -> list[Note]:
        return [note for history in self.histories for note in history.notes()]

    def disk_full(self) -> None:
        self.checkpointer.ask()  # a checkpoint lets the keeper delete the log before it

    def submitted(self) -> None:
        self._commits.wake()

    def room_again(self) -> None:
        self._engine.ingress.room_again()

    def save(self, name: str) -> str:
        """Make a savepoint below the data_dir and return its folder. Raises SavepointError. Any thread."""
        with self.history.still():
            return str(make_savepoint(self._folder.root, name, self.log, self.checkpointer))

    def drop_source(self, stream: int, source: str) -> bool:
        """Forget a source, on disk too. False when it is unknown, or the disk takes no checkpoint now."""
        return self.numbers.drop(stream, source) and self.checkpointer.make()

    # -- an end -------------------------------------------------------------------------------------------------------

    def stop(self, *, checkpoint: bool = True) -> None:
        """Stop committing, before the engine stops. Without a checkpoint the next start has more to replay.

        In the middle of a replay no checkpoint is made: it would claim that the whole log has been through the network.
        """
        self.starts.stop()
        self.checkpointer.stop()
        self._commits.stop()
        self.history.stop()
        if checkpoint and not self.is_replaying:
            self.checkpointer.make()

    def close(self) -> None:
        """Close the files and release the lock. Called when no history is read any more."""
        self.log.close()
        self.spill.close()
        self.state_home.close()
        self._folder.release()


def _has_come(again: Regenerated) -> bool:
    """Tell whether everything that was emitted before a crash has come again."""
    return not again.left
