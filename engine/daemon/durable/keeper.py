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

import errno
import logging
from collections.abc import Callable, Mapping
from functools import partial
from time import monotonic, sleep
from typing import Protocol

from catalog.network import Network
from engine.daemon.durable.checkpointer import Checkpointer, KeptCounters, KeptNames
from engine.daemon.durable.commit_thread import CommitThread
from engine.daemon.durable.committer import Committer, GroupOutcome, Input, Note, pending_at_most
from engine.daemon.durable.cut import spilled_refs
from engine.daemon.durable.data_folder import DataFolder
from engine.daemon.durable.data_format import DataFormat, FormatError
from engine.daemon.durable.following import FollowingOutputs, following_outboxes, remember, unread
from engine.daemon.durable.gone_outputs import GoneOutputs
from engine.daemon.durable.histories import LoggedHistory
from engine.daemon.durable.outbox import Outbox
from engine.daemon.durable.recovery import Progress, Recovered, Recovery
from engine.daemon.durable.regenerated import Regenerated
from engine.daemon.durable.restore import SavedState
from engine.daemon.durable.savepoint import make_savepoint
from engine.daemon.history.keeper import HistoryKeeper
from engine.daemon.history.starts import QueryStarts
from engine.run.change.compare import Change
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
from storage.string_account import waiting_bytes
from storage.train import Train

log = logging.getLogger("aurorad.durable")

SMALL_STATE_BYTES = 1024**2
COMMIT_SECONDS = 30.0
COMMIT_AGAIN_SECONDS = 0.2


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
        files = self.files = self._folder.files
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
            pending_at_most_bytes=pending_at_most(network.config.engine.memory_bytes),
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
        self.histories = [self._history(outbox) for outbox in self.outboxes]
        self._past: dict[str, int] = {}  # outputs that are gone: the number that a next tuple would have
        self._recovery: Recovery | None = None
        self.recovered = Recovered()

    def attach(self, engine: Engine, event_time: EventTime, readers: LogReaders, counters: KeptCounters) -> None:
        """Bind the engine and the server. Later than the constructor, because both are built on this keeper."""
        self._engine = engine
        self._event_time = event_time
        self._clocks = event_time.clocks
        self._readers = readers
        self._counters = counters
        self.checkpointer.attach(engine, event_time.clocks, counters, KeptNames(self._past, self._format.outputs))

    # -- a change of the network --------------------------------------------------------------------------------------

    def foresee(self, network: Network) -> FollowingOutputs:
        """Return the outputs of the network that is to follow, for its engine. Any thread."""
        outboxes = following_outboxes(network, self.outboxes, self._past, self._format)
        known = {history.outbox.output.name: history for history in self.histories}
        histories = [known.get(outbox.output.name) or self._history(outbox) for outbox in outboxes]
        return FollowingOutputs(outboxes, histories, self.history.foresee(network))

    def unread(self, network: Network) -> dict[str, str]:
        """Return, by output, the readers that would lose tuples in a change to this network."""
        return unread(network, self.outboxes, self._format)

    def prepare(self, network: Network) -> None:
        """Write what the folder must know before it can hold another network. StorageError when the disk does not take
        it; then nothing has changed."""
        try:
            self._format.foresee(network)
            self.history.flush(self.history.cut())
        except OSError as error:
            raise StorageError(error.filename or self._folder.root, None, error.strerror or str(error)) from error
        if self.disk_trouble:
            raise StorageError(self._folder.root, None, self.disk_trouble)
        if self._engine.storage.state_bytes < SMALL_STATE_BYTES:
            return
        if not self.checkpointer.make():  # so that the one of the swap, for which all waits, has less to write
            raise StorageError(self._folder.root, None, f"takes no checkpoint: {self.checkpointer.trouble}")

    def adopt(
        self,
        following: FollowingOutputs,
        engine: Engine,
        event_time: EventTime,
        counters: KeptCounters,
        change: Change,
    ) -> dict[str, int]:
        """Keep the next network. Inside ``checkpointer.swapping``; nothing is submitted meanwhile, and no box runs.

        Returns the tuples that were on their way to the log for streams that are gone.
        """
        before, network = self.network, engine.network
        streams = {
            s.number: there.number
            for s in before.streams
            if (there := network.find_stream(s.name)) is not None
            and (there.schema, there.time_field) == (s.schema, s.time_field)
        }
        names = {o.name: o.number for o in network.outputs}
        places = {o.number: names[o.name] for o in before.outputs if o.name in names}
        same = {s.name: s.number for s in before.streams}
        self.numbers.renumber({s.number: same[s.name] for s in network.streams if s.name in same}, len(network.streams))
        gone = self.committer.adopt(network, streams, places)
        here = {s.number: there.number for s in before.streams if (there := network.find_stream(s.name)) is not None}
        self.numbers.retract((here[i.stream], i.batch) for i in gone if i.batch is not None and i.stream in here)
        remember(self._past, [outbox for outbox in self.outboxes if outbox.output.name not in names])
        for outbox, output in zip(following.outboxes, network.outputs, strict=True):
            self._past.pop(output.name, None)
            if outbox.output.schema != output.schema and self._format.reads_history(output):
                outbox.forget_history()
            outbox.output = output
        self.network, self.outboxes, self.histories = network, following.outboxes, following.histories
        self._format.use(network, [outbox.output.name for outbox in self.outboxes if outbox.unread()])
        self.history.adopt(network)
        self.attach(engine, event_time, self._readers, counters)
        self.checkpointer.adopt(network, self.outboxes)
        self.starts.adopt(engine, change.outputs)
        for stream in network.streams:
            if stream.name not in change.streams:  # its port is new, and has not counted what is on its way to the log
                engine.ingress.received[stream.number] += self.committer.pending_tuples[stream.number]
        dropped: dict[str, int] = {}
        for item in gone:
            name = f"log of {before.streams[item.stream].name}"
            dropped[name] = dropped.get(name, 0) + item.train.count
        return dropped

    def commit_change(self) -> None:
        """Write the checkpoint that makes a change count. While the disk is full it is tried again. Raises OSError and
        CutError: then the next start runs the network before."""
        deadline = monotonic() + COMMIT_SECONDS
        while True:
            try:
                return self.checkpointer.commit_change()
            except OSError as error:
                if error.errno not in (errno.ENOSPC, errno.EDQUOT) or monotonic() > deadline:
                    raise
                log.warning("the disk is full in the middle of a change: everything waits until there is room")
                sleep(COMMIT_AGAIN_SECONDS)

    def settle(self) -> None:
        """After a change: let the folder forget what only the network before needed."""
        try:
            self._format.write()
        except OSError as error:
            log.warning("format.json could not be written: %s; it is written at the next change", error)
        # So that a start which falls back on the one before finds this network there, too.
        self.checkpointer.ask(always=True)

    def _history(self, outbox: Outbox) -> LoggedHistory:
        return LoggedHistory(outbox, self.log, self.committer, self.checkpointer.ask)

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
            self._format.learn_outputs(int(saved.facts.get("revision", 0)), saved.rest.get("marks", {}))
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
        self._remember({} if saved is None else rest.get("past", {}))
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

    def _remember(self, past: Mapping[str, int]) -> None:
        """Let outputs that are back go on with their numbers."""
        self._past.update({name: int(number) for name, number in past.items()})
        for outbox in self.outboxes:
            if (number := self._past.pop(outbox.output.name, 1)) > outbox.next:
                outbox.next, outbox.readable = number, number - 1

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
        self.committer.submit(Input(stream, train, batch, waiting_bytes(train) + 64))

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
