"""Change the network of a running daemon: plan, prepare beside it, swap, clean up.

    read -> compare -> refuse, or: reserve addresses -> build the new engine -> stop the world -> move -> go on

Everything that takes time happens beside the running engine: to read and bind the file, to bind new addresses, to build
the new engine. The swap itself is a checkpoint that never touches the disk. The scheduler is paused until the plans
under way have ended. Then, on the I/O thread, where no socket is being read, and with the ingress closed to all other
threads, everything that is kept changes hands (``engine/run/change/move``). If plans do not end in ``QUIET_SECONDS``,
the old engine goes on for a moment and the swap is tried again.

A change is made whole or not at all: everything that can be refused is refused before the swap. One change is made at a
time; the next one waits.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from threading import RLock
from time import monotonic, sleep
from typing import TYPE_CHECKING, Any, NoReturn

from catalog.config.edit import EntryExistsError, add_entries, pause_output, remove_entries
from catalog.config.models import TcpSink, TcpSource
from catalog.config.words import did_you_mean
from catalog.network import Network, Output
from engine.daemon.admission import check_admission, forecast
from engine.daemon.revisions import Revision, Revisions, make_revision
from engine.run.change.compare import Change, compare
from engine.run.change.report import change_json, change_lines, changed_json
from engine.run.core import Engine
from engine.run.quiet import quiet
from engine.run.tuning import collector_paused
from router.http.change import BY_CODE, ChangeOrigin, ChangeRefusedError
from router.listeners import ReservedListener
from storage.files import StorageError

if TYPE_CHECKING:
    from engine.daemon.daemon import Daemon

log = logging.getLogger("aurorad.change")

QUIET_SECONDS = 0.1
AGAIN_SECONDS = 0.02
GIVE_UP_SECONDS = 5.0

ReadText = Callable[[str, Network], Network]
"""Read a network file, given as text, that is to follow this network. Raises NetworkError."""


class LiveChanges:
    """The door to changes. Any thread but the I/O thread."""

    def __init__(
        self, daemon: Daemon, read: ReadText, text: str, revisions: Revisions, is_file: Callable[[str], bool]
    ) -> None:
        """``text`` is the network file that runs; empty when the network has none. ``is_file`` tells whether the file
        of the start has a text now."""
        self.revisions = revisions
        self._is_file = is_file
        self._daemon = daemon
        self._read = read
        self._text = text
        self.lock = RLock()  # one change at a time; a stop of the daemon takes it too

    def put(
        self, text: str, *, dry_run: bool, drop_state: bool, force: bool = False, origin: ChangeOrigin = BY_CODE
    ) -> Mapping[str, Any]:
        """Run this network file from now on, or only say what that would do."""
        with self.lock:
            with collector_paused():  # it would look at everything that is new, again and again
                answer = self._put(text, dry_run=dry_run, drop_state=drop_state, force=force, origin=origin)
            if not dry_run:
                self._text = text
            return answer

    @property
    def text(self) -> str:
        """The network file that runs; empty when the network has none."""
        return self._text

    def read(self, text: str) -> Network:
        """Read a network file as if it were to follow the one that runs. Raises NetworkError."""
        return self._read(text, self._daemon.network)

    # -- revisions ----------------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Take note of the network of the start. After the data_dir is open, before its next checkpoint."""
        network = self._daemon.network
        self.revisions.open(network.version)
        known, is_file = self.revisions.find(network.version), self._is_file(self._text)
        if known is None or known.text != self._text or known.is_file != is_file:
            self._write(
                make_revision(network, self._text, ChangeOrigin("start"), (), is_file=is_file)
                if known is None or known.text != self._text
                else replace(known, is_file=is_file)
            )

    def _write(self, revision: Revision) -> None:
        """Write a revision that counts already. On a full disk it is not on disk: a restart then runs the file."""
        try:
            self.revisions.write(revision)
        except OSError as error:
            log.warning("revision %d is not written: %s", revision.number, error)
        self.revisions.add(revision)

    def list_revisions(self) -> list[Mapping[str, Any]]:
        return [revision.to_json() for revision in self.revisions.listing()]

    def revision(self, number: int) -> Mapping[str, Any]:
        """Return a revision with its network file."""
        revision = self.revisions.find(number)
        if revision is None:
            raise ChangeRefusedError(f"there is no revision {number}", "`aurorad revisions` lists them", 404)
        return {**revision.to_json(), "text": revision.text}

    def rollback(
        self, number: int, *, dry_run: bool, drop_state: bool, force: bool = False, origin: ChangeOrigin = BY_CODE
    ) -> Mapping[str, Any]:
        """Run the network of an earlier revision from now on: that is a new revision."""
        with self.lock:
            revision = self.revisions.find(number)
            if revision is None or not revision.text:
                raise ChangeRefusedError(f"there is no revision {number}", "`aurorad revisions` lists them", 404)
            return self.put(revision.text, dry_run=dry_run, drop_state=drop_state, force=force, origin=origin)

    # -- queries ------------------------------------------------------------------------------------------------------

    def queries(self) -> list[dict[str, Any]]:
        """Return every query: an output, with the boxes that only it needs."""
        network = self._daemon.network
        own: dict[str, list[str]] = {output.name: [] for output in network.outputs}
        for box, outputs in _declared_outputs(network).items():
            if len(outputs) == 1:
                own[next(iter(outputs))].append(box)
        return [
            {
                "name": output.name,
                "from": network.config.outputs[output.name].from_,
                "boxes": own[output.name],
                "paused": output.paused,
                "shared": [n.name for n in network.boxes if _is_shared(network.box_outputs[n.number], output.number)],
            }
            for output in network.outputs
        ]

    def add_query(
        self, query: str, *, dry_run: bool, start: str = "", force: bool = False, origin: ChangeOrigin = BY_CODE
    ) -> Mapping[str, Any]:
        """Add the boxes and outputs of a query to the network. ``start``: where in the past its outputs begin."""
        with self.lock:
            try:
                text, names = add_entries(self._known_text(), query, start)
            except EntryExistsError as error:
                raise ChangeRefusedError(str(error), "remove it first, or apply a whole network file") from error
            done = self.put(text, dry_run=dry_run, drop_state=False, force=force, origin=origin)
            return {"queries": names, **done}

    def remove_query(self, name: str, *, dry_run: bool, origin: ChangeOrigin = BY_CODE) -> Mapping[str, Any]:
        """Remove an output and the boxes that only it needs, with their state."""
        with self.lock:
            boxes = own_boxes(self._daemon.network, self._find_query(name))
            text = remove_entries(self._known_text(), boxes, [name])
            return {"queries": [name], **self.put(text, dry_run=dry_run, drop_state=True, origin=origin)}

    def pause_query(
        self, name: str, is_paused: bool, *, dry_run: bool, origin: ChangeOrigin = BY_CODE
    ) -> Mapping[str, Any]:
        """Pause an output, with the boxes that feed only paused outputs, or let it go on."""
        with self.lock:
            self._find_query(name)
            text = pause_output(self._known_text(), name, is_paused)
            return {"queries": [name], **self.put(text, dry_run=dry_run, drop_state=False, origin=origin)}

    def _find_query(self, name: str) -> Output:
        found = [output for output in self._daemon.network.outputs if output.name == name]
        if not found:
            hint = did_you_mean(name, [output.name for output in self._daemon.network.outputs])
            raise ChangeRefusedError(f"there is no query '{name[:200]}'", hint, 404)
        return found[0]

    def _known_text(self) -> str:
        if not self._text:
            raise ChangeRefusedError("this network was not read from a file", "PUT /api/v1/network replaces it")
        return self._text

    # -- a change -----------------------------------------------------------------------------------------------------

    def _put(
        self, text: str, *, dry_run: bool, drop_state: bool, force: bool, origin: ChangeOrigin
    ) -> Mapping[str, Any]:
        begun = monotonic()
        before = self._daemon.network
        after = self._read(text, before)
        change = compare(before, after)
        if change.is_empty:
            if not dry_run:
                self._note_same(text)
            return {"applied": False, "version": before.version, **change_json(change)}
        told: dict[str, Any] = {}
        if not force and (dry_run or after.config.admission.min_utility is not None):
            if (found := forecast(self._daemon, after)) is not None:
                told["forecast"] = found.to_json()
            if not dry_run:
                check_admission(found, after, {**change_json(change), **told})
        if dry_run:
            return {"applied": False, "version": before.version, **change_json(change), **told}
        self._check(change, after, drop_state)
        changed = changed_json(change)
        revision = make_revision(after, text, origin, changed, is_file=self._is_file(text))
        dropped = self._make(after, change, drop_state, revision)
        self.revisions.add(revision)
        took_s = monotonic() - begun
        _log_change(changed, dropped, after.version, took_s)
        done = {"applied": True, "version": after.version, "seconds": took_s, "dropped": dropped}
        return {**done, **change_json(change), **told}

    def _check(self, change: Change, after: Network, drop_state: bool) -> None:
        """Refuse what cannot be done, or was not confirmed."""

        def refuse(message: str, hint: str, status: int = 409) -> NoReturn:
            raise ChangeRefusedError(message, hint, status, change_json(change))

        if not self._daemon.is_ready:
            refuse("the daemon starts or stops", "try again later", 503)
        if restart := change.needs_restart:
            names = ", ".join(f"{p.kind} {p.name}" for p in restart[:5])
            refuse(f"a restart is needed for {names}", "nothing has changed")
        if why := obstacle(self._daemon.network) or obstacle(after):
            refuse(f"a restart is needed: {why}", "nothing has changed")
        if change.drops_state and not drop_state:
            names = ", ".join(p.name for p in change.drops_state[:5])
            refuse(f"the change drops the state of {names}", "confirm with --drop-state")
        if not drop_state:
            self._check_readers(after)

    def _check_readers(self, after: Network) -> None:
        """Refuse a change that takes tuples from readers. Asked again when the engine stands still."""
        keeper = self._daemon.keeper
        if keeper is not None and (lost := keeper.unread(after)):
            names = "; ".join(f"output {output}: {readers}" for output, readers in list(lost.items())[:5])
            raise ChangeRefusedError(
                f"readers would lose tuples that they have not read: {names}",
                "wait until they have, give their names up (`aurorad names drop`), or confirm with --drop-state",
            )

    def _note_same(self, text: str) -> None:
        """Take note of another text of the network that runs: other comments, or the file has become like it."""
        known = self.revisions.find(self._daemon.network.version)
        if known is not None and text and (known.text, known.is_file) != (text, self._is_file(text)):
            self._write(replace(known, text=text, is_file=self._is_file(text)))

    def _make(self, after: Network, change: Change, drop_state: bool, revision: Revision) -> dict[str, int]:
        reserved = self._daemon.server.reserve(after)
        try:
            self._prepare_disk(after, revision)
            return self._swap(after, change, reserved, drop_state)
        except BaseException:
            for each in reserved:
                each.release()
            raise

    def _swap(
        self, after: Network, change: Change, reserved: list[ReservedListener], drop_state: bool
    ) -> dict[str, int]:
        daemon = self._daemon
        following = daemon.prepare(after, change)
        old = daemon.engine
        daemon.pause_monitoring()
        deadline = monotonic() + GIVE_UP_SECONDS
        while True:
            try:
                with self._still(old):
                    if not drop_state:
                        self._check_readers(after)
                    dropped = daemon.io.run(daemon.adopt(following, change))
                    daemon.commit_change()
                break
            except ChangeRefusedError:
                daemon.resume_monitoring()
                raise
            except TimeoutError as error:
                if monotonic() > deadline:
                    daemon.resume_monitoring()
                    raise ChangeRefusedError(f"boxes run for too long: {error}", "nothing has changed", 503) from error
                sleep(AGAIN_SECONDS)
        daemon.resume_monitoring()
        daemon.io.run(daemon.server.accept(reserved))
        old.ingress.room_again()  # callers that waited there go on in the new network
        old.stop()
        if daemon.keeper is not None:
            daemon.keeper.settle()
        return dropped

    def _prepare_disk(self, after: Network, revision: Revision) -> None:
        """Write all that must be on disk before the change may count."""
        try:
            self.revisions.write(revision)
            if self._daemon.keeper is not None:
                self._daemon.keeper.prepare(after)
        except (StorageError, OSError) as error:
            raise ChangeRefusedError(f"the disk does not take the change: {error}", "nothing has changed") from error

    @contextmanager
    def _still(self, engine: Engine) -> Iterator[None]:
        """Let no box run, no block move and, with a data_dir, nothing be committed. TimeoutError when plans take too
        long."""
        with ExitStack() as held:
            if self._daemon.keeper is not None:
                held.enter_context(self._daemon.keeper.checkpointer.swapping())
            held.enter_context(quiet(engine, QUIET_SECONDS))
            if engine.spiller is not None:
                held.enter_context(engine.spiller.paused())
            yield


def own_boxes(network: Network, output: Output) -> list[str]:
    """Return the boxes of the file that this output reads, directly or not, and no other output."""
    return [name for name, outputs in _declared_outputs(network).items() if outputs == {output.name}]


def _declared_outputs(network: Network) -> dict[str, set[str]]:
    """Return, by box of the file, the outputs that read it, directly or not; equal boxes are apart here."""
    found: dict[str, set[str]] = {name: set() for name in network.declared}
    for name, output in network.config.outputs.items():
        if (feeder := output.from_.strip().partition(".")[0]) in found:
            found[feeder].add(name)
    for name, feeders in reversed(list(network.declared.items())):
        for feeder in feeders:
            if feeder in found:
                found[feeder] |= found[name]
    return found


def _is_shared(outputs: tuple[int, ...], output: int) -> bool:
    return len(outputs) > 1 and output in outputs


def obstacle(network: Network) -> str:
    """Say why a daemon with this network cannot change it while it runs; empty when it can."""
    config = network.config
    ends = [*(s.source for s in network.streams), *(o.sink for o in network.outputs)]
    if config.spark_port is not None or any(not isinstance(end, TcpSource | TcpSink | None) for end in ends):
        return "the network has files or Spark"
    return ""


def _log_change(changed: list[dict[str, str]], dropped: Mapping[str, int], version: int, took_s: float) -> None:
    for line in change_lines(changed)[:50]:
        log.info("%s", line)
    for arc, tuples in dropped.items():
        log.warning("arc %s is gone: %d tuples that waited there are dropped", arc, tuples)
    log.info("the network is now version %d, after %.0f ms", version, 1e3 * took_s)
